"""Fixtures that every test may use."""

import pytest


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run each test that is marked `anyio` on both event loops, in every world.

    A test that can hold on one loop only names it: `@pytest.mark.parametrize("anyio_backend", ["asyncio"])`.
    Module scope is what anyio asks for, so that fixtures of that scope can be async.
    """
    backend: str = request.param
    return backend
