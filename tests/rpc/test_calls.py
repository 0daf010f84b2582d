# SPDX-License-Identifier: Apache-2.0
"""Calls of verbena.rpc without streams: arguments, results, errors, deadlines, strategies."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import numpy as np
import pytest

import verbena
from tests.rpc.conftest import Sample, Together, live, quiet, target_of
from verbena import rpc
from verbena.peers import PeerError
from verbena.rpc.frames import FrameKind
from verbena.rpc.link import Link

SIZES = [0, 1, 63, 200, 3000, 4096, 4097, 5000, 20_000, 300_000, (2 << 20) + 3]
REQUESTS = ["auto", "inline", "ring", "rendezvous", "datagram"]
RESPONSES = ["auto", "inline", "write", "rendezvous"]


def test_arguments_by_place_and_by_name(together: Together) -> None:
    async def side(client: rpc.Client) -> list[int]:
        return [
            await client.add(1, 2),
            await client.add(1),
            await client.add(b=5, a=1),
            await client.add(1, b=6),
        ]

    assert together(side) == [3, 4, 6, 7]


@pytest.mark.parametrize("request_way", REQUESTS)
@pytest.mark.parametrize("response_way", RESPONSES)
def test_any_size_by_any_strategy(together: Together, request_way: str, response_way: str) -> None:
    plan = rpc.Strategies(request_way, response_way)

    async def side(client: rpc.Client) -> None:
        for size in SIZES:
            data = np.random.default_rng(size).bytes(size)
            for _ in range(2):  # the second response knows how large it is
                assert await client.echo(data) == data
                assert bytes(await client.turn(np.frombuffer(data, "u1"))) == data[::-1]
                assert await client.late(data) == data
        await quiet(client)

    together(side, {"strategies": plan}, strategies=plan)


def test_a_call_without_items_in_a_loop(
    together: Together, recwarn: pytest.WarningsRecorder
) -> None:
    """It says what to write; Python adds no warning about a coroutine that nobody awaited."""

    async def side(client: rpc.Client) -> int:
        with pytest.raises(TypeError, match=r"one result: await client\.add\(…\), and not async"):
            async for _ in client.add(1, 2):
                pass
        never = client.add(1, 2)
        never.close()
        del never
        gc.collect()
        return await asyncio.create_task(client.add(1, 2))

    assert together(side) == 3
    assert not [each for each in recwarn if "never awaited" in str(each.message)]


def test_errors_say_what_is_wrong(together: Together) -> None:
    async def side(client: rpc.Client) -> list[str]:
        said = []
        for call, error in (
            (lambda: client.nothing(), rpc.NoSuchMethod),
            (lambda: client.add("x"), rpc.WrongArguments),
            (lambda: client.add(1, 2, 3), rpc.WrongArguments),
            (lambda: client.add(c=1), rpc.WrongArguments),
            (lambda: client.add(object()), rpc.WrongArguments),
            (lambda: client.turn(), rpc.WrongArguments),
            (lambda: client.fail("why"), rpc.RemoteFailure),
            (lambda: client.unsendable(), rpc.RemoteFailure),
        ):
            with pytest.raises(error) as caught:
                await call()
            said.append(str(caught.value))
        assert not target_of(client).ran
        assert await client.add(1, 1) == 2
        return said

    said = together(side)
    assert "Sample has no method 'nothing'; it has add," in said[0]
    assert said[1] == "add: Expected `int`, got `str` - at `a`"
    assert "the parameters are (a, b)" in said[2]
    assert "no parameter 'c'; they are (a, b)" in said[3]
    assert said[6] == "KeyError: 'why'"
    assert said[7].startswith("TypeError: Encoding objects of type object")


def test_too_large_is_refused(together: Together) -> None:
    together(_too_large, {"max_message": 100_000}, max_message=9000)


async def _too_large(client: rpc.Client) -> None:
    for call in (client.echo, client.turn):
        with pytest.raises(rpc.MessageTooLarge, match="more than the 100000"):
            await call(bytes(100_001))
        with pytest.raises(rpc.MessageTooLarge, match="more than the 9000"):
            await call(bytes(9_100))
        assert len(await call(bytes(8_000))) == 8_000
    await quiet(client)


def test_deadlines(together: Together) -> None:
    """The call fails here in time, and the method is cancelled there."""

    async def side(client: rpc.Client) -> tuple[float, list[str]]:
        begin = asyncio.get_running_loop().time()
        with pytest.raises(rpc.DeadlinePassed):
            await client.within(0.05).held("late")
        with pytest.raises(TimeoutError):
            await client.held("default")
        took = asyncio.get_running_loop().time() - begin
        await quiet(client)
        return took, target_of(client).stopped

    took, stopped = together(side, timeout=0.05)
    assert 0.1 <= took < 5
    assert stopped == ["late", "default"]


def test_the_server_keeps_the_deadline_by_itself(together: Together) -> None:
    """A client that does not say that it has given up changes nothing."""

    async def side(client: rpc.Client) -> list[str]:
        send = client._link.send

        def mute(kind: int, *rest: Any) -> None:
            if kind != FrameKind.CANCEL:
                send(kind, *rest)

        client._link.send = mute  # type: ignore[method-assign]
        with pytest.raises(rpc.DeadlinePassed):
            await client.within(0.05).held("late")
        await quiet(client)
        return target_of(client).stopped

    assert together(side) == ["late"]


def test_what_a_method_keeps_of_large_arguments_stays() -> None:
    @rpc.service
    class Keeper:
        def __init__(self) -> None:
            self.kept: list[memoryview] = []

        def keep(self, parts: list[memoryview]) -> int:
            self.kept += parts
            return len(self.kept)

    async def main() -> None:
        keeper = Keeper()

        async def side(client: rpc.Client) -> None:
            for number in range(6):
                assert await client.keep([bytes([number]) * 50_000]) == number + 1

        await live(keeper, side, {"via": "socket"}, {"via": "socket"})
        assert [bytes(each) for each in keeper.kept] == [bytes([n]) * 50_000 for n in range(6)]

    asyncio.run(main())


def test_a_client_that_speaks_before_the_server_is_ready_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admitted = rpc.RpcServer._admit

    async def late(server: rpc.RpcServer, accept: Any) -> None:
        async def slow(plan: Any, hello: Any) -> Any:
            transport = await accept(plan, hello)
            await asyncio.sleep(0.1)
            return transport

        await admitted(server, slow)

    async def side(client: rpc.Client) -> int:
        return int(await client.add(1, 2))

    async def main() -> int:
        return int(await live(Sample(), side, {"via": "socket"}, {"via": "socket"}))

    monkeypatch.setattr(rpc.RpcServer, "_admit", late)
    assert asyncio.run(main()) == 3


def test_a_method_knows_its_deadline_and_hands_it_on() -> None:
    @rpc.service
    class Front:
        def __init__(self) -> None:
            self.behind: Any = None

        async def ask(self) -> list[float | None]:
            return [await self.behind.left(), await self.behind.within(60).left()]

    async def main() -> list[float | None]:
        front = Front()
        async with (
            rpc.serve(Sample(), "127.0.0.1:0", via="socket") as behind,
            rpc.connect(f"127.0.0.1:{behind.port}", via="socket") as client,
            rpc.serve(front, "127.0.0.1:0", via="socket") as server,
            rpc.connect(f"127.0.0.1:{server.port}", via="socket") as caller,
        ):
            front.behind = client
            within: list[float | None] = await caller.within(20).ask()
            without: list[float | None] = await caller.ask()
            return [*within, *without]

    first, second, third, fourth = asyncio.run(main())
    assert third is None
    assert first is not None
    assert second is not None
    assert fourth is not None
    assert 10 < first <= 20
    assert 10 < second <= 20  # not 60: the outer deadline comes first
    assert 50 < fourth <= 60


@pytest.mark.parametrize("request_way", ["inline", "ring", "datagram"])
def test_calls_beyond_the_limit_wait(together: Together, request_way: str) -> None:
    """A client has four calls under way; the server never sees a fifth."""

    async def side(client: rpc.Client) -> tuple[int, list[str]]:
        target = target_of(client)
        tasks = [asyncio.create_task(client.held(str(number))) for number in range(20)]
        await asyncio.sleep(0.1)
        begun = len(target.ran)
        target.gate.set()
        return begun, await asyncio.gather(*tasks)

    plan = rpc.Strategies(request_way)
    begun, names = together(side, {"calls": 4}, strategies=plan)
    assert begun == 4
    assert names == [str(number) for number in range(20)]


def test_frames_beyond_the_credits_wait(together: Together) -> None:
    async def side(client: rpc.Client) -> bool:
        data = [bytes([number]) * 3000 for number in range(64)]
        return await asyncio.gather(*map(client.late, data)) == data

    assert together(side, {"slots": 2, "calls": 64}, slots=2)


def test_pickle_only_if_the_server_accepts_it(together: Together) -> None:
    async def side(client: rpc.Client) -> int:
        with pytest.raises(rpc.WrongArguments, match="Expected `int`, got `str` - at `a`"):
            await client.add("1")
        return int(await client.add(1, 2))

    assert together(side, {"pickle": True}, codec="pickle") == 3
    with pytest.raises(rpc.RpcError, match="pickle=True"):
        together(side, codec="pickle")


def test_a_deadline_is_a_number() -> None:
    async def side(client: rpc.Client) -> Any:
        with pytest.raises(TypeError, match="within is a number of seconds, 0 or more, or None"):
            client.within("3")  # type: ignore[arg-type]
        for wrong in (-1, -0.001, float("nan")):
            with pytest.raises(ValueError, match="0 or more, or None, and not"):
                client.within(wrong)
        return await client.within(None).add(1)

    assert asyncio.run(live(Sample(), side, {}, {})) == 4


@pytest.mark.parametrize("seconds", [1e10, 1e300, 10**400])
def test_a_deadline_beyond_all_times_is_none(seconds: float, together: Together) -> None:
    async def side(client: rpc.Client) -> Any:
        return await client.within(seconds).add(1), await client.add(2)

    assert together(side, timeout=seconds) == (4, 5)


def test_what_cannot_be_given() -> None:
    async def side(client: rpc.Client) -> Any:
        with pytest.raises(rpc.WrongArguments, match="'a' is given twice"):
            await client.add(1, a=2)
        for wrong in ("x", None, True):
            with pytest.raises(TypeError, match="nbytes is a whole number"):
                client.explain(wrong)  # type: ignore[arg-type]
        return await client.add(1)

    async def serve_a_class() -> None:
        await rpc.serve(Sample, "127.0.0.1:0")

    assert asyncio.run(live(Sample(), side, {}, {})) == 4
    with pytest.raises(TypeError, match=r"give an object of Sample: rpc\.serve\(Sample\(\)"):
        asyncio.run(serve_a_class())


def test_a_server_closes_in_a_number_of_seconds() -> None:
    async def side(client: rpc.Client) -> Any:
        server = client.__dict__["server"]
        for wrong in (-1, float("nan")):
            with pytest.raises(ValueError, match="grace is a number of seconds, 0 or more"):
                await server.close(wrong)
        with pytest.raises(TypeError, match="grace is a number of seconds"):
            await server.close("x")
        return await client.add(1)

    assert asyncio.run(live(Sample(), side, {}, {})) == 4


def test_a_client_without_the_class(together: Together) -> None:
    async def side(client: rpc.Client) -> list[Any]:
        return [await client.add(1), await client.echo(b"x"), dir(client).count("held")]

    assert together(side) == [4, b"x", 1]


@pytest.mark.parametrize("receives", ["shared", "own"])
@pytest.mark.parametrize("request_way", ["inline", "ring", "datagram"])
def test_many_clients(receives: str, request_way: str) -> None:
    count = 20

    async def main() -> None:
        options: Any = {"via": "socket", "strategies": rpc.Strategies(request_way)}
        async with rpc.serve(Sample(), "127.0.0.1:0", via="socket", receives=receives) as server:
            address = f"127.0.0.1:{server.port}"
            clients = [await rpc.connect(address, Sample, **options) for _ in range(count)]
            for _ in range(5):
                sums = await asyncio.gather(
                    *(client.add(number, 1) for number, client in enumerate(clients))
                )
                assert sums == [number + 1 for number in range(count)]
            assert len(server.clients) == count
            for client in clients[::2]:
                await client.close()
            assert await clients[1].add(1, 2) == 3
            async with asyncio.timeout(5):
                while len(server.clients) > count // 2:
                    await asyncio.sleep(0.01)
            for client in clients[1::2]:
                await client.close()

    asyncio.run(main())


def test_messages_and_calls_do_not_meet() -> None:
    """verbena.connect and rpc.serve, and the other way round, refuse each other."""

    async def main(via: Any) -> None:
        async with rpc.serve(Sample(), "127.0.0.1:0", via=via) as server:
            with pytest.raises(PeerError, match=r"verbena\.rpc\.connect"):
                await verbena.connect(f"127.0.0.1:{server.port}", via=via)
        async with verbena.listen("127.0.0.1:0", via=via) as listener:
            with pytest.raises(PeerError, match=r"verbena\.rpc\.serve"):
                await rpc.connect(f"127.0.0.1:{listener.port}", via=via)

    for via in ("cm", "socket"):
        asyncio.run(main(via))


@pytest.mark.parametrize("slot_size", [64, 100, 511, 4095])
def test_slots_of_any_size(slot_size: int) -> None:
    async def side() -> None:
        options: Any = {"via": "socket", "slot_size": slot_size}
        async with rpc.serve(Sample(), "127.0.0.1:0", **options) as server:
            address = f"127.0.0.1:{server.port}"
            ring = rpc.Strategies("ring")
            async with rpc.connect(address, strategies=ring, **options) as client:
                (reader,) = server._guests.values()
                assert reader.station.rings[reader.link].size % 8 == 0
                for length in (0, 1, 7, 8, 31, 32, 33, slot_size - 41, slot_size, 5000):
                    data = bytes(range(256)) * 20
                    assert await client.turn(data[:length]) == data[:length][::-1]

    asyncio.run(side())


def test_explain_says_which_strategy_and_why(together: Together) -> None:
    async def side(client: rpc.Client) -> list[str]:
        return [client.explain(64), client.explain(1 << 20)]

    small, large = together(side, strategies=rpc.Strategies("ring"))
    assert small.startswith("ring, as it was chosen: a WRITE into a slot")
    assert large.startswith("rendezvous, since 'ring' cannot carry 1048576 bytes here: ")
    with pytest.raises(ValueError, match="request is one of auto, inline, ring"):
        rpc.Strategies("pigeon")


RESPONSE_FORMS = {
    "auto": (
        "inline, since one SEND carries ",
        "inline, since it has at most inline_most=16384 bytes: ",
        "rendezvous, since it has more than inline_most=16384 bytes: ",
    ),
    "inline": ("inline, as the server chose it: ",) * 3,
    "write": (
        "inline, since one SEND carries ",
        "rendezvous, since the request names no memory for as much: ",
        "rendezvous, since the request names no memory for as much: ",
    ),
    "rendezvous": ("rendezvous, as the server chose it: ",) * 3,
}


@pytest.mark.parametrize("chosen", RESPONSE_FORMS)
def test_explain_says_how_a_response_travels(together: Together, chosen: str) -> None:
    """By the server's strategies; the client has its own, which do not matter."""

    async def side(client: rpc.Client) -> list[str]:
        sizes = (64, 10_000, 1 << 20)
        return [client.explain(0, response=True), *(client.explain(s, True) for s in sizes)]

    plan = rpc.Strategies("ring", chosen)
    nothing, *said = together(side, {"strategies": plan})
    assert nothing.startswith("inline, ")
    for each, expected in zip(said, RESPONSE_FORMS[chosen], strict=True):
        assert each.startswith(expected)
    later = "; later ones of the method: write, " + (
        "as the server chose it" if chosen == "write" else "since the request names memory for it"
    )
    written = {"auto": [False, False, True], "write": [False, True, True]}
    assert [later in each for each in said] == written.get(chosen, [False] * 3)


def test_explain_says_that_requests_name_memory_for_their_responses(together: Together) -> None:
    async def side(client: rpc.Client) -> list[str]:
        return [client.explain(size, response=True) for size in (64, 10_000)]

    served = {"strategies": rpc.Strategies(response="write")}
    small, large = together(side, served, strategies=rpc.Strategies(response="write"))
    assert small.startswith("write, as the server chose it: a WRITE into memory")
    assert large.startswith("rendezvous, since the request names no memory for as much: ")
    assert "; later ones of the method: write, as the server chose it" in large


def test_explain_says_that_the_answer_to_a_datagram_is_one(together: Together) -> None:
    async def side(client: rpc.Client) -> list[str]:
        return [client.explain(size, response=True) for size in (64, 10_000)]

    small, large = together(side, strategies=rpc.Strategies("datagram"))
    assert small.startswith("datagram, as the answer to one: a UD SEND")
    assert large.startswith("inline, since it has at most")


@pytest.mark.parametrize("chosen", RESPONSE_FORMS)
def test_a_small_response_travels_as_it_was_chosen(
    chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one of a method that runs at once and returns bytes, which has a short path."""
    used: list[str] = []
    for name in ("send_fetch", "send_written"):
        plain = getattr(Link, name)

        def send(link: Link, *given: Any, name: str = name, plain: Any = plain) -> None:
            used.append(name)
            plain(link, *given)

        monkeypatch.setattr(Link, name, send)

    async def side(client: rpc.Client) -> None:
        assert await client.echo(b"small") == b"small"
        assert await client.late(b"small") == b"small"
        assert bytes(await client.turn(b"small")) == b"llams"

    plan = rpc.Strategies(response=chosen)
    options: Any = {"via": "socket", "strategies": plan}
    asyncio.run(live(Sample(), side, options, options))
    expected = {"rendezvous": ["send_fetch"] * 3, "write": ["send_written"] * 3}
    assert used == expected.get(chosen, [])


@pytest.mark.parametrize("size", [5000, 15_000, 20_000])
def test_a_response_is_written_from_the_size_on_from_which_it_is_faster(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A WRITE of 8 KiB took three times as long as sending it inline."""
    used: list[int] = []
    plain = Link.send_written

    def send(link: Link, *given: Any) -> None:
        used.append(size)
        plain(link, *given)

    monkeypatch.setattr(Link, "send_written", send)

    async def side(client: rpc.Client) -> None:
        for _ in range(3):
            assert await client.echo(bytes(size)) == bytes(size)

    options: Any = {"via": "socket"}
    asyncio.run(live(Sample(), side, options, options))
    assert len(used) == (2 if size > 16 << 10 else 0)


def test_a_result_stays_as_it_is_while_a_view_of_it_lives(together: Together) -> None:
    """The memory of a large raw result is used again when no view of it is left."""

    async def side(client: rpc.Client) -> None:
        views = [await client.turn(bytes([number]) * 50_000) for number in range(10)]
        for number, view in enumerate(views):
            assert bytes(view) == bytes([number]) * 50_000
        del views, view
        for _ in range(10):
            await client.turn(bytes(50_000))
        assert sum(map(len, client._link.pool._free.values())) <= 12

    together(side)


def test_an_idle_connection_takes_no_processor_time() -> None:
    async def main() -> float:
        async def idle(client: rpc.Client) -> float:
            import time

            await client.add(1)
            await asyncio.sleep(0.2)
            begin = time.process_time()
            await asyncio.sleep(1)
            return time.process_time() - begin

        return float(await live(Sample(), idle, {"via": "socket"}, {"via": "socket"}))

    assert asyncio.run(main()) < 0.1
