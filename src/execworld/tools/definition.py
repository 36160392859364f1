"""What a tool is."""

from __future__ import annotations

import copy
import functools
import math
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeAlias, TypeVar

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from execworld.seams import ConfigurationError
from execworld.seams.values import value_class
from execworld.tools.calls import ToolContext
from execworld.tools.content import DEFAULT_LIMIT_BYTES, Content, Keep
from execworld.tools.escalation import ESCALATION_FIELDS, Escalatable

ArgumentsT = TypeVar("ArgumentsT", bound=BaseModel)
ValueT = TypeVar("ValueT", bound=BaseModel)

MIN_LIMIT_BYTES: Final = 64
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


@value_class
class Tool(Generic[ArgumentsT, ValueT]):
    """One thing that an agent can do.

    Attributes:
        name: What the agent calls it.
        description: What the agent reads about it: the task, never how it is done.
        arguments: Model of the arguments; ``frozen``, and with ``extra="forbid"``. They are validated strictly, so that
            what a guard has seen is what the body gets.
        value: Model of the canonical value: what the call came to, for programs.
        run: The body. It raises an `ExecworldError` if it cannot do it, and lets a cancellation pass.
        render: Shows the value to the agent. Pure.
        finalize: Last change of what is shown, also of a failure; None as its answer keeps it. Called once a call.
        parallel_safe: Whether calls of it may overlap with others of which that is true.
        timeout_s: Its time, for plugins that hold it; None for no bound.
        limit_bytes: Of all text that is shown, markers included.
        keep: What stays of a longer text.
    """

    name: str
    description: str
    arguments: type[ArgumentsT]
    value: type[ValueT]
    run: Callable[[ToolContext, ArgumentsT], Awaitable[ValueT]]
    render: Callable[[ArgumentsT, ValueT], Content]
    finalize: Callable[[Content], Content | None] | None = None
    parallel_safe: bool = False
    timeout_s: float | None = None
    limit_bytes: int = DEFAULT_LIMIT_BYTES
    keep: Keep = "head"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"tool {self.name!r}: a name has up to 64 letters, digits, `_` and `-`, a letter first"
            )
        if not self.description.strip():
            raise ConfigurationError(f"tool `{self.name}`: it has no description")
        if self.timeout_s is not None and not (self.timeout_s > 0 and math.isfinite(self.timeout_s)):
            raise ConfigurationError(f"tool `{self.name}`: its time is no positive number: {self.timeout_s}")
        if self.limit_bytes < MIN_LIMIT_BYTES:
            raise ConfigurationError(
                f"tool `{self.name}`: its limit is below {MIN_LIMIT_BYTES} bytes: {self.limit_bytes}"
            )
        config = self.arguments.model_config
        if config.get("extra") != "forbid" or not config.get("frozen"):
            raise ConfigurationError(
                f"tool `{self.name}`: the model of its arguments can be changed, or takes what it does not know",
                hint="declare the model as frozen, with unknown fields forbidden",
            )

    @property
    def escalatable(self) -> bool:
        """Whether a call may ask for a wider sandbox."""
        return issubclass(self.arguments, Escalatable)

    def schema(self, *, escalation: bool = False) -> dict[str, Any]:
        """What an agent is told of it: ``name``, ``description`` and the JSON Schema of its ``parameters``.

        Args:
            escalation: With the arguments by which a wider sandbox is asked for, where it has them.
        """
        parameters = copy.deepcopy(_schema_of(self.arguments))
        if self.escalatable and not escalation:
            for name in ESCALATION_FIELDS:
                parameters["properties"].pop(name)
        return {"name": self.name, "description": self.description, "parameters": parameters}

    def value_schema(self) -> dict[str, Any]:
        """The JSON Schema of the canonical value."""
        return copy.deepcopy(_schema_of(self.value))


AnyTool: TypeAlias = "Tool[Any, Any]"


class _Untitled(GenerateJsonSchema):
    """Without the titles that are made up of names: an agent reads each of them for nothing."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@functools.cache
def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(schema_generator=_Untitled)
    for each in (schema, *schema.get("$defs", {}).values()):
        each.pop("title", None)
    schema.setdefault("properties", {})
    return schema
