"""Values of both kinds behave as the frozen dataclasses that they replace."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import pytest

from execworld.seams.values import record, value_class


@dataclass(frozen=True, slots=True)
class Plain:
    number: int
    names: tuple[str, ...] = ()
    noted_s: float = field(default=0.0, compare=False)
    secret: str = field(default="", repr=False)


@value_class
class Value:
    number: int
    names: tuple[str, ...] = ()
    noted_s: float = field(default=0.0, compare=False)
    secret: str = field(default="", repr=False)


@record
class Record:
    number: int
    names: tuple[str, ...] = ()
    noted_s: float = field(default=0.0, compare=False)
    secret: str = field(default="", repr=False)


@record
class Other:
    number: int
    names: tuple[str, ...] = ()
    noted_s: float = field(default=0.0, compare=False)
    secret: str = field(default="", repr=False)


KINDS = pytest.mark.parametrize("kind", [Plain, Value, Record])


@KINDS
def test_a_value_is_compared_and_hashed_by_its_fields(kind: Any) -> None:
    one = kind(1, ("a",), noted_s=1.0)
    assert one == kind(1, ("a",), noted_s=2.0)
    assert hash(one) == hash(kind(1, ("a",), noted_s=2.0))
    assert one != kind(1, ("b",))
    assert one != kind(2, ("a",))
    assert one != kind(1, ("a",), secret="another")
    assert one != (1, ("a",), "")
    assert {one: 1}[kind(1, ("a",))] == 1


def test_values_of_two_classes_are_never_equal() -> None:
    one: object = Record(1)
    assert one != Other(1)
    assert one != Value(1)


@KINDS
def test_a_value_is_shown_by_its_fields(kind: Any) -> None:
    assert repr(kind(1, ("a",), secret="hidden")) == f"{kind.__name__}(number=1, names=('a',), noted_s=0.0)"


@KINDS
def test_a_value_has_slots_and_fields_and_can_be_matched(kind: Any) -> None:
    one = kind(1)
    assert not hasattr(one, "__dict__")
    assert [each.name for each in fields(kind)] == ["number", "names", "noted_s", "secret"]
    assert kind.__match_args__ == ("number", "names", "noted_s", "secret")
    assert replace(one, number=2) == kind(2)


@KINDS
def test_a_value_can_be_copied_and_pickled(kind: Any) -> None:
    one = kind(1, ("a",))
    assert copy.deepcopy(one) == one
    assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize("kind", [Plain, Value])
def test_a_value_of_a_contract_cannot_be_changed(kind: Any) -> None:
    one = kind(1)
    with pytest.raises(FrozenInstanceError):
        one.number = 2
    with pytest.raises(FrozenInstanceError):
        del one.number


def test_a_method_of_its_own_is_kept() -> None:
    @record
    class Shown:
        number: int

        def __repr__(self) -> str:
            return f"#{self.number}"

        def __hash__(self) -> int:
            return 7

    assert (repr(Shown(3)), hash(Shown(3)), Shown(3)) == ("#3", 7, Shown(3))
