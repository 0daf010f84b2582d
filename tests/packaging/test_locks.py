# SPDX-License-Identifier: Apache-2.0
"""Every lock of the sources is in the order of docs/locks.md, which names no other."""

from __future__ import annotations

import re

import pytest

from tests.support import ROOT, load_script

NATIVE = ROOT / "src" / "native"
LOCKS = load_script("src/native/lock/ranks.py").locks()
SOURCES = [path for path in NATIVE.rglob("*.[ch]") if path.parent.name not in ("abi", "lock")]


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_is_where_the_table_says(name: str) -> None:
    found = re.match(r"`(?:\w+\.)?(\w+)` \(`([\w/.]+)`\)$", LOCKS[name]["where"])
    assert found is not None
    assert re.search(rf"\b{found[1]}\b", (NATIVE / found[2]).read_text())


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_is_taken(name: str) -> None:
    assert any(f"VB_RANK_{name}" in path.read_text() for path in SOURCES)


def test_no_mutex_is_taken_without_its_rank() -> None:
    calls = re.compile(r"\bpthread_(?:mutex|spin)_\w*lock\(")
    found = [str(path.relative_to(NATIVE)) for path in SOURCES if calls.search(path.read_text())]
    assert not found


def test_locks_of_pthread_are_in_the_table() -> None:
    """A mutex is a struct vb_mutex, outside of the ABI's structures; one rwlock has its rank."""
    declared = re.compile(r"\bpthread_(?:mutex|rwlock|spinlock)_t\s+\w+")
    found = {str(path.relative_to(NATIVE)) for path in SOURCES if declared.search(path.read_text())}
    assert found == {"memory/watch.c"}
