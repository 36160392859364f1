"""What can go wrong with a call of a tool.

    ExecworldError
    └── ToolError
        ├── UnknownTool (LookupError)               UNKNOWN_TOOL
        ├── InvalidArguments (ValueError)           INVALID_ARGS
        ├── InvalidToolOutput                       INVALID_TOOL_OUTPUT
        ├── ToolDenied (PermissionError)            TOOL_DENIED
        ├── ToolBlocked                             TOOL_BLOCKED
        ├── ToolTimeout (TimeoutError)              TOOL_TIMEOUT
        ├── ToolAborted                             ABORTED
        ├── ToolAbortedBeforeDispatch               ABORTED_BEFORE_DISPATCH
        ├── ToolFailed                              TOOL_FAILED
        ├── SessionClosed                           SESSION_CLOSED
        ├── DuplicateName                           DUPLICATE_NAME
        ├── ForeignSession (PermissionError)        FOREIGN_SESSION
        ├── NoSession (LookupError)                 NO_SESSION
        ├── SendActive                              SEND_ACTIVE
        ├── JobLimit                                JOB_LIMIT
        ├── NoJob (LookupError)                     NO_JOB
        └── SearchError
            ├── SearchInvalidPattern (ValueError)   SEARCH_INVALID_PATTERN
            ├── SearchFailed                        SEARCH_FAILED
            ├── SearchRawOutputOverflow             SEARCH_RAW_OUTPUT_OVERFLOW
            └── SearchAborted                       SEARCH_ABORTED

A body of a tool raises one of these, or any other error of the tree: the result of the call carries its code. What is
no `ExecworldError` becomes TOOL_FAILED. A command that exits with a status is a result and no error.
"""

from __future__ import annotations

from execworld.seams.errors import ErrorCode, ExecworldError


class ToolError(ExecworldError):
    """A call of a tool did not give what it was to give."""


class UnknownTool(ToolError, LookupError):
    """No tool of this name is there for this session."""

    code = ErrorCode.UNKNOWN_TOOL


class InvalidArguments(ToolError, ValueError):
    """The arguments are no JSON, or not what the tool takes. Nothing ran."""

    code = ErrorCode.INVALID_ARGS


class InvalidToolOutput(ToolError):
    """The body gave what its tool does not declare, or it could not be shown. The body ran."""

    code = ErrorCode.INVALID_TOOL_OUTPUT


class ToolDenied(ToolError, PermissionError):
    """A policy, a guard or a person said no. Nothing ran."""

    code = ErrorCode.TOOL_DENIED


class ToolBlocked(ToolError):
    """The call ran, and a policy withholds what it gave."""

    code = ErrorCode.TOOL_BLOCKED


class ToolTimeout(ToolError, TimeoutError):
    """The time that the tool declares is over. Its body was cancelled and waited for."""

    code = ErrorCode.TOOL_TIMEOUT
    retryable_by_default = None


class ToolAborted(ToolError):
    """The call was cancelled while its body ran."""

    code = ErrorCode.ABORTED
    retryable_by_default = None


class ToolAbortedBeforeDispatch(ToolError):
    """The call was cancelled before its body began. Nothing ran."""

    code = ErrorCode.ABORTED_BEFORE_DISPATCH
    retryable_by_default = True


class ToolFailed(ToolError):
    """Something in the body, or in a plugin around it, broke."""

    code = ErrorCode.TOOL_FAILED
    retryable_by_default = None


class SessionClosed(ToolError):
    """The session of the tools is over, with everything that it owned."""

    code = ErrorCode.SESSION_CLOSED


class DuplicateName(ToolError):
    """The session has something of this name already."""

    code = ErrorCode.DUPLICATE_NAME


class ForeignSession(ToolError, PermissionError):
    """It belongs to another session."""

    code = ErrorCode.FOREIGN_SESSION


class NoSession(ToolError, LookupError):
    """There is no terminal session of this id."""

    code = ErrorCode.NO_SESSION


class SendActive(ToolError):
    """Something that was sent to this terminal is still at work."""

    code = ErrorCode.SEND_ACTIVE
    retryable_by_default = True


class JobLimit(ToolError):
    """As many jobs run as this owner may have."""

    code = ErrorCode.JOB_LIMIT
    retryable_by_default = True


class NoJob(ToolError, LookupError):
    """There is no job of this id."""

    code = ErrorCode.NO_JOB


class SearchError(ToolError):
    """A search could not be done."""


class SearchInvalidPattern(SearchError, ValueError):
    """The expression is malformed, or not every engine understands it."""

    code = ErrorCode.SEARCH_INVALID_PATTERN


class SearchFailed(SearchError):
    """The search broke."""

    code = ErrorCode.SEARCH_FAILED


class SearchRawOutputOverflow(SearchError):
    """The search found more than can be taken in."""

    code = ErrorCode.SEARCH_RAW_OUTPUT_OVERFLOW


class SearchAborted(SearchError):
    """The search was ended before it was done."""

    code = ErrorCode.SEARCH_ABORTED
    retryable_by_default = True
