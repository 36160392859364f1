"""The configuration of a plugin: a pydantic model that refuses what it does not know."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard, get_args, get_origin

from execworld.seams import ConfigurationError, ExecworldError, PluginInvalid

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails


def is_model(candidate: object) -> TypeGuard[type[BaseModel]]:
    """Whether *candidate* is a model of pydantic, which is not imported for that."""
    return isinstance(candidate, type) and hasattr(candidate, "__pydantic_core_schema__")


def check_model(plugin: str, model: type[BaseModel]) -> None:
    """Refuse a model that would ignore a misspelt key, at any depth.

    Raises:
        PluginInvalid
    """
    for part in _parts(model):
        if _extra(part) != "forbid":
            message = (
                f"plugin `{plugin}`: the configuration `{part.__qualname__}` takes keys that it does not know"
            )
            raise PluginInvalid(message, hint=f'class {part.__name__}(BaseModel, extra="forbid")')


def validate_config(plugin: str, model: type[BaseModel] | None, config: object) -> BaseModel | None:
    """What *config* means to the plugin; None and no key at all are the defaults of the model.

    Args:
        plugin: Name of the plugin.
        model: Its model, if it takes a configuration.
        config: A value of the model, or a mapping.

    Raises:
        ConfigurationError: a key is unknown, missing or has a wrong value. Values are not repeated.
    """
    if model is None:
        if config:
            raise ConfigurationError(f"plugin `{plugin}` takes no configuration")
        return None
    if isinstance(config, model):
        return config
    if config is None:
        config = {}
    if not isinstance(config, Mapping):
        message = f"plugin `{plugin}`: its configuration is a mapping, not {type(config).__name__}"
        raise ConfigurationError(message)

    from pydantic import ValidationError

    try:
        return model.model_validate(config)
    except ValidationError as error:
        refusal = _refusal(plugin, model, error)
    raise refusal  # outside of the handler: the error of pydantic repeats the values


def _refusal(plugin: str, model: type[BaseModel], error: ValidationError) -> ConfigurationError:
    details = error.errors(include_url=False, include_input=False)
    for detail in details:
        own = detail.get("ctx", {}).get("error")
        if isinstance(own, ConfigurationError):
            return own
    parts = [_part(detail) for detail in details]
    return ConfigurationError(f"plugin `{plugin}`: {'; '.join(parts)}", hint=_nearest(model, details))


def _part(detail: ErrorDetails) -> str:
    place = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return f"no key `{place}`"
    own = detail.get("ctx", {}).get("error")
    message = own.message if isinstance(own, ExecworldError) else detail["msg"]
    return f"key `{place}`: {message}" if place else message


def _nearest(model: type[BaseModel], details: list[ErrorDetails]) -> str:
    known = sorted({name for part in _parts(model) for name in _field_names(part)})
    for detail in details:
        if detail["type"] != "extra_forbidden":
            continue
        name = str(detail["loc"][-1])
        near = difflib.get_close_matches(name.replace("-", "_").lower(), known, n=1)
        listing = ", ".join(sorted(_field_names(model))) or "none"
        return (f"did you mean `{near[0]}`? " if near else "") + f"its keys: {listing}"
    return ""


def _field_names(part: type[Any]) -> list[str]:
    return [getattr(field, "alias", None) or name for name, field in _fields(part).items()]


def _parts(model: type[Any]) -> Iterator[type[Any]]:
    """*model*, and whatever else with named fields a value of it is made of."""
    seen: set[type[Any]] = set()
    pending: list[object] = [model]
    while pending:
        part = pending.pop()
        pending += get_args(part)
        if isinstance(part, type) and part not in seen and _has_fields(part):
            seen.add(part)
            yield part
            pending += _annotations(part)


def _has_fields(part: type[Any]) -> bool:
    return is_model(part) or dataclasses.is_dataclass(part) or hasattr(part, "__total__")


def _fields(part: type[Any]) -> Mapping[str, Any]:
    if is_model(part):
        return part.model_fields
    return dict.fromkeys(getattr(part, "__annotations__", {}))


def _annotations(part: type[Any]) -> list[object]:
    if is_model(part):
        return [field.annotation for field in part.model_fields.values()]
    from typing import get_type_hints

    return [hint for hint in get_type_hints(part).values() if get_origin(hint) is not ClassVar]


def _extra(part: type[Any]) -> object:
    settings = part.model_config if is_model(part) else getattr(part, "__pydantic_config__", {})
    return settings.get("extra")
