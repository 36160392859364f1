"""How this project reads the environment of its own process."""

from __future__ import annotations

import os


def environment_variable(name: str) -> str | None:
    """Value of *name*; None when it is unset or empty.

    An empty value is how a wrapper script passes on a variable that it never had. Taken for a choice, it
    would beat a setting that somebody really made.
    """
    return os.environ.get(name) or None
