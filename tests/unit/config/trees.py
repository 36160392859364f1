"""Layers of all kinds that are right, for properties."""

from __future__ import annotations

from hypothesis import strategies as st

from execworld.config import Layer, Origin
from execworld.config.nodes import (
    EnvironmentNode,
    FileNode,
    ListNode,
    MappingNode,
    Node,
    PlainValue,
    ScalarNode,
)

HERE = Origin("patch", "x.yml", 1, 1)


def scalar(value: PlainValue) -> Node:
    return ScalarNode(value, HERE)


def mapping(entries: dict[str, Node]) -> MappingNode:
    return MappingNode(entries, dict.fromkeys(entries, HERE), HERE)


def listed(items: list[Node]) -> Node:
    return ListNode(tuple(items), HERE)


# Whatever may stand in a document, the tricky above all.
texts = st.one_of(
    st.sampled_from(
        [
            "",
            " ",
            "~",
            "null",
            "yes",
            "No",
            "1",
            "0x1f",
            "1.5",
            "1e3",
            "22:22",
            "a: b",
            "a #b",
            "- a",
            "#",
            "'",
            '"',
        ]
    ),
    st.sampled_from(
        [
            "\\",
            "a\nb",
            "\u2028",
            "\x85",
            "\x7f",
            "\x00",
            "\ufeff",
            "é",
            "\U0001f600",
            "...",
            "---",
            "!env X",
            "*a",
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
keys = st.one_of(
    st.sampled_from(["a", "b", "yes", "<", "a/b", "~", "1", "a: b"]), texts.filter(lambda text: text != "<<")
)
references = st.one_of(
    st.builds(EnvironmentNode, st.sampled_from(["A", "B_1"]), st.none() | texts, st.just(HERE)),
    st.builds(
        FileNode, texts.map(lambda text: f"/{text}").filter(lambda path: "\0" not in path), st.just(HERE)
    ),
)
scalars = st.one_of(
    st.booleans(), st.integers(-(10**30), 10**30), st.floats(allow_nan=False, allow_infinity=False), texts
).map(scalar)
values = st.recursive(
    scalars | references,
    lambda inner: (
        st.lists(inner, max_size=3).map(listed) | st.dictionaries(keys, inner, max_size=3).map(mapping)
    ),
    max_leaves=8,
)
documents = st.dictionaries(keys, values, max_size=4).map(mapping)

# Layers over the rows of the registry, in which every key and every type is right.
boxes = st.fixed_dictionaries(
    {},
    optional={
        "image": texts.filter(lambda text: not text.startswith("bad")).map(scalar),
        "port": st.integers(0, 3).map(scalar),
        "tty": st.booleans().map(scalar),
        "user": st.just(scalar(None)) | texts.map(scalar),
        "env": st.dictionaries(keys, texts.map(scalar) | st.just(scalar(None)), max_size=2).map(mapping),
        "names": st.lists(texts.map(scalar), max_size=2).map(listed) | st.just(scalar(None)),
        "labels": st.dictionaries(
            st.sampled_from(["a", "b"]),
            st.dictionaries(st.sampled_from(["c", "d"]), texts.map(scalar), max_size=2).map(mapping)
            | st.just(scalar(None)),
            max_size=2,
        ).map(mapping),
    },
).map(mapping)
plains = st.fixed_dictionaries({}, optional={"host": texts.map(scalar) | st.just(scalar(None))}).map(mapping)
audits = st.fixed_dictionaries(
    {}, optional={"level": st.integers(0, 3).map(scalar), "path": texts.map(scalar) | st.just(scalar(None))}
).map(mapping)


def row(use: str, config: st.SearchStrategy[MappingNode]) -> st.SearchStrategy[Node]:
    return st.fixed_dictionaries(
        {"use": st.just(scalar(use))}, optional={"config": config | st.just(scalar(None))}
    ).map(mapping)


def disabled(rows: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    def with_mark(pair: tuple[Node, Node]) -> Node:
        node, mark = pair
        assert isinstance(node, MappingNode)
        return mapping({**node.entries, "disabled": mark})

    marks = st.sampled_from([scalar(True), scalar(False), scalar(None)])
    return st.tuples(rows, marks).map(with_mark)


audit_rows = row("audit", audits)
layers = (
    st.fixed_dictionaries(
        {},
        optional={
            "world": row("box", boxes) | row("plain", plains),
            "audit": audit_rows | disabled(audit_rows),
            "other": audit_rows | disabled(audit_rows),
        },
    )
    .map(mapping)
    .map(lambda root: Layer("patch", "x.yml", root))
)
