"""From frozen JSON to models and back, without loss or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import BaseModel, ValidationError

from execworld.seams import InvalidArguments, InvalidToolOutput
from execworld.tools.definition import AnyTool
from execworld.tools.json_values import Json, freeze, thaw


def parse_arguments(arguments: object) -> Json:
    """What a caller gave, frozen. Text is JSON; none is no argument; text that is no JSON stays text.

    Raises:
        LossyJson: it would not be the same after a way through JSON.
    """
    if isinstance(arguments, str):
        if not arguments.strip():
            return freeze({})
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            pass
    return freeze(arguments)


def validated_arguments(tool: AnyTool, arguments: Json) -> BaseModel:
    """The arguments as the model of *tool*. Strictly: what a guard has seen is what the body gets.

    Raises:
        InvalidArguments
    """
    if not isinstance(arguments, Mapping):
        raise InvalidArguments(f"the arguments of `{tool.name}` are no JSON object")
    try:
        model: BaseModel = tool.arguments.model_validate_json(json.dumps(thaw(arguments)), strict=True)
    except ValidationError as error:
        raise InvalidArguments(f"arguments of `{tool.name}`: {_told(error)}") from None
    except ValueError as error:
        raise InvalidArguments(f"arguments of `{tool.name}`: {error}") from None
    return model


def canonical(tool: AnyTool, value: object) -> tuple[BaseModel, Json]:
    """*value* as the model that *tool* declares, and frozen.

    Raises:
        InvalidToolOutput: it is not what the tool declares, or would not be the same after a way through JSON.
    """
    try:
        if isinstance(value, BaseModel):
            if not isinstance(value, tool.value):
                raise TypeError(f"a {type(value).__name__}, and no {tool.value.__name__}")
            plain: object = value.model_dump(mode="json", warnings="error")
            frozen = freeze(plain)
            model: BaseModel = tool.value.model_validate_json(json.dumps(plain))
            if model.model_dump(mode="json") != plain:
                raise ValueError("it is not the same after a way through JSON")
            return model, frozen
        model = tool.value.model_validate_json(json.dumps(thaw(freeze(value))))
        return model, freeze(model.model_dump(mode="json", warnings="error"))
    except ValidationError as error:
        raise InvalidToolOutput(f"the output of `{tool.name}`: {_told(error)}") from None
    except Exception as error:
        raise InvalidToolOutput(f"the output of `{tool.name}`: {error}") from error


def _told(error: ValidationError) -> str:
    """What is wrong where, without the values, which may be long or secret."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in found[:5])
