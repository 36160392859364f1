"""Which tools there are for whom, what a model is told of them, and what no tool may be."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from tests.unit.tools.conftest import Bench, Said, Say, repeat

from execworld.seams import ConfigurationError, RegistrationConflict
from execworld.tools.content import Content, Text, cap_text
from execworld.tools.definition import Tool

pytestmark = pytest.mark.timeout(20)


class Open(BaseModel):
    word: str


def show(_: Say, value: Said) -> Content:
    return (Text(value.word),)


def made(**changes: Any) -> Tool[Any, Any]:
    given: dict[str, Any] = {
        "name": "say",
        "description": "Says.",
        "arguments": Say,
        "value": Said,
        "run": repeat,
        "render": show,
    }
    return Tool(**(given | changes))


@pytest.mark.anyio
async def test_a_tool_of_a_session_hides_the_one_for_all_until_it_goes(bench: Bench) -> None:
    bench.tool()
    own = bench.pipeline.registry.add(bench.root.scoped(bench.session.scope), made(description="Mine."))
    assert [schema["description"] for schema in bench.pipeline.schemas(bench.session)] == ["Mine."]
    own.dispose()
    assert [schema["description"] for schema in bench.pipeline.schemas(bench.session)] == ["Says a word."]


@pytest.mark.anyio
async def test_a_layer_has_one_tool_of_a_name(bench: Bench) -> None:
    bench.tool()
    with pytest.raises(RegistrationConflict):
        bench.tool()


@pytest.mark.anyio
async def test_what_a_model_is_told_is_a_copy_without_budgets(bench: Bench) -> None:
    bench.tool(timeout_s=5)
    (schema,) = bench.pipeline.schemas(bench.session)
    assert set(schema) == {"name", "description", "parameters"}
    schema["parameters"]["properties"].clear()
    (schema,) = bench.pipeline.schemas(bench.session)
    assert schema["parameters"]["properties"] == {"word": {"default": "hello", "type": "string"}}


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "with space"},
        {"description": " "},
        {"timeout_s": 0},
        {"timeout_s": float("inf")},
        {"timeout_s": float("nan")},
        {"limit_bytes": 63},
        {"arguments": Open},
    ],
)
def test_what_is_no_tool_is_refused_when_it_is_defined(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        made(**changes)


@pytest.mark.parametrize("keep", ["head", "tail", "both"])
@pytest.mark.parametrize("text", ["a" * 500, "é" * 300, "\U0001f600" * 100, "x" + "é" * 300, "\udc80" * 300])
def test_text_is_cut_between_characters_with_an_exact_count(text: str, keep: Any) -> None:
    whole = text.encode("utf-8", "replace")
    for limit_bytes in range(len(whole) + 2):
        shown = cap_text(text, limit_bytes, keep)
        size = len(shown.encode())
        assert size <= limit_bytes
        if limit_bytes >= len(whole):
            assert shown.encode() == whole
        elif limit_bytes > 40:
            before, _, rest = shown.partition("[... ")
            count, _, after = rest.partition(" bytes omitted ...]")
            kept = len(before.rstrip("\n").encode()) + len(after.lstrip("\n").encode())
            assert int(count) == len(whole) - kept
