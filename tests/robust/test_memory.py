# SPDX-License-Identifier: Apache-2.0
"""A process whose memory runs out: its connections go on, or it alone is killed."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.robust.conftest import StartChild, connect
from tests.robust.test_conditions import carries_data
from tests.verbs.side import RemoteSide

MIB = 1 << 20
LIMIT, MORE = 64 * MIB, 256 * MIB  # of a control group, and what somebody writes in it
FOLDERS = {  # a control group's folder for memory, and its limit: version 2, version 1
    "": ("/sys/fs/cgroup", "memory.max"),
    "memory": ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
}


def own_groups() -> Iterator[tuple[Path, str]]:
    """This process's groups that may limit memory, each with the name of its limit."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, kind, path = line.split(":", 2)
        if kind in FOLDERS:
            root, limit = FOLDERS[kind]
            yield Path(root + path), limit


def limited_group(name: str) -> Path | None:
    for parent, limit in own_groups():
        group = parent / name
        with contextlib.suppress(OSError):
            group.mkdir()
            try:
                (group / limit).write_text(str(LIMIT))
                return group
            except OSError:
                group.rmdir()
    return None


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Path]:
    """A control group with little memory, removed after its processes: to be asked for first."""
    made = limited_group(f"verbena-{tmp_path.parent.name}-{tmp_path.name}")
    if made is None:
        pytest.skip(
            "no control group with a limit of memory can be made; run the tests as root, where"
            " /sys/fs/cgroup is writable"
        )
    yield made
    made.rmdir()


def forgets(side: RemoteSide) -> bool:
    """Whether no peer is left, once its death is noticed."""
    for _ in range(100):
        if not side.peers():
            return True
        time.sleep(0.05)
    return False


def touch(victim: RemoteSide, near: RemoteSide, kind: str) -> None:
    if kind == "own":
        victim.fill(bytes(MORE))
    else:
        victim.write(*near.region(), MORE)


@pytest.mark.parametrize("kind", ["own", "alloc"])
def test_a_process_that_is_killed_for_its_memory_takes_only_itself(
    group: Path, start_child: StartChild, kind: str
) -> None:
    """While it fills its own, or amid a WRITE to shared memory that it is the first to touch."""
    child, others = start_child(f"cgroup={group}"), [start_child(), start_child()]
    victim = child.make(kind=kind, nbytes=MORE)
    near, far = others[0].make(kind=kind, nbytes=MORE), others[1].make()
    connect(victim, near)
    near.post_recv()
    with pytest.raises((EOFError, ConnectionError)):
        touch(victim, near, kind)
    assert child.process.wait(30) == -9
    assert [one.status for one in near.wait()] == ["WR_FLUSH_ERR"]
    assert near.state() == "ERR"
    assert forgets(near)
    second = others[0].make()
    connect(second, far)
    carries_data(second, far)


@pytest.mark.not_sanitized("the shadow of AddressSanitizer takes address space itself")
def test_work_goes_on_where_there_is_no_space_for_more(start_child: StartChild) -> None:
    near, far = start_child().make(kind="own"), start_child().make(kind="own")
    connect(near, far)
    for room in range(MIB, 6 * MIB, MIB):
        assert near.work_without_space(room, *far.region()) == (errno.ENOMEM, ["SUCCESS"])
    carries_data(near, far)
