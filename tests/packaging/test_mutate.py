# SPDX-License-Identifier: Apache-2.0
"""scripts/mutate.py: which small changes it finds in a C file, and which it chooses."""

from __future__ import annotations

import pytest

from tests.support import ROOT, load_script

C = """/* if (a < b) */
static int f(int a, int b)
{
    /* a < b */
    if (a < b && b != 7)
        g(a);
    return a;
}
"""


@pytest.fixture
def mutate(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return load_script("scripts/mutate.py")


def test_each_kind_of_change_is_found(mutate):
    found = {(one.number, one.kind, one.after.strip()) for one in mutate.changes_of("f.c", C)}
    assert found == {
        (5, "relation", "if (a <= b && b != 7)"),
        (5, "relation", "if (a < b && b == 7)"),
        (5, "connective", "if (a < b || b != 7)"),
        (5, "off by one", "if (a < b && b != 8)"),
        (5, "branches", "if (!(a < b && b != 7))"),
        (6, "statement dropped", ";"),
        (7, "return value", "return 0;"),
    }


def test_a_seed_chooses_the_same_changes_in_every_room(mutate):
    known = {room: ["tests/native/test_timer.c"] for room in ("src/a", "src/b")}
    sources = {f"{room}/f.c": C for room in known}
    chosen = mutate.choose(sources, 6, 3, known)
    assert chosen == mutate.choose(sources, 6, 3, known)
    assert chosen != mutate.choose(sources, 6, 4, known)
    assert len(set(chosen)) == 6
    assert [one.path for one in chosen].count("src/a/f.c") == 3


def test_a_room_without_c_tests_is_left_out(mutate):
    known = {"src/a": ["tests/native/test_timer.c"], "src/b": ["tests/verbs"]}
    chosen = mutate.choose({"src/a/f.c": C, "src/b/f.c": C}, 4, 1, known)
    assert {one.path for one in chosen} == {"src/a/f.c"}


def test_survivors_stand_apart_from_what_was_noticed(mutate):
    first, second, *_ = mutate.changes_of("f.c", C)
    survivors, noticed = mutate.page(1, [(first, None), (second, "test_x")]).split("## Noticed")
    assert str(first) in survivors
    assert str(second) in noticed
    assert "(by test_x)" in noticed
