"""Validation of the options of a provider. pydantic is imported only when there is something to validate."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from execworld.seams import ConfigurationError, ExecworldError, Provider

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError
    from pydantic_core import ErrorDetails

ConfigT = TypeVar("ConfigT")


def validate_options(
    provider: Provider[ConfigT], options: Mapping[str, object], *, text: bool = False
) -> ConfigT:
    """The configuration that *options* mean.

    Args:
        provider: Whose options they are.
        options: Values by name.
        text: Values are text as typed on a command line. One that does not fit as it stands is read as JSON,
            which is how lists, mappings and null are given there.

    Raises:
        ConfigurationError: an unknown name, a missing or a wrong value. The values are not repeated.
    """
    fields = {field.name: field for field in dataclasses.fields(_dataclass(provider)) if field.init}
    _refuse_unknown(provider.name, options, tuple(fields))
    missing = [name for name, field in fields.items() if _is_required(field) and name not in options]
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        raise ConfigurationError(f"world `{provider.name}` needs a value for {names}")
    if not options:
        return provider.config_type()

    from pydantic import TypeAdapter, ValidationError

    if text:
        options = _read_text(provider, options)
    adapter: TypeAdapter[ConfigT] = TypeAdapter(provider.config_type)
    try:
        return adapter.validate_python(options)
    except ValidationError as error:
        raise _refusal(provider.name, error) from None  # the error of pydantic repeats the values


def _dataclass(provider: Provider[ConfigT]) -> Any:
    if not dataclasses.is_dataclass(provider.config_type):
        raise ConfigurationError(f"world `{provider.name}`: its configuration is no dataclass")
    return provider.config_type


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _refuse_unknown(world: str, options: Mapping[str, object], known: tuple[str, ...]) -> None:
    unknown = [name for name in options if name not in known]
    if not unknown:
        return
    import difflib

    name = unknown[0]
    near = difflib.get_close_matches(name.replace("-", "_").lower(), known, n=1)
    suggestion = f"did you mean `{near[0]}`? " if near else ""
    listing = ", ".join(known) if known else "none"
    message = f"world `{world}` has no option `{name}`"
    raise ConfigurationError(message, hint=f"{suggestion}its options: {listing}")


def _read_text(provider: Provider[ConfigT], options: Mapping[str, object]) -> dict[str, object]:
    from pydantic import TypeAdapter, ValidationError

    hints = get_type_hints(provider.config_type, include_extras=True)
    values: dict[str, object] = {}
    for name, value in options.items():
        values[name] = value
        if not isinstance(value, str):
            continue
        field: TypeAdapter[object] = TypeAdapter(hints[name])
        try:
            field.validate_python(value)
        except ValidationError:
            try:
                values[name] = json.loads(value)
            except ValueError:
                pass  # neither text of the right form nor JSON: validation of the whole says what is wrong
    return values


def _refusal(world: str, error: ValidationError) -> ConfigurationError:
    details = error.errors(include_url=False, include_input=False)
    for detail in details:
        own = detail.get("ctx", {}).get("error")
        if isinstance(own, ConfigurationError):
            return own
    parts = [f"{_location(detail)}: {_message(detail)}" for detail in details]
    return ConfigurationError(f"world `{world}`: {'; '.join(parts)}")


def _location(detail: ErrorDetails) -> str:
    return "option `" + ".".join(str(part) for part in detail["loc"]) + "`" if detail["loc"] else "options"


def _message(detail: ErrorDetails) -> str:
    own = detail.get("ctx", {}).get("error")
    if isinstance(own, ExecworldError):
        return own.message
    return str(own) if isinstance(own, ValueError) else detail["msg"]
