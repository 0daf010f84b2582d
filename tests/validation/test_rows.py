# SPDX-License-Identifier: Apache-2.0
"""The quick rows of the validation as tests; and the judge, and the page."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.validation import __main__ as command
from tests.validation.page import Result, is_as_known, merged, number, page, section, word
from tests.validation.row import (
    Figure,
    Row,
    Scope,
    around,
    at_least,
    at_most,
    between,
    equal,
    holds,
    near,
)
from tests.validation.rows import rows

QUICK = [row for row in rows() if row.quick]
LAWS, RESULTS = range(1, 27), range(1, 19)


@pytest.mark.parametrize("row", QUICK, ids=lambda row: row.number)
def test_law(row: Row) -> None:
    figures = list(row.measure(Scope(quick=True)))
    wrong = [f"{f.what}: {f.measured:.6g}, and not {f.rule}" for f in figures if not f.passed]
    assert figures
    assert not wrong


@pytest.mark.parametrize(
    ("figure", "passed"),
    [
        (near("", 1.02, 1.0, 0.02), True),
        (near("", 1.03, 1.0, 0.02), False),
        (near("", 0.97, 1.0, 0.02), False),
        (near("", -1.0, 1.0, 0.02), False),
        (near("", float("nan"), 1.0, 0.02), False),
        (around("", 0.01, 0.0, 0.01), True),
        (around("", 0.02, 0.0, 0.01), False),
        (equal("", 1, 0), False),
        (equal("", 0, 0), True),
        (at_least("", 0.9, 1.0), False),
        (at_most("", 1.1, 1.0), False),
        (between("", 3.0, 1.0, 2.0), False),
        (holds("", False), False),
        (holds("", True), True),
    ],
)
def test_a_figure_is_judged(figure: Figure, passed: bool) -> None:
    assert figure.passed is passed


def made(measure: Callable[[Scope], object], seconds: float = 60.0) -> Row:
    return Row("V3", "Title", "Set-up", "law", "breaks", "Meaning.", measure, seconds=seconds)


def test_a_row_that_failed_says_so_on_the_page() -> None:
    row = made(lambda scope: ())
    good, bad = near("good", 1.0, 1.0), near("bad", 2.0, 1.0)
    assert "**FAIL**" not in section(row, Result([good]))
    text = section(row, Result([good, bad], 1.0, "it took more than 60 s"))
    assert "| bad | 1 | within 2 % | 2 | 2 | **FAIL** |" in text
    assert "**Stopped**: it took more than 60 s" in text
    assert not Result([good, bad]).passed
    assert not Result([good], 1.0, "an error").passed
    assert not Result([]).passed


def test_a_known_disagreement_must_still_be_there() -> None:
    row = replace(made(lambda scope: ()), differs="because")
    good, bad = near("good", 1.0, 1.0), near("bad", 2.0, 1.0)
    assert word(row, Result([good, bad])) == "differs"
    assert is_as_known(row, Result([good, bad]))
    assert not is_as_known(row, Result([good]))
    assert not is_as_known(row, Result([good, bad], 1.0, "an error"))
    assert not is_as_known(made(lambda scope: ()), Result([good, bad]))


def test_numbers_are_readable() -> None:
    assert [number(value, "B") for value in (20964, 0.125, 5371.037)] == [
        "20,964 B",
        "0.125 B",
        "5,371.04 B",
    ]


def test_every_row_is_measured() -> None:
    """V1 to V26 and P1 to P18, none twice; C rows as far as there are any."""
    known = [row.number for row in rows()]
    wanted = [f"V{n}" for n in LAWS] + [f"P{n}" for n in RESULTS]
    assert sorted(n for n in known if n[0] != "C") == sorted(wanted)
    assert len(set(known)) == len(known)


def test_what_a_row_refers_to_is_there() -> None:
    for row in rows():
        for path in re.findall(r"`((?:tests|docs)/[^`]+)`", row.tested + row.missing):
            assert (ROOT / path).exists(), f"{row.number}: {path}"


def test_the_page_is_of_these_rows() -> None:
    """Whatever was measured: each row stands there as it is defined now."""
    text = command.PAGE.read_text()
    for row in rows():
        for part in (f"### {row.number}: {row.title}\n", row.setup, row.expected, row.meaning):
            assert part in text, f"{row.number} has changed: make validate"


def test_a_row_that_hangs_or_breaks_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is ended, and the other rows' results stay."""
    monkeypatch.setattr(command.sys, "executable", "/bin/false")
    broken = command.measure(made(lambda scope: ()), seed=1)
    assert broken.problem == "exit status 1"
    monkeypatch.setattr(command, "words_of", lambda row, seed: ["sleep", "60"])
    hung = command.measure(made(lambda scope: (), seconds=0.2), seed=1)
    assert hung.problem == "it took more than 0.2 s"


@pytest.mark.timeout(300)
def test_one_row_by_the_command(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    words = [sys.executable, "-m", "tests.validation", "--only", "V2", "--page", str(path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=140)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"V2 pass  2/2 figures", done.stdout)
    assert not path.exists()  # a part is no page
    words[4] = "V99"
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=140)
    assert done.returncode == 2
    assert "no such row: V99" in done.stderr


def test_a_page_of_all_rows() -> None:
    results = {row.number: Result([near("x", 1.0, 1.0)], 1.0) for row in rows()}
    text = page(rows(), results, {"Seed": "1"})
    count = len(rows())
    assert f"with {count} of {count} figures as expected" in text
    assert text.count("\n### ") == count


def test_some_rows_merged_into_the_page() -> None:
    """The others stay as they are, the sums follow, and what is not there is asked for."""
    results = {row.number: Result([near("x", 1.0, 1.0)], 1.0) for row in rows()}
    old = page(rows(), results, {"Seed": "1"})
    assert merged(old, rows(), {}) == old
    changed = Result([near("x", 1.0, 1.0), near("other", 2.0, 1.0)], 3.0)
    new = merged(old, rows(), {"V3": changed})
    assert new == page(rows(), {**results, "V3": changed}, {"Seed": "1"})
    assert "| other |" in new
    gone = old.replace("### V4:", "### W4:")
    with pytest.raises(ValueError, match="V4 is not on the page"):
        merged(gone, rows(), {})
