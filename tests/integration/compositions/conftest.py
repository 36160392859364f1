"""Compositions that run."""

from __future__ import annotations

import pytest

from .doubles import Setting


@pytest.fixture
def setting() -> Setting:
    return Setting()
