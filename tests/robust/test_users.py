# SPDX-License-Identifier: Apache-2.0
"""Two users on one host do not reach each other; two processes of one user without rights do."""

from __future__ import annotations

import time

import pytest

from tests.robust.conftest import ROOT_ONLY, StartChild, connect

pytestmark = ROOT_ONLY
ONE, OTHER = "user=65534", "user=65533"


@pytest.mark.parametrize("users", [(ONE, OTHER), (ONE, "root"), ("root", ONE)], ids="-".join)
def test_users_do_not_meet(start_child: StartChild, users: tuple[str, str]) -> None:
    children = [start_child(*([] if user == "root" else [user])) for user in users]
    near, far = (child.make() for child in children)
    far.fill(b"mine")
    connect(near, far, timeout=12, retry_cnt=1)
    start = time.monotonic()
    near.write(*far.region(), 4)
    (one,) = near.wait()
    assert one.status == "RETRY_EXC_ERR"
    assert time.monotonic() - start < 5
    assert near.peers() == far.peers() == []
    assert far.bytes_at(0, 4) == b"mine"


def test_a_stranger_disturbs_nobody(start_child: StartChild) -> None:
    near, far = start_child(ONE).make(), start_child(ONE).make()
    stranger = start_child(OTHER).make()
    connect(near, far)
    stranger.connect(far.info(), timeout=8, retry_cnt=1)
    stranger.write(*far.region(), 4)
    assert [one.status for one in stranger.wait()] == ["RETRY_EXC_ERR"]
    near.write(*far.region(), 4)
    assert [one.status for one in near.wait()] == ["SUCCESS"]
    assert (near.state(), far.state()) == ("RTS", "RTS")


@pytest.mark.parametrize("kind", ["alloc", "own"])
def test_a_user_without_rights_reaches_its_own_processes(
    start_child: StartChild, kind: str
) -> None:
    near, far = start_child(ONE).make(kind=kind), start_child(ONE).make(kind=kind)
    connect(near, far)
    near.fill(b"to myself")
    near.write(*far.region(), 9)
    assert [one.status for one in near.wait()] == ["SUCCESS"]
    assert far.bytes_at(0, 9) == b"to myself"
    assert near.peers()[0]["own_memory"] == "cross-process copy"


def test_a_process_that_lets_nobody_look_into_it_is_helped(start_child: StartChild) -> None:
    near, far = start_child(ONE).make(kind="own"), start_child(ONE, "undumpable").make(kind="own")
    connect(near, far)
    near.fill(b"through the ring")
    near.write(*far.region(), 16)
    assert [one.text for one in near.wait()] == [""]
    assert far.bytes_at(0, 16) == b"through the ring"
    assert near.peers()[0]["own_memory"] == "bounce ring"
