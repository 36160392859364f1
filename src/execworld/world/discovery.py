"""Which providers are installed. Reads metadata; imports nothing but the provider that is asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from types import TracebackType
from typing import Any, TypeGuard

from execworld.seams import (
    ConfigurationError,
    Provider,
    ProviderNotInstalled,
    ProviderUnknown,
    WorldUnavailable,
)
from execworld.seams.values import value_class
from execworld.world.registrations import Registration, provided_extras, read_registrations


@value_class
class ProviderListing:
    """One registered provider, by its metadata alone.

    Attributes:
        name: Name under which worlds of it are opened.
        distribution: The installed distribution that registers it.
        reference: Module and object that hold it.
    """

    name: str
    distribution: str
    reference: str


def list_providers() -> tuple[ProviderListing, ...]:
    """Every registered provider, ordered by name. A name that two distributions register appears twice."""
    found = {ProviderListing(point.name, _distribution(point), point.value) for point in read_registrations()}
    return tuple(sorted(found, key=lambda listing: (listing.name, listing.distribution, listing.reference)))


def load_provider(name: str) -> Provider[Any]:
    """Import the provider *name* and no other.

    Raises:
        ProviderUnknown: no distribution registers it.
        ConfigurationError: two distributions do, so the name says nothing.
        ProviderNotInstalled: it imports a package that is not there.
        WorldUnavailable: it cannot be imported for another reason, or is no provider of that name.
    """
    points = [point for point in read_registrations() if point.name == name]
    claims = {(_distribution(point), point.value): point for point in points}
    if not claims:
        raise _unknown(name)
    if len(claims) > 1:
        owners = ", ".join(f"{distribution} ({value})" for distribution, value in sorted(claims))
        message = f"world `{name}` is registered more than once: {owners}"
        raise ConfigurationError(message, hint="uninstall all of these distributions but one")
    (point,) = claims.values()
    with _import_errors_told_apart(point.name, point.module, lambda: _extra_like(point)):
        try:
            loaded = point.load()
        except AttributeError as error:
            message = f"world `{name}`: {point.value} could not be loaded: {error}"
            raise WorldUnavailable(message, hint=f"reinstall {_distribution(point)}") from error
    if not _is_provider(loaded) or loaded.name != name:
        raise WorldUnavailable(f"world `{name}`: {point.value} is not a provider of that name")
    return loaded


def _is_provider(value: object) -> TypeGuard[Provider[Any]]:
    return isinstance(value, Provider)


def missing_package_refused(provider: Provider[Any]) -> AbstractContextManager[None]:
    """Turn an import that fails while *provider* opens a world into a coded error.

    Raises:
        ProviderNotInstalled, WorldUnavailable
    """
    return _import_errors_told_apart(provider.name, provider.config_type.__module__, lambda: provider.extra)


@contextmanager
def _import_errors_told_apart(name: str, module: str, find_extra: Callable[[], str]) -> Generator[None]:
    """Tell "the SDK is not installed" from "the SDK is broken".

    Not installed is only what the provider's own code asked for and what cannot be found. An import that
    fails further inside, in code of the SDK, is that package's fault: installing it again does not help.
    """
    try:
        yield
    except ProviderNotInstalled:
        raise
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and _asked_for_by(error, module) and _is_absent(error.name):
            extra = find_extra()
            install = f"install it: pip install 'execworld[{extra}]'" if extra else f"install `{error.name}`"
            message = f"world `{name}` needs the Python package `{error.name}`, which is not installed"
            raise ProviderNotInstalled(message, hint=install) from error
        message = f"world `{name}` is installed, but importing it failed: {error}"
        hint = "an installed package is broken or of the wrong version"
        raise WorldUnavailable(message, hint=hint, retryable=False) from error


def _asked_for_by(error: ModuleNotFoundError, module: str) -> bool:
    trace: TracebackType | None = error.__traceback__
    innermost = ""
    while trace is not None:
        candidate = str(trace.tb_frame.f_globals.get("__name__", ""))
        if not candidate.startswith("importlib"):
            innermost = candidate
        trace = trace.tb_next
    package = _package(module)
    return innermost == package or innermost.startswith(f"{package}.")


def _package(module: str) -> str:
    """All code of the provider that *module* belongs to; one package of several in the shared namespace."""
    parts = module.split(".")
    return ".".join(parts[:3] if parts[:2] == ["execworld", "providers"] else parts[:1])


def _is_absent(missing: str | None) -> bool:
    """Whether the whole package is not there; a missing submodule is a package of the wrong version."""
    return missing is not None and "." not in missing and find_spec(missing) is None


def _distribution(point: Registration) -> str:
    return point.distribution or "unknown distribution"


def _extra_like(point: Registration) -> str:
    """The extra of the provider's name, for a provider that could not be imported to tell itself."""
    own = point.distribution == "execworld" and point.name in provided_extras(point.distribution)
    return point.name if own else ""


def _unknown(name: str) -> ProviderUnknown:
    import difflib  # of use to nobody who spells it right

    names = sorted({point.name for point in read_registrations()})
    # What stands before a colon is all that is repeated: the rest of a mistyped address may hold a password.
    shown = re.split(r"[:/@]", name, maxsplit=1)[0]
    near = difflib.get_close_matches(shown, names, n=1)
    suggestion = f"did you mean `{near[0]}`? " if near else ""
    listing = ", ".join(names) if names else "none"
    return ProviderUnknown(f"no world is named `{shown}`", hint=f"{suggestion}installed worlds: {listing}")
