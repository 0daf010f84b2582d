# SPDX-License-Identifier: Apache-2.0
"""scripts/mutate.py: which small changes it finds in a C file, and which it chooses."""

from __future__ import annotations

from pathlib import Path

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
        (6, "statement dropped", "(void)0;"),
        (7, "return value", "return 0;"),
    }


def test_what_the_compiler_is_to_expect_stays(mutate):
    code = "int f(void)\n{\n    if (__builtin_expect(g(1), 0))\n        h(2);\n}\n"
    numbers = [one.after for one in mutate.changes_of("f.c", code) if one.kind == "off by one"]
    assert numbers == ["    if (__builtin_expect(g(2), 0))", "        h(3);"]


def test_code_for_another_machine_stays(mutate):
    names = {Path(path).name for path in mutate.sources_in(None, mutate.rooms.rooms())}
    assert len(names & {"crc32_arm.c", "crc32_x86.c"}) == 1


def test_a_seed_chooses_the_same_changes_in_every_room(mutate):
    known = {room: ["tests/native/test_timer.c"] for room in ("src/a", "src/b")}
    sources = {f"{room}/f.c": C for room in known}
    chosen = mutate.choose(sources, 6, 3, known)
    assert chosen == mutate.choose(sources, 6, 3, known)
    assert chosen != mutate.choose(sources, 6, 4, known)
    assert len(set(chosen)) == 6
    assert [one.path for one in chosen].count("src/a/f.c") == 3


def test_a_room_without_c_tests_is_changed_too(mutate):
    known = {"src/a": ["tests/native/test_timer.c"], "src/b": ["tests/verbs", "tests/x.py"]}
    chosen = mutate.choose({"src/a/f.c": C, "src/b/f.c": C}, 4, 1, known)
    assert {one.path for one in chosen} == {"src/a/f.c", "src/b/f.c"}
    assert mutate.python_tests_of("src/b", known) == ["tests/x.py", "tests/verbs"]
    assert mutate.programs_of("src/a", known) == ["test_timer"]


def test_tests_named_after_the_file_come_first(mutate):
    programs = ["test_causes", "test_srq_in_hand", "dropin/test_srq_resize", "test_keys"]
    ordered = mutate.likely_first(programs, "src/native/hca/srq.c")
    assert ordered == [*programs[1:3], programs[0], programs[3]]
    paths = mutate.pytest_paths("tests/sim", "src/native/sim/tcp_frame.c")
    assert paths[:2] == ["tests/sim/test_tcp.py", "tests/sim/test_tcp_export.py"]
    assert paths.index("tests/sim/test_cct.py") > 2
    assert not set(mutate.COMPILING_TESTS) & set(paths)
    assert all((ROOT / one).exists() for one in mutate.COMPILING_TESTS)
    assert mutate.pytest_paths("tests/sim/test_tcp.py", "x.c") == ["tests/sim/test_tcp.py"]
    assert mutate.pytest_paths("tests/*/test_tcp.py", "x.c") == ["tests/sim/test_tcp.py"]


def test_a_test_in_which_the_interpreter_ended_has_failed(mutate):
    said = "tests/a.py::test_x PASSED [ 1%]\ntests/a.py::test_y Fatal Python error: Aborted\n"
    assert mutate.failed_test_in(said) == "tests/a.py::test_y"
    said += "FAILED tests/b.py::test_z[1-2] - AssertionError: assert 1 == 2\n"
    assert mutate.failed_test_in(said) == "tests/b.py::test_z[1-2]"
    assert mutate.failed_test_in("") is None


def test_what_is_left_out_has_a_reason_and_is_not_chosen(mutate):
    (entry,) = mutate.left_out(
        '[[change]]\npath = "src/a/f.c"\nbefore = "return a;"\nafter = "return 0;"\nreason = "So."'
    )
    known = {"src/a": ["tests/native/test_timer.c"]}
    chosen = mutate.choose({"src/a/f.c": C}, 100, 1, known, [entry])
    assert {one.kind for one in chosen} == {"relation", "connective", "off by one", "branches"} | {
        "statement dropped"
    }
    assert str(entry) in mutate.page(1, [], [entry])


def test_each_entry_of_the_list_is_a_change_of_the_sources(mutate):
    for entry in mutate.left_out(mutate.LEFT_OUT.read_text()):
        changes = mutate.changes_of(entry.path, (ROOT / entry.path).read_text())
        assert any(mutate.is_left_out(one, [entry]) for one in changes), entry
        assert entry.reason.endswith(".")


def test_survivors_stand_apart_from_what_was_noticed(mutate):
    first, second, *_ = mutate.changes_of("f.c", C)
    survivors, noticed = mutate.page(1, [(first, None), (second, "test_x")]).split("## Noticed")
    assert str(first) in survivors
    assert str(second) in noticed
    assert "(by test_x)" in noticed


def test_a_run_can_be_for_single_rooms(mutate):
    everything = mutate.rooms.rooms()
    paths = mutate.sources_in(["src/native/lock"], everything)
    assert paths
    assert all(one.startswith("src/native/lock/") for one in paths)
    assert len(mutate.sources_in(None, everything)) > len(paths)
    with pytest.raises(SystemExit, match=r"No such room.*: src/native/nowhere"):
        mutate.sources_in(["src/native/nowhere"], everything)
