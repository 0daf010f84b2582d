# SPDX-License-Identifier: Apache-2.0
"""The table of docs/development.md that says which tests to run after a change."""

from __future__ import annotations

import pytest

from tests.support import ROOT, load_script

TABLE = load_script("scripts/rooms.py").rooms()
PARTS = ("src/native", "src/verbena")


def folders() -> set[str]:
    """Every folder of sources that a reader would call a room."""
    found = {
        str(path.relative_to(ROOT))
        for part in PARTS
        for path in (ROOT / part).iterdir()
        if path.is_dir()
        and any(path.glob("**/*.[chp]*"))
        and path.name not in ("lib", "__pycache__")
    }
    return found | {"src/verbena"}


def test_every_room_is_in_the_table_and_no_other() -> None:
    assert set(TABLE) == folders()


@pytest.mark.parametrize(
    ("room", "pattern"), [(room, one) for room, tests in TABLE.items() for one in tests]
)
def test_every_path_exists(room: str, pattern: str) -> None:
    assert any(ROOT.glob(pattern)), f"{room}: nothing is at {pattern}"


def test_every_c_test_is_in_the_table() -> None:
    listed = {path for tests in TABLE.values() for one in tests for path in ROOT.glob(one)}
    assert set((ROOT / "tests" / "native").rglob("test_*.c")) <= listed


def test_a_file_belongs_to_its_innermost_room() -> None:
    room_of = load_script("scripts/rooms.py").room_of
    assert room_of("src/native/roce/reuseport.c", TABLE) == "src/native/roce"
    assert room_of("src/native/port/gid.c", TABLE) == "src/native/port"
    with pytest.raises(LookupError, match="add its row"):
        room_of("src/other/x.c", TABLE)
