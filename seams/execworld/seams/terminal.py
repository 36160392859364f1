"""The terminal primitive: a command on a pseudo-terminal (pty(7))."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType

from execworld.seams.results import CommandResult, TreeReport
from execworld.seams.values import value_class


@value_class
class Foreground:
    """The foreground process group of a terminal.

    Attributes:
        group_id: Process group id in the numbering of the view.
        waits_for_input: True only when it is proven that a process of the group is blocked reading the terminal; False
            when that is not the case *or cannot be proven*.
    """

    group_id: int
    waits_for_input: bool


class Terminal(ABC):
    """A command on a terminal. Bytes arrive in order; the end of output comes after the last byte, never before."""

    @property
    @abstractmethod
    def pid(self) -> int: ...

    @property
    @abstractmethod
    def world_id(self) -> str: ...

    @property
    @abstractmethod
    def view_id(self) -> str: ...

    @property
    @abstractmethod
    def size(self) -> tuple[int, int]:
        """Rows and columns as last set."""

    @property
    @abstractmethod
    def running(self) -> bool: ...

    @abstractmethod
    async def receive(self, max_bytes: int = 65536) -> bytes:
        """The next bytes, exactly as the terminal gives them (CR LF line ends, control sequences).

        Raises:
            anyio.EndOfStream: the command ended and everything that it wrote was delivered. A background job that still
                holds the terminal does not delay this.
        """

    @abstractmethod
    async def send(self, data: bytes | str) -> None:
        """Type *data*. No line end is converted; Enter is ``\\r``.

        Raises:
            anyio.BrokenResourceError: the command ended.
        """

    @abstractmethod
    async def resize(self, rows: int, columns: int) -> None:
        """Set the size; the foreground group gets SIGWINCH from the kernel."""

    @abstractmethod
    async def foreground(self) -> Foreground | None:
        """The foreground group; None when there is none or the command ended."""

    @abstractmethod
    async def signal_foreground(self, number: int) -> int:
        """Send a signal to the foreground group and return its id.

        Raises:
            SignalRefused: there is no such group, or KILL would hit the command that the terminal was opened with.
        """

    @abstractmethod
    async def wait(self) -> CommandResult:
        """Wait for the command. Its output is not collected: both streams of the result are empty."""

    @abstractmethod
    async def terminate(self, *, grace_s: float | None = None) -> TreeReport:
        """End everything in the session, as `Process.terminate` does."""

    @abstractmethod
    async def aclose(self) -> None:
        """Terminate, join, free the terminal. Idempotent."""

    async def __aenter__(self) -> Terminal:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
