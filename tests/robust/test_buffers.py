# SPDX-License-Identifier: Apache-2.0
"""A program takes a receive request's buffer away: sender and receiver agree on what became of it.

The same statuses whatever carries the message, how long it is, and whose memory the buffer is.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from tests.robust.conftest import StartChild, connect
from tests.support import own_network
from tests.verbs.side import RemoteSide
from verbena._native import sanitized

LENGTHS = [1, 29, 9000, 60000]  # in the completion, on the stage, and at once
ROOM = 65536
NO_COPIES = "deny=process_vm_readv,process_vm_writev"
BOTH_SUCCEED = ("SUCCESS", "SUCCESS")
BOTH_FAIL = ("REM_OP_ERR", "LOC_PROT_ERR")
CONFIGURATIONS = {
    "direct": ("direct", "own", False, ()),
    "direct, bounce ring": ("direct", "own", False, (NO_COPIES,)),
    "direct, bounce ring, SRQ": ("direct", "own", True, (NO_COPIES,)),
    "direct, watched": ("direct", "own", False, ("watched",)),
    "direct, watched, bounce ring": ("direct", "own", False, ("watched", NO_COPIES)),
    "direct, watched, SRQ": ("direct", "own", True, ("watched",)),
    "direct, shared heap": ("direct", "alloc", False, ()),
    "roce": ("roce", "own", False, ()),
    "roce, watched, SRQ": ("roce", "own", True, ("watched",)),
    "roce, shared heap": ("roce", "alloc", False, ()),
}


def statuses(side: RemoteSide) -> str:
    (one,) = side.wait()
    return str(one.status)


def send(near: RemoteSide, length: int, data: bytes) -> str:
    near.fill(data)
    near.send(length)
    return statuses(near)


def pattern(length: int) -> bytes:
    return bytes(1 + i % 250 for i in range(length))


def outcome(
    near: RemoteSide, far: RemoteSide, how: str, before: bool, length: int, kind: str
) -> tuple[str, str]:
    """How both ends' requests ended; a success has its bytes in the buffer."""
    data = pattern(length)
    far.map_buffer(ROOM, kind)
    far.receive_there(length)
    if before:
        far.change_buffer(how)
    sent = send(near, length, data)
    if not before:
        far.change_buffer(how)
    received = statuses(far)
    if received == "SUCCESS" and (how == "protect" or (how, kind) == ("deregister", "own")):
        assert far.read_buffer(length) == data
    if how == "protect":
        far.change_buffer("allow")
    return sent, received


@pytest.mark.parametrize("configuration", CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def test_both_ends_say_the_same(
    start_child: StartChild,
    monkeypatch: pytest.MonkeyPatch,
    configuration: tuple[str, str, bool, tuple[str, ...]],
) -> None:
    carrier, kind, srq, conditions = configuration
    monkeypatch.setenv("VERBENA_CARRIER", carrier)
    here = start_child(*conditions, prefix=own_network() if carrier == "roce" else ())
    there = here if carrier == "roce" else start_child(*conditions)
    changes = ["deregister", "protect", *(["unmap"] if kind == "own" else [])]
    for how, before, length in product(changes, [True, False], LENGTHS):
        near = here.make(kind="alloc", nbytes=ROOM)
        far = there.make(kind="alloc", srq=4 if srq else 0)
        connect(near, far)
        lost = before and (how == "deregister" or kind == "own")
        ends = outcome(near, far, how, before, length, kind)
        assert ends == (BOTH_FAIL if lost else BOTH_SUCCEED), (how, before, length)
        near.close()
        far.close()


# ---- memory goes by libc's own doing, or past libc ----


# AddressSanitizer's free() comes first, and gives nothing back.
GIVEN_BACK = [
    *([] if sanitized() else [("malloc", "free"), ("new", "delete")]),
    ("own", "system call"),
]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(("kind", "how"), GIVEN_BACK)
def test_under_verbena_run_both_ends_say_the_same(
    start_child: StartChild, kind: str, how: str, before: bool
) -> None:
    """What had arrived is a success of both, what comes later fails both."""
    here, there = start_child("watched"), start_child("watched")
    for length in LENGTHS:
        near, far = here.make(nbytes=ROOM), there.make()
        connect(near, far)
        far.map_buffer(BLOCK, kind)
        far.receive_there(length)
        if before:
            far.change_buffer(how)
        near.send(length)
        ends = [statuses(near)]
        if not before:
            far.change_buffer(how)
        ends.append(statuses(far))
        assert tuple(ends) == (BOTH_FAIL if before else BOTH_SUCCEED), length
        near.close()
        far.close()


# ---- memory goes, and nobody tells ----

BLOCK = 1 << 18  # libc maps a block of this size by itself
UNTOLD = [("own", "unmap"), ("own", "system call"), ("malloc", "free"), ("file", "shorten")]
UNWATCHED = {"cross-process copies": (), "bounce ring": (NO_COPIES,)}


def each_length(
    start_child: StartChild, conditions: tuple[str, ...], kind: str
) -> Iterator[tuple[int, RemoteSide, RemoteSide]]:
    """Each length with two sides for it; the far one has posted a receive request that long."""
    here, there = start_child(*conditions), start_child(*conditions)
    for length in LENGTHS:
        near, far = here.make(nbytes=ROOM), there.make()
        connect(near, far)
        far.map_buffer(BLOCK, kind)
        far.receive_there(length)
        yield length, near, far
        near.close()
        far.close()


@pytest.mark.parametrize("conditions", UNWATCHED.values(), ids=UNWATCHED.keys())
@pytest.mark.parametrize(("kind", "how"), UNTOLD)
def test_a_senders_success_means_that_the_bytes_are_there(
    start_child: StartChild, kind: str, how: str, conditions: tuple[str, ...]
) -> None:
    """Before the receiver polls, which it does when the memory has gone."""
    for length, near, far in each_length(start_child, conditions, kind):
        data = pattern(length)
        assert send(near, length, data) == "SUCCESS", length
        assert far.read_buffer(length) == data, length
        far.change_buffer(how)
        assert statuses(far) == "SUCCESS", length


@pytest.mark.parametrize("conditions", UNWATCHED.values(), ids=UNWATCHED.keys())
@pytest.mark.parametrize(("kind", "how"), UNTOLD)
def test_memory_goes_between_post_and_poll(
    start_child: StartChild, kind: str, how: str, conditions: tuple[str, ...]
) -> None:
    """Whichever comes first, the message or the end of the memory: both ends say the same."""
    for length, near, far in each_length(start_child, conditions, kind):
        near.send(length)
        far.change_buffer(how)
        received = statuses(far)
        assert (statuses(near), received) in (BOTH_SUCCEED, BOTH_FAIL), length


@pytest.mark.parametrize("conditions", UNWATCHED.values(), ids=UNWATCHED.keys())
@pytest.mark.parametrize(("kind", "how"), [one for one in UNTOLD if one[1] != "free"])
def test_memory_that_went_before_the_message_fails_both(
    start_child: StartChild, kind: str, how: str, conditions: tuple[str, ...]
) -> None:
    """The sender's request ends although the receiver does not poll yet."""
    for length, near, far in each_length(start_child, conditions, kind):
        far.change_buffer(how)
        near.send(length)
        assert (statuses(near), statuses(far)) == BOTH_FAIL, length
