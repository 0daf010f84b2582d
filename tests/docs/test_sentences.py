# SPDX-License-Identifier: Apache-2.0
"""sentences.toml has all checks: what is made of it is current, mistakes in it are told."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.support import load_script
from verbena.verbs import WCStatus

ADDED_TO_KEYS = {"LOCAL", "RECV"}


def generator() -> ModuleType:
    return load_script("src/native/hca/sentences.py")


def table(folder: Path, says: str, parts: str = "") -> object:
    """A table of one check with this sentence."""
    path = folder / "sentences.toml"
    path.write_text(
        f'[facts]\ncount = "e->count"\n[parts]\n{parts}\n[other]\n'
        "[BIND]\n[HEARD]\n[SILENCE]\n[LOST]\n"
        f'[check.ONE]\nabout = "one"\nsays = "{says}"\n'
    )
    return generator().Table(path)


def test_every_check_has_a_sentence_and_statuses_that_exist() -> None:
    checks = generator().Table().checks
    assert {name for name, check in checks.items() if "says" not in check} == ADDED_TO_KEYS
    for name in checks.keys() - ADDED_TO_KEYS:
        assert set(checks[name]["status"]) <= set(WCStatus.__members__), name


def test_the_numbers_of_checks_are_unique_and_leave_the_bits_that_are_added_to_keys() -> None:
    numbers = generator().Table().values()
    assert len(set(numbers.values())) == len(numbers)
    assert [numbers[name] for name in ("KEY", "PD", "RANGE", "ACCESS")] == [1, 2, 3, 4]
    assert (numbers["LOCAL"], numbers["RECV"], numbers["QP_ACCESS"]) == (0x10, 0x20, 0x40)


def test_conditions_within_each_other_become_pieces(tmp_path: Path) -> None:
    made = table(tmp_path, "a{if count}{part:b}{else}c{if count}never{end}{end}{key:x}", 'b = "B"')
    pieces = made.pieces(made.checks["ONE"]["says"])  # type: ignore[attr-defined]
    yes = frozenset({"count"})
    none: frozenset[str] = frozenset()
    assert [(piece.yes, piece.no, piece.text) for piece in pieces] == [
        (none, none, "a"),
        (yes, none, "B"),
        (none, yes, "c"),
        (none, none, "{key:x}"),
    ]


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ("{if nothing}a{end}", "nothing is no fact"),
        ("{if count}a", "has no {end}"),
        ("a{end}", "without an {if}"),
        ("{else}a", "without an {if}"),
        ("{key:k}", "a brace"),
        ("{Key}", "a brace"),
        ("a { b", "a brace"),
        ("{part:none}", "none is no part"),
    ],
)
def test_a_mistake_in_a_sentence_is_told(tmp_path: Path, says: str, told: str) -> None:
    made = table(tmp_path, says)
    with pytest.raises(ValueError, match=told):
        made.pieces(says)  # type: ignore[attr-defined]
