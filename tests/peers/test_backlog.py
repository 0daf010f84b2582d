# SPDX-License-Identifier: Apache-2.0
"""``Backlog`` alone, with handshakes that end when the test says so: who gets which connection."""

from __future__ import annotations

import asyncio
import errno
import gc
import weakref
from typing import Any

import pytest

from verbena.peers import PeerConnection
from verbena.peers.backlog import Asking, Backlog
from verbena.verbs import ConnectError, VerbsError


class Conn(PeerConnection):
    """A connection that only notes its end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.was_aborted = False

    def __repr__(self) -> str:
        return self.name

    def abort(self) -> None:
        self.was_aborted = True


class Peers:
    """A backlog with peers, named by letters; ``begun`` has the handshakes that have begun."""

    def __init__(self) -> None:
        self.backlog = Backlog()
        self.begun: dict[str, asyncio.Future[None]] = {}
        self.refused: list[str] = []
        self.conns: dict[str, Conn] = {}
        self._names: dict[int, str] = {}

    async def connect(self, asking: Asking) -> PeerConnection:
        name = self._names[id(asking)]
        self.begun[name] = asyncio.get_running_loop().create_future()
        await self.begun[name]
        return self.conns.setdefault(name, Conn(name))

    def ask(self, name: str) -> None:
        none: Any = None
        asking = Asking(none, none, lambda: self.refused.append(name))
        self._names[id(asking)] = name
        self.backlog.offer(asking)

    def accept(self) -> asyncio.Task[PeerConnection | None]:
        return asyncio.create_task(self.backlog.take(self.connect))

    async def cancelled_accept(self) -> None:
        accepting = self.accept()
        await settled()
        accepting.cancel()
        await settled()
        assert accepting.cancelled()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def given(accepting: asyncio.Task[PeerConnection | None]) -> str:
    async with asyncio.timeout(5):
        return repr(await accepting)


def test_a_handshake_goes_on_when_its_accept_is_cancelled() -> None:
    async def main() -> None:
        peers = Peers()
        peers.ask("a")
        await settled()
        assert not peers.begun, "nobody accepts"
        await peers.cancelled_accept()
        peers.begun["a"].set_result(None)
        await settled()
        assert await given(peers.accept()) == "a"

    asyncio.run(main())


@pytest.mark.parametrize("other_waits", [False, True])
def test_an_accept_that_is_cancelled_as_its_connection_is_made(other_waits: bool) -> None:
    """Whatever the moment is, the connection is that accept's or another's."""

    async def has_it(steps: int) -> bool:
        peers = Peers()
        accepting = peers.accept()
        peers.ask("a")
        await settled()
        other = peers.accept() if other_waits else None
        await settled()
        peers.begun["a"].set_result(None)
        for _ in range(steps):
            await asyncio.sleep(0)
        accepting.cancel()
        await asyncio.wait([accepting])
        if not accepting.cancelled():
            assert await given(accepting) == "a"
            return True
        assert await given(other or peers.accept()) == "a"
        return False

    found = [asyncio.run(has_it(steps)) for steps in range(8)]
    assert found == sorted(found)
    assert set(found) == {False, True}


def test_accepts_are_served_in_turn_and_connections_as_they_are_made() -> None:
    async def main() -> None:
        peers = Peers()
        accepts = [peers.accept() for _ in range(3)]
        for name in "abc":
            peers.ask(name)
        await settled()
        for name in "cab":
            peers.begun[name].set_result(None)
            await settled()
        assert [await given(each) for each in accepts] == ["c", "a", "b"]

    asyncio.run(main())


def test_no_more_handshakes_run_than_accepts_wait_and_have_left() -> None:
    async def main() -> None:
        peers = Peers()
        for name in "abcdef":
            peers.ask(name)
        await settled()
        assert not peers.begun
        for _ in range(2):
            await peers.cancelled_accept()
        assert list(peers.begun) == ["a", "b"]
        accepting = peers.accept()  # does not wait for those that were left
        await settled()
        assert list(peers.begun) == ["a", "b", "c"]
        peers.begun["c"].set_result(None)
        assert await given(accepting) == "c"
        for name in "ab":
            peers.begun[name].set_result(None)
        await settled()
        assert list(peers.begun) == ["a", "b", "c"], "nobody accepts"
        assert [await given(peers.accept()) for _ in "ab"] == ["a", "b"]
        assert list(peers.begun) == ["a", "b", "c"]
        last = peers.accept()
        await settled()
        assert list(peers.begun) == ["a", "b", "c", "d"]
        last.cancel()
        await settled()

    asyncio.run(main())


@pytest.mark.parametrize("error", [ConnectError(errno.ECONNRESET, "gone"), TimeoutError()])
def test_a_peer_that_gives_up_ends_no_accept(error: OSError) -> None:
    async def main() -> None:
        peers = Peers()
        await peers.cancelled_accept()
        accepting = peers.accept()
        for name in "ab":
            peers.ask(name)
        await settled()
        assert list(peers.begun) == ["a"]
        peers.begun["a"].set_exception(error)
        await settled()
        peers.begun["b"].set_result(None)
        assert await given(accepting) == "b"
        assert peers.refused == ["a"]

    asyncio.run(main())


@pytest.mark.parametrize("error", [VerbsError(errno.ENOMEM, "no memory"), RuntimeError("other")])
@pytest.mark.parametrize("is_left", [False, True])
def test_an_error_of_this_side_reaches_one_accept(error: Exception, is_left: bool) -> None:
    async def main() -> None:
        reported: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, said: reported.append(said))
        peers = Peers()
        accepting = peers.accept()
        for name in "ab":
            peers.ask(name)
        await settled()
        if is_left:
            accepting.cancel()
            await settled()
        peers.begun["a"].set_exception(error)
        await settled()
        if is_left:
            accepting = peers.accept()
        with pytest.raises(type(error)):
            await accepting
        accepting = peers.accept()
        await settled()
        peers.begun["b"].set_result(None)
        assert await given(accepting) == "b"
        await peers.cancelled_accept()
        peers.ask("c")
        peers.backlog.close()
        del peers, accepting
        gc.collect()
        await settled()
        assert reported == []

    asyncio.run(main())


def test_closing_ends_handshakes_and_connections_that_nobody_took() -> None:
    async def main() -> None:
        peers = Peers()
        for name in "abcd":
            peers.ask(name)
        for _ in range(3):
            await peers.cancelled_accept()
        peers.begun["a"].set_result(None)
        await settled()
        peers.begun["b"].set_result(None)
        await asyncio.sleep(0)  # it has ended, and nobody has heard of that
        peers.backlog.close()
        await settled()
        assert peers.conns["a"].was_aborted
        assert "b" not in peers.conns or peers.conns["b"].was_aborted
        assert {"c", "d"} <= set(peers.refused)
        assert await given(peers.accept()) == "None"

    asyncio.run(main())


def test_a_connection_that_comes_back_after_closing_is_ended() -> None:
    async def main() -> None:
        peers = Peers()
        accepting = peers.accept()
        peers.ask("a")
        await settled()
        peers.begun["a"].set_result(None)
        while not peers.conns:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        peers.backlog.close()
        accepting.cancel()
        await asyncio.wait([accepting])
        assert not accepting.cancelled() or peers.conns["a"].was_aborted

    asyncio.run(main())


def test_accepts_take_what_is_made_after_the_end() -> None:
    """As when the agent ends: connections go on, and no more come."""

    async def main() -> None:
        peers = Peers()
        for name in "abc":
            peers.ask(name)
        for _ in range(2):
            await peers.cancelled_accept()
        peers.begun["a"].set_result(None)
        await settled()
        peers.backlog.end()
        assert peers.refused == ["c"]
        assert await given(peers.accept()) == "a"
        assert await given(peers.accept()) == "None"
        peers.begun["b"].set_result(None)
        await settled()
        assert await given(peers.accept()) == "b"

    asyncio.run(main())


def test_a_peer_that_asks_after_the_end_is_refused() -> None:
    async def main() -> None:
        peers = Peers()
        peers.backlog.end()
        peers.ask("a")
        assert peers.refused == ["a"]
        assert not peers.backlog.has_asking

    asyncio.run(main())


def test_an_error_that_was_raised_is_not_kept() -> None:
    """No cycle of references keeps it, and with it the loop, until the collector runs."""

    async def fail(_: Asking) -> PeerConnection:
        raise VerbsError(errno.ENOMEM, "no memory")

    async def main() -> None:
        peers = Peers()
        peers.ask("a")
        try:
            await peers.backlog.take(fail)
        except VerbsError as error:
            found = weakref.ref(error)
        await settled()
        assert found() is None

    gc.collect()
    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()


def test_the_end_of_the_loop_begins_no_handshake() -> None:
    reported: list[Any] = []
    peers: list[Peers] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, said: reported.append(said))
        peers.append(Peers())
        peers[0].ask("a")
        peers[0].ask("b")
        peers[0].accept()
        await settled()

    asyncio.run(main())
    gc.collect()
    assert list(peers[0].begun) == ["a"]
    assert peers[0].refused == ["a"]
    assert reported == []
