"""Every error of execworld, in one tree.

    ExecworldError
    ├── ConfigurationError (ValueError)             CONFIGURATION_INVALID
    ├── ProviderUnknown (LookupError)               PROVIDER_UNKNOWN
    ├── ProviderNotInstalled (ImportError)          PROVIDER_NOT_INSTALLED
    ├── Unsupported (NotImplementedError)           UNSUPPORTED
    ├── PolicyRefused (PermissionError)             POLICY_REFUSED
    │   └── FloorViolated                           FLOOR_VIOLATED
    ├── SandboxUnavailable                          SANDBOX_UNAVAILABLE
    ├── PluginError                                 what plugins do to each other: `execworld.seams.plugin_errors`
    ├── ToolError                                   calls of tools: `execworld.seams.tool_errors`
    ├── WorldError
    │   ├── WorldUnavailable                        WORLD_UNAVAILABLE
    │   ├── WorldClosed                             WORLD_CLOSED
    │   ├── WorldLost (ConnectionError)             WORLD_LOST
    │   ├── OutcomeUnknown (ConnectionError)        OUTCOME_UNKNOWN
    │   ├── WorldMismatch (ValueError)              WORLD_MISMATCH
    │   └── CleanupIncomplete                       CLEANUP_INCOMPLETE
    ├── CommandError
    │   ├── CommandNotFound (FileNotFoundError)     COMMAND_NOT_FOUND
    │   ├── CommandNotExecutable (PermissionError)  COMMAND_NOT_EXECUTABLE
    │   ├── WorkingDirectoryMissing (FileNotFoundError)  WORKING_DIRECTORY_MISSING
    │   ├── CommandInvalid (ValueError)             COMMAND_INVALID
    │   ├── SpawnFailed (OSError)                   SPAWN_FAILED
    │   ├── CommandFailed                           COMMAND_FAILED
    │   ├── CommandTimeout (TimeoutError)           COMMAND_TIMEOUT
    │   └── SignalRefused                           SIGNAL_REFUSED
    └── FileError (OSError)                         FS_IO_ERROR
        ├── FileMissing (FileNotFoundError)         FS_NOT_FOUND
        ├── FileAlreadyExists (FileExistsError)     FS_EXISTS
        ├── NotDirectory (NotADirectoryError)       FS_NOT_DIRECTORY
        ├── NotRegularFile                          FS_NOT_REGULAR_FILE
        ├── NotText (ValueError)                    FS_NOT_TEXT
        ├── TooLarge                                FS_TOO_LARGE
        ├── AccessDenied (PermissionError)          FS_PERMISSION_DENIED
        ├── SandboxDenied (PermissionError)         FS_SANDBOX_DENIED
        ├── StaleVersion                            FS_STALE_VERSION
        ├── NotObserved                             FS_NOT_OBSERVED
        ├── HardLinked                              FS_HARD_LINKED
        ├── DirectoryNotEmpty                       FS_NOT_EMPTY
        ├── NoSpace                                 FS_NO_SPACE
        ├── InvalidPath (ValueError)                FS_INVALID_PATH
        ├── EditNotFound (ValueError)               FS_EDIT_NOT_FOUND
        └── AmbiguousEdit (ValueError)              FS_AMBIGUOUS_EDIT

A non-zero exit, a death by signal, a time limit and a cancellation are *facts* of a result, not errors; they are
raised only where the caller asked for it (``check=True``). Cancellation of the calling task is never one of these
classes: it is the event loop's own exception and passes through every seam untouched.
"""

from __future__ import annotations

import errno as _errno
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from execworld.seams.results import CommandResult


class ErrorCode(StrEnum):
    """Stable machine-readable names. A value is never renamed and never reused."""

    CONFIGURATION_INVALID = "CONFIGURATION_INVALID"
    PROVIDER_UNKNOWN = "PROVIDER_UNKNOWN"
    PROVIDER_NOT_INSTALLED = "PROVIDER_NOT_INSTALLED"
    UNSUPPORTED = "UNSUPPORTED"
    POLICY_REFUSED = "POLICY_REFUSED"
    FLOOR_VIOLATED = "FLOOR_VIOLATED"
    SANDBOX_UNAVAILABLE = "SANDBOX_UNAVAILABLE"
    WORLD_UNAVAILABLE = "WORLD_UNAVAILABLE"
    WORLD_CLOSED = "WORLD_CLOSED"
    WORLD_LOST = "WORLD_LOST"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    WORLD_MISMATCH = "WORLD_MISMATCH"
    CLEANUP_INCOMPLETE = "CLEANUP_INCOMPLETE"
    COMMAND_NOT_FOUND = "COMMAND_NOT_FOUND"
    COMMAND_NOT_EXECUTABLE = "COMMAND_NOT_EXECUTABLE"
    WORKING_DIRECTORY_MISSING = "WORKING_DIRECTORY_MISSING"
    COMMAND_INVALID = "COMMAND_INVALID"
    SPAWN_FAILED = "SPAWN_FAILED"
    COMMAND_FAILED = "COMMAND_FAILED"
    COMMAND_TIMEOUT = "COMMAND_TIMEOUT"
    SIGNAL_REFUSED = "SIGNAL_REFUSED"
    FS_IO_ERROR = "FS_IO_ERROR"
    FS_NOT_FOUND = "FS_NOT_FOUND"
    FS_EXISTS = "FS_EXISTS"
    FS_NOT_DIRECTORY = "FS_NOT_DIRECTORY"
    FS_NOT_REGULAR_FILE = "FS_NOT_REGULAR_FILE"
    FS_NOT_TEXT = "FS_NOT_TEXT"
    FS_TOO_LARGE = "FS_TOO_LARGE"
    FS_PERMISSION_DENIED = "FS_PERMISSION_DENIED"
    FS_SANDBOX_DENIED = "FS_SANDBOX_DENIED"
    FS_STALE_VERSION = "FS_STALE_VERSION"
    FS_NOT_OBSERVED = "FS_NOT_OBSERVED"
    FS_HARD_LINKED = "FS_HARD_LINKED"
    FS_NOT_EMPTY = "FS_NOT_EMPTY"
    FS_NO_SPACE = "FS_NO_SPACE"
    FS_INVALID_PATH = "FS_INVALID_PATH"
    FS_EDIT_NOT_FOUND = "FS_EDIT_NOT_FOUND"
    FS_AMBIGUOUS_EDIT = "FS_AMBIGUOUS_EDIT"
    PLUGIN_INVALID = "PLUGIN_INVALID"
    PLUGIN_AMBIGUOUS = "PLUGIN_AMBIGUOUS"
    PLUGIN_ENDED = "PLUGIN_ENDED"
    PLUGIN_DISPOSED = "PLUGIN_DISPOSED"
    PLUGINS_FAILED = "PLUGINS_FAILED"
    INJECT_CYCLE = "INJECT_CYCLE"
    SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"
    SERVICE_UNDECLARED = "SERVICE_UNDECLARED"
    SERVICE_CONFLICT = "SERVICE_CONFLICT"
    CONTEXT_INACTIVE = "CONTEXT_INACTIVE"
    DISPOSAL_FAILED = "DISPOSAL_FAILED"
    REPLACEMENT_REFUSED = "REPLACEMENT_REFUSED"
    WAIT_CYCLE = "WAIT_CYCLE"
    LISTENERS_FAILED = "LISTENERS_FAILED"
    LISTENER_UNLOADED = "LISTENER_UNLOADED"
    NEXT_MISUSED = "NEXT_MISUSED"
    REGISTRATION_CONFLICT = "REGISTRATION_CONFLICT"
    UNKNOWN_TOOL = "UNKNOWN_TOOL"
    INVALID_ARGS = "INVALID_ARGS"
    INVALID_TOOL_OUTPUT = "INVALID_TOOL_OUTPUT"
    TOOL_DENIED = "TOOL_DENIED"
    TOOL_BLOCKED = "TOOL_BLOCKED"
    TOOL_TIMEOUT = "TOOL_TIMEOUT"
    ABORTED = "ABORTED"
    ABORTED_BEFORE_DISPATCH = "ABORTED_BEFORE_DISPATCH"
    TOOL_FAILED = "TOOL_FAILED"
    SESSION_CLOSED = "SESSION_CLOSED"
    DUPLICATE_NAME = "DUPLICATE_NAME"
    FOREIGN_SESSION = "FOREIGN_SESSION"
    NO_SESSION = "NO_SESSION"
    SEND_ACTIVE = "SEND_ACTIVE"
    JOB_LIMIT = "JOB_LIMIT"
    NO_JOB = "NO_JOB"
    SEARCH_INVALID_PATTERN = "SEARCH_INVALID_PATTERN"
    SEARCH_FAILED = "SEARCH_FAILED"
    SEARCH_RAW_OUTPUT_OVERFLOW = "SEARCH_RAW_OUTPUT_OVERFLOW"
    SEARCH_ABORTED = "SEARCH_ABORTED"


class ExecworldError(Exception):
    """Root of the tree.

    Attributes:
        code: What went wrong, for programs.
        message: What happened and to what, for people; without the hint.
        op: The operation that failed, for example ``fs.write_text``; empty when there was none yet.
        world: World id, empty when no world was involved.
        hint: What the reader can do about it; empty when there is nothing honest to say.
        retryable: True when the same call may succeed later and repeating it is safe, False when it will not,
            None when that is not known.
    """

    code: ClassVar[ErrorCode]
    retryable_by_default: ClassVar[bool | None] = False

    def __init__(
        self,
        message: str,
        *,
        op: str = "",
        world: str = "",
        hint: str = "",
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.op = op
        self.world = world
        self.hint = hint
        self.retryable = self.retryable_by_default if retryable is None else retryable

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        state = self.__dict__.copy()
        if isinstance(self, OSError):
            state["errno"] = self.errno  # kept in the C struct of OSError, not in __dict__
        return (_rebuild, (type(self), self.message, state))

    def as_dict(self) -> dict[str, object]:
        """The error as plain JSON values, the form used by ``--json`` and by logs."""
        fields: dict[str, object] = {
            "code": str(self.code),
            "message": self.message,
            "retryable": self.retryable,
        }
        fields |= {name: value for name in ("op", "world", "hint") if (value := getattr(self, name))}
        return fields


def _rebuild(kind: type[ExecworldError], message: str, state: Mapping[str, object]) -> ExecworldError:
    """Unpickle without calling a subclass constructor, whose arguments differ from class to class."""
    error = kind.__new__(kind, message)
    error.args = (message,)
    for name, value in state.items():
        setattr(error, name, value)
    return error


class ConfigurationError(ExecworldError, ValueError):
    """A configuration value is unknown, of the wrong type or contradicts another one. Nothing was started.

    Attributes:
        file: The document that holds it; empty where it came from no document. The message begins with this place.
        line: In that document, from 1; 0 where it has none.
        column: In that line, from 1, in characters; 0 likewise.
    """

    code = ErrorCode.CONFIGURATION_INVALID

    def __init__(
        self,
        message: str,
        *,
        file: str = "",
        line: int = 0,
        column: int = 0,
        op: str = "",
        world: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, op=op, world=world, hint=hint)
        self.file = file
        self.line = line
        self.column = column

    def as_dict(self) -> dict[str, object]:
        place = {"file": self.file, "line": self.line, "column": self.column}
        return super().as_dict() | ({name: value for name, value in place.items() if value})


class ProviderUnknown(ExecworldError, LookupError):
    """No installed distribution registers a provider of this name."""

    code = ErrorCode.PROVIDER_UNKNOWN


class ProviderNotInstalled(ExecworldError, ImportError):
    """The provider is known, but the package that it needs is not installed."""

    code = ErrorCode.PROVIDER_NOT_INSTALLED


class Unsupported(ExecworldError, NotImplementedError):
    """This world cannot do that, and says so instead of doing something similar."""

    code = ErrorCode.UNSUPPORTED


class PolicyRefused(ExecworldError, PermissionError):
    """A guard or a floor refused the call. Nothing ran."""

    code = ErrorCode.POLICY_REFUSED


class FloorViolated(PolicyRefused):
    """A floor would be lowered, or is not held. Nothing ran; the message has every difference."""

    code = ErrorCode.FLOOR_VIOLATED


class SandboxReason(StrEnum):
    """Why a policy could not be enforced."""

    WORLD_CANNOT_CONFINE = "world-cannot-confine"
    NOT_LINUX = "not-linux"
    KERNEL_LACKS_FEATURE = "kernel-lacks-feature"
    FEATURE_DISABLED = "feature-disabled"
    BLOCKED = "blocked"
    ROOT_REQUIRED = "root-required"
    ROOT_UNUSABLE = "root-unusable"
    SETUP_FAILED = "setup-failed"
    CANARY_CONTRADICTS = "canary-contradicts"
    CANNOT_VERIFY = "cannot-verify"
    MISSING_DIMENSION = "missing-dimension"


class SandboxUnavailable(ExecworldError):
    """The sandbox that the policy asks for cannot be had, therefore nothing ran. Never a failed command.

    Attributes:
        reason: The kind of obstacle.
        missing: Names of the required dimensions that nothing enforces here, in a stable order.
    """

    code = ErrorCode.SANDBOX_UNAVAILABLE

    def __init__(
        self,
        message: str,
        *,
        reason: SandboxReason,
        missing: tuple[str, ...] = (),
        op: str = "",
        world: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, op=op, world=world, hint=hint)
        self.reason = reason
        self.missing = missing

    def as_dict(self) -> dict[str, object]:
        return super().as_dict() | {"reason": str(self.reason), "missing": list(self.missing)}


class WorldError(ExecworldError):
    """Something about the world itself, not about a file or a command in it."""


class WorldUnavailable(WorldError):
    """The world could not be opened. Nothing was left behind."""

    code = ErrorCode.WORLD_UNAVAILABLE
    retryable_by_default = None


class WorldClosed(WorldError):
    """The world was closed by this side; its handles are void."""

    code = ErrorCode.WORLD_CLOSED


class WorldLost(WorldError, ConnectionError):
    """The world is gone. The operation was not sent, so it did not happen."""

    code = ErrorCode.WORLD_LOST
    retryable_by_default = None


class OutcomeUnknown(WorldError, ConnectionError):
    """The world was lost during the operation: it may or may not have happened. Never repeated by itself."""

    code = ErrorCode.OUTCOME_UNKNOWN
    retryable_by_default = None


class WorldMismatch(WorldError, ValueError):
    """Values or seams of two different worlds, views or generations were mixed."""

    code = ErrorCode.WORLD_MISMATCH


class CleanupIncomplete(WorldError):
    """Closing finished, but something that this side made could not be proven gone.

    Attributes:
        survivors: Process ids, in the numbering of the world, that were still alive.
        leftovers: Other things left behind (paths, containers), as text.
    """

    code = ErrorCode.CLEANUP_INCOMPLETE
    retryable_by_default = None

    def __init__(
        self,
        message: str,
        *,
        survivors: tuple[int, ...] = (),
        leftovers: tuple[str, ...] = (),
        op: str = "",
        world: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, op=op, world=world, hint=hint)
        self.survivors = survivors
        self.leftovers = leftovers

    def as_dict(self) -> dict[str, object]:
        return super().as_dict() | {"survivors": list(self.survivors), "leftovers": list(self.leftovers)}


class CommandError(ExecworldError):
    """A command could not be started, or ``check=True`` turned its result into an error."""


class CommandNotFound(CommandError, FileNotFoundError):
    """The program does not exist in the world. Shells report this as 127."""

    code = ErrorCode.COMMAND_NOT_FOUND


class CommandNotExecutable(CommandError, PermissionError):
    """The program exists but cannot be executed (mode, format, directory). Shells report this as 126."""

    code = ErrorCode.COMMAND_NOT_EXECUTABLE


class WorkingDirectoryMissing(CommandError, FileNotFoundError):
    """The working directory does not exist, is no directory, or may not be entered."""

    code = ErrorCode.WORKING_DIRECTORY_MISSING


class CommandInvalid(CommandError, ValueError):
    """The arguments of the call are malformed; nothing was started."""

    code = ErrorCode.COMMAND_INVALID


class SpawnFailed(CommandError, OSError):
    """The world could not create the process for a reason that lies with neither program nor directory."""

    code = ErrorCode.SPAWN_FAILED
    retryable_by_default = None


class SignalRefused(CommandError):
    """The signal cannot be delivered as asked (no such group, or the shell itself would be killed)."""

    code = ErrorCode.SIGNAL_REFUSED


class _CommandOutcome(CommandError):
    def __init__(
        self, message: str, *, result: CommandResult, op: str = "", world: str = "", hint: str = ""
    ) -> None:
        super().__init__(message, op=op, world=world, hint=hint)
        self.result = result


class CommandFailed(_CommandOutcome):
    """The command ended with a non-zero status or by a signal, and the caller asked for an error (``check=True``)."""

    code = ErrorCode.COMMAND_FAILED


class CommandTimeout(_CommandOutcome, TimeoutError):
    """The time limit ended the command, and the caller asked for an error. The whole tree is gone by then."""

    code = ErrorCode.COMMAND_TIMEOUT


class FileError(ExecworldError, OSError):
    """A file operation failed.

    Attributes:
        path: The path as the caller gave it.
        errno: The error number of the world's kernel, None where the error is ours.
    """

    code = ErrorCode.FS_IO_ERROR
    retryable_by_default: ClassVar[bool | None] = None
    default_errno: ClassVar[int | None] = None

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        errno: int | None = None,
        op: str = "",
        world: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, op=op, world=world, hint=hint)
        self.path = path
        self.errno = self.default_errno if errno is None else errno

    def as_dict(self) -> dict[str, object]:
        fields = super().as_dict()
        if self.path:
            fields["path"] = self.path
        if self.errno:
            fields["errno"] = _errno.errorcode.get(self.errno, str(self.errno))
        return fields


class FileMissing(FileError, FileNotFoundError):
    code = ErrorCode.FS_NOT_FOUND
    retryable_by_default = False
    default_errno = _errno.ENOENT


class FileAlreadyExists(FileError, FileExistsError):
    code = ErrorCode.FS_EXISTS
    retryable_by_default = False
    default_errno = _errno.EEXIST


class NotDirectory(FileError, NotADirectoryError):
    code = ErrorCode.FS_NOT_DIRECTORY
    retryable_by_default = False
    default_errno = _errno.ENOTDIR


class NotRegularFile(FileError):
    """The target is a directory, a link that may not be followed, a FIFO, a socket or a device. It was not opened."""

    code = ErrorCode.FS_NOT_REGULAR_FILE
    retryable_by_default = False


class NotText(FileError, ValueError):
    """The content is not text in the encoding asked for. Nothing was changed."""

    code = ErrorCode.FS_NOT_TEXT
    retryable_by_default = False


class TooLarge(FileError):
    code = ErrorCode.FS_TOO_LARGE
    retryable_by_default = False


class AccessDenied(FileError, PermissionError):
    """Ordinary permissions of the world forbid it."""

    code = ErrorCode.FS_PERMISSION_DENIED
    retryable_by_default = False
    default_errno = _errno.EACCES


class SandboxDenied(FileError, PermissionError):
    """The policy of this view forbids it. Another spelling of the same thing will be denied too."""

    code = ErrorCode.FS_SANDBOX_DENIED
    retryable_by_default = False
    default_errno = _errno.EACCES


class StaleVersion(FileError):
    """The file is not in the expected version any more. Nothing was changed; read it again."""

    code = ErrorCode.FS_STALE_VERSION
    retryable_by_default = False


class NotObserved(FileError):
    """The call demanded that the file be absent, and it exists. Nothing was changed."""

    code = ErrorCode.FS_NOT_OBSERVED
    retryable_by_default = False


class HardLinked(FileError):
    """The file has further names, and replacing it would silently separate them. Nothing was changed."""

    code = ErrorCode.FS_HARD_LINKED
    retryable_by_default = False


class DirectoryNotEmpty(FileError):
    code = ErrorCode.FS_NOT_EMPTY
    retryable_by_default = False
    default_errno = _errno.ENOTEMPTY


class NoSpace(FileError):
    """The disk or the quota is full. Nothing was changed."""

    code = ErrorCode.FS_NO_SPACE
    default_errno = _errno.ENOSPC


class InvalidPath(FileError, ValueError):
    """The path is empty, holds a NUL byte, or is longer than the world allows."""

    code = ErrorCode.FS_INVALID_PATH
    retryable_by_default = False
    default_errno = _errno.EINVAL


class EditNotFound(FileError, ValueError):
    """The text to be replaced is empty or does not occur. Nothing was changed."""

    code = ErrorCode.FS_EDIT_NOT_FOUND
    retryable_by_default = False


class AmbiguousEdit(FileError, ValueError):
    """The text to be replaced occurs more than once. Nothing was changed.

    Attributes:
        count: How often it occurs.
    """

    code = ErrorCode.FS_AMBIGUOUS_EDIT
    retryable_by_default = False

    def __init__(
        self, message: str, *, count: int, path: str = "", op: str = "", world: str = "", hint: str = ""
    ) -> None:
        super().__init__(message, path=path, op=op, world=world, hint=hint)
        self.count = count
