"""The tools that every agent gets, written against the seams alone."""

from execworld.tools.standard.catalog import standard_tools

__all__ = ["standard_tools"]
