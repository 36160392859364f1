"""What holds of all documents: what is shown is read again as the same, later wins, floors only rise."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from execworld.config import Composition, Layer, Lookup, compose, show_document
from execworld.config.floors import FloorFold
from execworld.config.merging import merged, settled
from execworld.config.nodes import ListNode, MappingNode, Node, ScalarNode, plain_value, same_value
from execworld.config.options import Options, validated
from execworld.config.reading import Source, read_document
from execworld.config.sections import FloorSection
from execworld.seams import ConfigurationError, PolicyRefused

from .documents import REGISTRY, layer
from .trees import HERE, documents, layers, listed, mapping, scalar

pytestmark = pytest.mark.slow

SOURCE = Source("patch", "shown.yml", "/elsewhere")
BASE = layer("world: {use: plain}")


def composed(*given_layers: Layer) -> Composition:
    return compose(given_layers, REGISTRY, lookup=Lookup({}, reads=False))


@given(documents, st.booleans())
def test_what_is_shown_is_read_again_as_the_same(document: MappingNode, origins: bool) -> None:
    shown = show_document(document, origins=origins)
    assert same_value(read_document(shown.encode(), SOURCE), document), shown


SCRAPS = st.sampled_from(
    [
        "world",
        "use",
        "box",
        ": ",
        ", ",
        "\n",
        "\n  ",
        "- ",
        "{",
        "}",
        "[",
        "]",
        "!env ",
        "!file ",
        "!replace ",
        "~",
        "&a ",
        "*a ",
        "<<",
        "'",
        '"',
        "|\n",
        "? ",
        "%",
        "---\n",
        "\t",
        "\x00",
        "é",
        "1",
        "yes",
        "#",
    ]
)


@given(st.binary(max_size=40) | st.lists(SCRAPS, max_size=20).map(lambda scraps: "".join(scraps).encode()))
def test_whatever_a_document_holds_it_is_read_or_refused_with_its_place(data: bytes) -> None:
    refusal = ""
    try:
        document = read_document(data, SOURCE)
        compose((BASE, Layer("patch", "x.yml", document)), REGISTRY, lookup=Lookup({}))
    except (ConfigurationError, PolicyRefused) as error:
        refusal = error.message
    assert refusal in ("", "the composition has no world") or refusal.startswith("shown.yml:")


@given(st.lists(layers, max_size=4))
@settings(max_examples=50)
def test_a_composition_that_is_shown_is_the_same_composition(above: list[Layer]) -> None:
    try:
        first = composed(BASE, *above)
    except ConfigurationError:
        return  # a list would have lost something
    again = composed(
        Layer("patch", "shown.yml", read_document(show_document(first.document).encode(), SOURCE))
    )
    assert same_value(first.document, again.document)
    assert (first.policy, first.floor) == (again.policy, again.floor)
    assert {name: row.config for name, row in first.rows.items()} == {
        name: row.config for name, row in again.rows.items()
    }


@given(documents, documents)
def test_what_the_upper_one_says_is_what_there_is(lower: MappingNode, upper: MappingNode) -> None:
    try:
        result = merged(settled(lower), upper)
    except ConfigurationError:
        return
    assert result is not None
    assert_says(result, upper)


def assert_says(found: Node, said: Node) -> None:
    if isinstance(said, MappingNode):
        assert isinstance(found, MappingNode)
        for name, each in said.entries.items():
            assert_says(found.entries[name], each)
    else:
        assert same_value(found, settled(said))


@given(documents, documents)
def test_what_the_upper_one_does_not_say_is_what_the_lower_one_said(
    lower: MappingNode, upper: MappingNode
) -> None:
    try:
        result = merged(lower, upper)
    except ConfigurationError:
        return
    assert isinstance(result, MappingNode)
    for name, each in lower.entries.items():
        if name not in upper.entries:
            assert result.entries[name] is each


@given(documents, documents)
def test_laying_the_same_twice_is_laying_it_once(lower: MappingNode, upper: MappingNode) -> None:
    try:
        once = merged(lower, upper)
    except ConfigurationError:
        return
    assert once is not None
    twice = merged(once, upper)
    assert twice is not None
    assert same_value(once, twice)


class Layering(RuleBasedStateMachine):
    """Rows of layers as they are laid, beside a model that knows nothing of trees."""

    def __init__(self) -> None:
        super().__init__()
        self.above: list[Layer] = []
        self.use = "plain"
        self.options: dict[str, object] = {}
        self.names: list[str] = []  # those of the options, too

    def forget(self) -> None:
        self.options, self.names = {}, []

    @initialize()
    def begin(self) -> None:
        self.above = [BASE]

    def lay(self, world: dict[str, Node]) -> None:
        self.above.append(Layer("patch", "x.yml", mapping({"world": mapping(world)})))

    @rule(use=st.sampled_from(["box", "plain"]))
    def choose(self, use: str) -> None:
        self.lay({"use": scalar(use)})
        if use != self.use:
            self.use = use
            self.forget()

    @precondition(lambda self: self.use == "box")
    @rule(port=st.integers(1, 9))
    def put(self, port: int) -> None:
        self.lay({"config": mapping({"port": scalar(port)})})
        self.options["port"] = port

    @precondition(lambda self: self.use == "box")
    @rule(names=st.lists(st.sampled_from("abc"), max_size=3))
    def put_list(self, names: list[str]) -> None:
        before = self.names
        self.lay({"config": mapping({"names": listed([scalar(name) for name in names])})})
        if set(before) <= set(names):
            self.options["names"] = self.names = names
        else:
            try:
                composed(*self.above)
            except ConfigurationError:
                self.above.pop()
            else:
                raise AssertionError("a list lost something without a word")

    @precondition(lambda self: self.use == "box")
    @rule(name=st.sampled_from(["port", "names", "tty"]))
    def clear(self, name: str) -> None:
        self.lay({"config": mapping({name: scalar(None)})})
        self.options.pop(name, None)
        if name == "names":
            self.names = []

    @rule()
    def clear_all(self) -> None:
        self.lay({"config": scalar(None)})
        self.forget()

    @precondition(lambda self: self.use == "box")
    @rule(port=st.integers(1, 9))
    def replace(self, port: int) -> None:
        config = MappingNode({"port": scalar(port)}, {"port": HERE}, HERE, replace=True)
        self.lay({"config": config})
        self.forget()
        self.options["port"] = port

    @invariant()
    def agrees_with_the_model(self) -> None:
        if not self.above:
            return
        world = composed(*self.above).world
        config = world.node.entries.get("config")
        assert world.use == self.use
        assert ({} if config is None else plain_value(config)) == self.options


Layering.TestCase.settings = settings(max_examples=30, stateful_step_count=12)
TestLayering = Layering.TestCase


def demands() -> st.SearchStrategy[MappingNode]:
    names = st.lists(st.sampled_from(["box", "plain", "silent"]), max_size=3, unique=True)
    paths = st.lists(st.sampled_from(["/a", "/a/b", "/c"]), max_size=2, unique=True)

    def scalars_of(values: list[str]) -> Node:
        return listed([scalar(value) for value in values])

    return st.fixed_dictionaries(
        {},
        optional={
            "boundary": st.sampled_from(["none", "kernel-policy", "container", "other-host"]).map(scalar),
            "mode": st.sampled_from(["read-only", "workspace-write", "full-access"]).map(scalar),
            "network": st.sampled_from(["none", "all"]).map(scalar)
            | st.lists(st.sampled_from([80, 443]), min_size=1, unique=True).map(
                lambda ports: listed([scalar(port) for port in ports])
            ),
            "worlds": names.map(scalars_of),
            "require": st.lists(st.sampled_from(["fs.write", "net.tcp"]), unique=True).map(scalars_of),
            "hidden": paths.map(scalars_of),
            "writable": paths.map(scalars_of),
            "limits": st.dictionaries(
                st.sampled_from(["processes", "wall_s"]), st.integers(1, 3).map(scalar), max_size=2
            ).map(mapping),
        },
    ).map(mapping)


@given(st.lists(demands(), min_size=1, max_size=5))
def test_a_floor_only_rises_and_its_tree_says_what_it_is(sections: list[MappingNode]) -> None:
    fold = FloorFold()
    for section in sections:
        before = fold.floor
        try:
            fold.lay(section)
        except PolicyRefused:
            assert fold.floor is before, "a layer that is refused changes nothing"
        assert before.lost_in(fold.floor) == ()
    if fold.node is not None:
        read = validated(Options("floor", fold.node, HERE, FloorSection), Lookup({}))
        assert read.floor() == fold.floor


def test_the_trees_of_these_properties_are_of_all_kinds() -> None:
    """The properties above would hold of nothing."""
    kinds: set[type] = set()

    @given(documents)
    def look(document: MappingNode) -> None:
        for each in document.entries.values():
            kinds.add(type(each))

    look()
    assert {ListNode, MappingNode, ScalarNode} < kinds
