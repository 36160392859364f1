"""The catalogue of clauses and the list of deviations."""

import re
from collections import Counter
from pathlib import Path

import pytest

from execworld.seams.testing import SUITES, clause_id, clauses_of, read_deviations
from execworld.testing.contract_items import world_kind

REPOSITORY = Path(__file__).resolve().parents[2]

# A deviation is a broken promise. Adding one changes a number here, where a reviewer sees it.
DEVIATIONS = {"local": 5}


def test_each_clause_has_one_test() -> None:
    """An id names one rule for ever, so no two tests may share it."""
    ids = Counter(clause.id for suite in SUITES for clause in clauses_of(suite))
    assert [clause for clause, count in ids.items() if count > 1] == []
    assert len(ids) > 200


def test_each_clause_states_its_rule() -> None:
    without = [c.id for suite in SUITES for c in clauses_of(suite) if len(c.rule.split()) < 5]
    assert without == []


def test_each_test_of_a_suite_is_a_clause() -> None:
    """A test without an id would run without being counted, and could not be declared as a deviation."""
    odd = [
        f"{suite.__name__}.{name}"
        for suite in SUITES
        for name in dir(suite)
        if name.startswith("test") and clause_id(name) is None
    ]
    assert odd == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [("test_F31_replacing", "F-31"), ("test_SB1_x", "SB-1"), ("test_replacing", None), ("test_f31_x", None)],
)
def test_an_id_is_taken_from_the_name(name: str, expected: str | None) -> None:
    assert clause_id(name) == expected


def test_deviations_are_counted() -> None:
    """The number of deviations of each kind of world is as written here, and each names a clause that exists."""
    known = {clause.id for suite in SUITES for clause in clauses_of(suite)}
    deviations = read_deviations()
    assert {kind: len(reasons) for kind, reasons in deviations.items()} == DEVIATIONS
    for reasons in deviations.values():
        assert {clause.partition("[")[0] for clause in reasons} <= known


@pytest.mark.parametrize("text", ['[w]\n"F-1" = ""', '[w]\n"F-1" = 3', '"F-1" = "why"'])
def test_a_deviation_without_a_reason_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "d.toml").write_text(text)
    with pytest.raises(ValueError, match=r"d\.toml"):
        read_deviations(tmp_path / "d.toml")


@pytest.mark.parametrize(
    ("name", "kind"),
    [("local", "local"), ("docker://debian", "docker"), ("docker+attach://c", "docker"), ("", "")],
)
def test_the_kind_of_a_world_is_its_provider(name: str, kind: str) -> None:
    assert world_kind(name) == kind


def test_the_suites_name_no_provider() -> None:
    """A suite that knew a provider could not judge it."""
    for path in (REPOSITORY / "seams/execworld/seams/testing").glob("*.py"):
        imported = re.findall(r"^(?:from|import) (execworld[\w.]*)", path.read_text(), re.MULTILINE)
        assert [name for name in imported if not name.startswith("execworld.seams")] == []
