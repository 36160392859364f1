"""Opening a kernel, and ending it with everything in it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Final

import anyio

from execworld.kernel.context import Context
from execworld.kernel.fiber import Fiber
from execworld.kernel.plugins import Plugin
from execworld.kernel.reporting import OnError, log_error
from execworld.kernel.runs import Run
from execworld.kernel.runtime import Runtime
from execworld.seams import DisposalFailed


def _nothing(_context: Context) -> AbstractAsyncContextManager[None]:
    return nullcontext()


_ROOT: Final = Plugin("root", _nothing)


class _Root(Fiber):
    """The fiber around all others. It depends on nothing, and may read and provide everything."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime, None, None, _ROOT, None, _ROOT.name)
        self.context: Context | None = None

    def _context(self, run: Run) -> Context:
        self.context = Context(run, {}, None)
        return self.context


@asynccontextmanager
async def open_kernel(*, on_error: OnError = log_error) -> AsyncGenerator[Context]:
    """Open a kernel; gives the root context, through which plugins are applied.

    Leaving ends every plugin, dependents before their providers, and waits for all, also when it is left by an error or
    by cancellation. No plugin is cancelled half way through undoing what it did.

    Args:
        on_error: Called in the event loop with each error in a plugin that had nobody to be raised to: of a listener of
            an emitted event, of a start, of unloading for the sake of a provider. Logged when not given.

    Raises:
        DisposalFailed: all was undone as far as it goes, with errors. It becomes a note on an error of the body.
    """
    error: BaseException | None = None
    fatal: BaseException | None = None
    further: DisposalFailed | None = None
    host = anyio.CancelScope()
    async with anyio.create_task_group() as group:
        opened: list[_Root] = []
        ready = anyio.Event()
        group.start_soon(_run_plugins, host, on_error, opened, ready)
        with anyio.CancelScope(shield=True):
            await ready.wait()
        (root,) = opened
        assert root.context is not None
        try:
            with host:
                yield root.context
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as caught:  # noqa: BLE001 - raised below, where it is not in a group of errors
            error = caught
        finally:
            with anyio.CancelScope(shield=True):
                further = await _end(root)
            fatal = root.runtime.fatal
    if fatal is not None:
        raise fatal
    if error is not None:
        if further is not None:
            error.add_note(str(further))
        raise error
    if further is not None:
        raise further


async def _run_plugins(
    host: anyio.CancelScope, on_error: OnError, opened: list[_Root], ready: anyio.Event
) -> None:
    """Keep every task of a plugin away from the cancellation of who opened the kernel: they end in their own order."""
    with anyio.CancelScope(shield=True):
        async with anyio.create_task_group() as group:
            root = _Root(Runtime(group, host, on_error))
            root.begin()
            await root
            opened.append(root)
            ready.set()


async def _end(root: Fiber) -> DisposalFailed | None:
    try:
        await root.dispose()
    except DisposalFailed as error:
        return error
    return None
