"""What can go wrong between plugins.

    ExecworldError
    └── PluginError
        ├── PluginInvalid (TypeError)               PLUGIN_INVALID
        │   └── PluginAmbiguous                     PLUGIN_AMBIGUOUS
        ├── PluginEnded                             PLUGIN_ENDED
        ├── PluginDisposed                          PLUGIN_DISPOSED
        ├── PluginsFailed                           PLUGINS_FAILED
        ├── InjectCycle (ValueError)                INJECT_CYCLE
        ├── ServiceUnavailable (LookupError)        SERVICE_UNAVAILABLE
        ├── ServiceUndeclared (AttributeError)      SERVICE_UNDECLARED
        ├── ServiceConflict                         SERVICE_CONFLICT
        ├── ContextInactive                         CONTEXT_INACTIVE
        ├── DisposalFailed                          DISPOSAL_FAILED
        ├── ReplacementRefused                      REPLACEMENT_REFUSED
        ├── WaitCycle                               WAIT_CYCLE
        ├── ListenersFailed                         LISTENERS_FAILED
        ├── ListenerUnloaded                        LISTENER_UNLOADED
        ├── NextMisused                             NEXT_MISUSED
        └── RegistrationConflict                    REGISTRATION_CONFLICT

What a plugin itself raises is none of these: whoever waits for the plugin gets that very error.
"""

from __future__ import annotations

from execworld.seams.errors import ErrorCode, ExecworldError


class PluginError(ExecworldError):
    """Something about plugins, the services that they share, or the events between them."""


class PluginInvalid(PluginError, TypeError):
    """This is no plugin, or its declarations are wrong. Nothing was started."""

    code = ErrorCode.PLUGIN_INVALID


class PluginAmbiguous(PluginInvalid):
    """This could be read as two different plugins, so neither is taken. Nothing was started."""

    code = ErrorCode.PLUGIN_AMBIGUOUS


class PluginEnded(PluginError):
    """A plugin that holds a body open left it, although nobody had asked it to."""

    code = ErrorCode.PLUGIN_ENDED


class PluginDisposed(PluginError):
    """The plugin is gone and will not become active again."""

    code = ErrorCode.PLUGIN_DISPOSED


class InjectCycle(PluginError, ValueError):
    """Plugins wait for each other's services in a circle, so that none of them could ever start."""

    code = ErrorCode.INJECT_CYCLE


class ServiceUnavailable(PluginError, LookupError):
    """Nobody provides the service now."""

    code = ErrorCode.SERVICE_UNAVAILABLE
    retryable_by_default = None


class ServiceUndeclared(PluginError, AttributeError):
    """A plugin read a service that it does not inject, or provided one that it does not declare."""

    code = ErrorCode.SERVICE_UNDECLARED


class ServiceConflict(PluginError):
    """The realm has a provider of this service already."""

    code = ErrorCode.SERVICE_CONFLICT


class ContextInactive(PluginError):
    """The plugin run to which this context belongs is ending or over; it takes no registrations any more."""

    code = ErrorCode.CONTEXT_INACTIVE


class ReplacementRefused(PluginError):
    """The new plugin did not become ready, so the old one was left as it was."""

    code = ErrorCode.REPLACEMENT_REFUSED


class WaitCycle(PluginError):
    """A plugin that is starting waits for its own start."""

    code = ErrorCode.WAIT_CYCLE


class ListenerUnloaded(PluginError):
    """The plugin of a listener was unloaded while the listener was at work; its answer does not exist."""

    code = ErrorCode.LISTENER_UNLOADED
    retryable_by_default = None


class NextMisused(PluginError):
    """A listener went on to the next one twice, or after it had answered already."""

    code = ErrorCode.NEXT_MISUSED


class RegistrationConflict(PluginError):
    """The name is registered in this layer already."""

    code = ErrorCode.REGISTRATION_CONFLICT


class _SeveralErrors(PluginError):
    """An error that stands for several others.

    Attributes:
        errors: All of them, in the order in which they came. The cause is a group of the same.
    """

    def __init__(
        self, message: str, *, errors: tuple[Exception, ...], op: str = "", world: str = "", hint: str = ""
    ) -> None:
        super().__init__(message, op=op, world=world, hint=hint)
        self.errors = errors
        self.__cause__ = ExceptionGroup(message, errors)


class PluginsFailed(_SeveralErrors):
    """Plugins that were waited for together failed to start."""

    code = ErrorCode.PLUGINS_FAILED


class DisposalFailed(_SeveralErrors):
    """Everything was undone as far as it goes, and some of what undoes raised an error."""

    code = ErrorCode.DISPOSAL_FAILED


class ListenersFailed(_SeveralErrors):
    """All listeners ran, and some of them raised an error."""

    code = ErrorCode.LISTENERS_FAILED
