# SPDX-License-Identifier: Apache-2.0
"""How connections of verbena.rpc end: killed processes, servers that close, wrong peers."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rpc.conftest import Sample, Together, target_of
from tests.support import own_network_or_skip
from verbena import rpc
from verbena.agent.client import describe_agent
from verbena.cm import ManagerEnded
from verbena.peers import PeerError
from verbena.rpc import client as client_module
from verbena.rpc import server as server_module
from verbena.rpc.frames import FRAME, FRAME_SIZE, FrameFlags, FrameKind

CHILD = str(Path(__file__).with_name("rpc_child.py"))
OVER_ROCE = pytest.mark.over_roce
WAYS = [pytest.param("cm", marks=OVER_ROCE), pytest.param("socket", marks=OVER_ROCE)]


def child(*words: str, stderr: int | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, CHILD, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)


def test_a_server_that_accepts_and_answers_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is stopped in between."""
    monkeypatch.setattr(server_module.RpcServer, "_first", lambda *given: None)
    monkeypatch.setattr(client_module, "CONNECT_SECONDS", 0.2)

    async def main() -> None:
        async with rpc.serve(Sample(), "127.0.0.1:0") as server:
            with pytest.raises(TimeoutError, match=r"not answered its first message within 0\.2 s"):
                await rpc.connect(f"127.0.0.1:{server.port}", timeout=5)

    asyncio.run(main())


@pytest.mark.parametrize("via", WAYS)
@pytest.mark.parametrize("receives", ["shared", "own"])
def test_a_server_that_has_no_memory_for_a_client(receives: Any, via: Any) -> None:
    """The client is told at once, and the server's program as well."""
    said: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: said.append(about))
        small = rpc.serve(Sample(), "127.0.0.1:0", slot_size=1 << 31, receives=receives, via=via)
        async with small as server:
            for _ in range(2):
                with pytest.raises(OSError, match=r"its program says why|see its error"):
                    await rpc.connect(f"127.0.0.1:{server.port}", via=via, timeout=5)

    asyncio.run(main())
    assert len(said) == 2
    for each in said:
        assert "could not take a client" in each["message"]
        assert "Cannot allocate memory" in each["message"]


@pytest.mark.parametrize("via", WAYS)
@pytest.mark.parametrize("method", ["split", "split_later"])
@pytest.mark.parametrize(("how", "status"), [("exit", 5), ("raise", 1), ("return", 1)])
def test_a_method_forks(how: str, status: int, method: str, via: Any) -> None:
    """The child ends, in whatever way it leaves the method, and the server goes on."""

    async def ended(client: rpc.Client) -> int:
        child_of_server = await getattr(client, method)(how)
        async with asyncio.timeout(20):
            while (status := await client.status(child_of_server)) < 0:
                data = os.urandom(20_000)
                assert await client.echo(data) == data
        return status

    async def main(port: int) -> list[int]:
        async with rpc.connect(f"127.0.0.1:{port}", via=via, timeout=20) as client:
            return [await ended(client) for _ in range(2)]

    with child("serve", via, stderr=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            assert asyncio.run(main(int(server.stdout.readline()))) == [status, status]
        finally:
            server.kill()
        said = server.communicate()[1].splitlines()
    assert len(said) < 100
    assert sum("came back to its parent's event loop" in line for line in said) == 2 * (status == 1)


def end_agent() -> None:
    described = describe_agent()
    assert described is not None
    os.kill(described["pid"], signal.SIGKILL)


async def added_by_another(address: str) -> int:
    """By a client that tries until the server listens again."""
    while True:
        try:
            async with rpc.connect(address, Sample, via="cm") as client:
                return await client.add(2, 2)
        except (ManagerEnded, PeerError, ConnectionError):
            await asyncio.sleep(0.05)


def test_an_agent_that_is_killed() -> None:
    """Clients stay, and more of them come by the next agent, which the server starts."""
    own_network_or_skip()

    async def main() -> None:
        async with asyncio.timeout(30), rpc.serve(Sample(), "127.0.0.1:0", via="cm") as server:
            address = f"127.0.0.1:{server.port}"
            async with rpc.connect(address, Sample, via="cm") as client:
                for _ in range(2):
                    end_agent()
                    assert await client.add(1, 2) == 3
                    assert await added_by_another(address) == 4
                assert await client.add(3, 2) == 5

    asyncio.run(main())


def test_an_agent_that_is_killed_and_a_port_that_another_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever waits for the server is told that no more clients come."""
    own_network_or_skip()

    async def refuse(*arguments: object) -> Any:
        raise OSError(errno.EADDRINUSE, "another listener has the port")

    async def main() -> None:
        async with asyncio.timeout(30), rpc.serve(Sample(), "127.0.0.1:0", via="cm") as server:
            address = f"127.0.0.1:{server.port}"
            async with rpc.connect(address, Sample, via="cm") as client:
                monkeypatch.setattr(server_module, "listen_for_peers", refuse)
                end_agent()
                with pytest.raises(OSError, match="another listener has the port"):
                    await server.wait_closed()
                assert await client.add(3, 2) == 5

    asyncio.run(main())


@pytest.mark.parametrize("via", [*WAYS, pytest.param("socket", id="direct")])
def test_a_forked_child_that_ends_leaves_client_and_server(via: str) -> None:
    with child("serve", via) as server:
        assert server.stdout is not None
        try:
            port = server.stdout.readline().strip()
            words = [sys.executable, CHILD, "fork", via, port]
            done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        finally:
            server.kill()
    assert (done.returncode, done.stdout) == (0, "goes on\n"), done.stderr


@pytest.mark.parametrize("via", [*WAYS, pytest.param("socket", id="direct")])
@pytest.mark.parametrize("request_way", ["inline", "ring", "rendezvous", "datagram"])
def test_a_server_is_killed(via: Any, request_way: str) -> None:
    """Every call fails, and says that it may have run; later ones say that they have not."""

    async def side(process: subprocess.Popen[str], port: int) -> None:
        options: Any = {"via": via, "strategies": rpc.Strategies(request_way)}
        async with asyncio.timeout(30), rpc.connect(f"127.0.0.1:{port}", **options) as client:
            assert await client.echo(b"x" * 100) == b"x" * 100
            held = [asyncio.create_task(client.hold(bytes(size))) for size in (9, 100_000)]
            await asyncio.sleep(0.1)
            os.kill(process.pid, signal.SIGKILL)
            for each in held:
                with pytest.raises(rpc.ServerGone, match="it may have run") as caught:
                    await each
                assert caught.value.may_have_run
                assert isinstance(caught.value, ConnectionError)
            with pytest.raises(rpc.ServerGone) as later:
                await client.echo(b"x")
            assert not later.value.may_have_run
            assert not client.is_connected

    with child("serve", via) as process:
        assert process.stdout is not None
        try:
            asyncio.run(side(process, int(process.stdout.readline())))
        finally:
            process.kill()


@pytest.mark.parametrize("via", [*WAYS, pytest.param("socket", id="direct")])
def test_a_client_that_is_not_closed_after_its_server_died(via: Any) -> None:
    """Its descriptors' numbers are those of the next client's, for which the loop would not look
    if it believed that it did."""

    async def once() -> None:
        with child("serve", via) as process:
            assert process.stdout is not None
            try:
                port = int(process.stdout.readline())
                client = await rpc.connect(f"127.0.0.1:{port}", via=via)
                assert await client.echo(b"x") == b"x"
            finally:
                process.kill()
        while client.is_connected:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)  # the loop closes its queue pair

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        await once()
        before = set(loop._selector.get_map())  # with the connection manager's
        await once()
        assert set(loop._selector.get_map()) <= before

    asyncio.run(main())


@pytest.mark.parametrize("via", [*WAYS, pytest.param("socket", id="direct")])
@pytest.mark.parametrize("request_way", ["inline", "ring", "datagram"])
def test_a_client_is_killed(via: Any, request_way: str) -> None:
    """Its calls are cancelled at the server, which goes on to serve others."""

    async def side() -> None:
        target = Sample()
        async with asyncio.timeout(30), rpc.serve(target, "127.0.0.1:0", via=via) as server:
            address = f"127.0.0.1:{server.port}"
            async with rpc.connect(address, via=via) as other:
                with child("call", via, str(server.port), request_way) as process:
                    assert process.stdout is not None
                    said = await asyncio.to_thread(process.stdout.readline)
                    assert said == "calls\n"
                    assert len(server.clients) == 2
                    os.kill(process.pid, signal.SIGKILL)
                while target.stopped != ["by a child"]:
                    await asyncio.sleep(0.01)
                while len(server.clients) > 1:
                    await asyncio.sleep(0.01)
                assert await other.add(1, 2) == 3
            assert server.running == 0

    asyncio.run(side())


@pytest.mark.parametrize("via", WAYS)
def test_a_server_closes(via: Any) -> None:
    """Calls that run may end; those that come after are refused; then the clients are told."""

    async def side() -> None:
        target = Sample()
        server = await rpc.serve(target, "127.0.0.1:0", via=via)
        async with rpc.connect(f"127.0.0.1:{server.port}", via=via) as client:
            held = asyncio.create_task(client.held("runs"))
            while not target.ran:
                await asyncio.sleep(0.001)
            closing = asyncio.create_task(server.close(5))
            await asyncio.sleep(0.05)
            with pytest.raises(rpc.ServerGone, match="has not begun the call") as refused:
                await client.add(1)
            assert not refused.value.may_have_run
            target.gate.set()
            assert await held == "runs"
            await closing
            while client.is_connected:
                await asyncio.sleep(0.01)
            with pytest.raises(rpc.ServerGone, match="the peer closed it"):
                await client.add(1)

        server = await rpc.serve(target, "127.0.0.1:0", via=via)
        target.gate.clear()
        async with rpc.connect(f"127.0.0.1:{server.port}", via=via) as client:
            held = asyncio.create_task(client.held("does not end"))
            await asyncio.sleep(0.1)
            await server.close(0.05)
            with pytest.raises(rpc.RpcError):
                await held
            while "does not end" not in target.stopped:
                await asyncio.sleep(0.001)

    async def limited() -> None:
        async with asyncio.timeout(30):
            await side()

    asyncio.run(limited())


@pytest.mark.parametrize("via", WAYS)
def test_a_server_closes_as_a_client_connects(via: Any) -> None:
    """The client is told, whatever the moment is, and by a sentence of what has happened."""

    async def refusal(steps: int) -> str:
        async with rpc.serve(Sample(), "127.0.0.1:0", via=via) as server:
            before = len(server._tasks)
            address = f"127.0.0.1:{server.port}"
            connecting = asyncio.ensure_future(_call_once(address, via))
            while len(server._tasks) == before:  # none has begun to connect the client
                await asyncio.sleep(0)
            for _ in range(steps):
                await asyncio.sleep(0)
            await server.close(0)
            async with asyncio.timeout(5):
                (error,) = await asyncio.gather(connecting, return_exceptions=True)
            assert isinstance(error, OSError)
            return str(error)

    for steps in (0, 1, 2, 3, 5, 10, 20, 40):
        said = asyncio.run(refusal(steps))
        assert "does not fit the state" not in said
        assert "RTR and RTS need" not in said


async def _call_once(address: str, via: Any) -> None:
    async with rpc.connect(address, via=via) as client:
        while True:
            await client.add(1, 1)


def test_closing_a_client_cancels_its_calls(together: Together) -> None:
    async def side(client: rpc.Client) -> list[str]:
        target = target_of(client)
        held = asyncio.create_task(client.held("left"))
        await asyncio.sleep(0.05)
        await client.close()
        with pytest.raises(rpc.ServerGone, match="it was closed here"):
            await held
        while not target.stopped:
            await asyncio.sleep(0.001)
        return target.stopped

    assert together(side) == ["left"]


@pytest.mark.parametrize(
    "frame",
    [
        (FrameKind.REQUEST, FrameFlags.REPLY, 0, b""),  # no token
        (FrameKind.REQUEST, FrameFlags.FETCH, 0, b"short"),
        (FrameKind.MORE, 0, 0, b"a part of nothing"),
        (FrameKind.HELLO, 0, 0, b""),
        (FrameKind.REQUEST, 0, 999, b""),
        (99, 0, 0, b""),
        (0, 255, 0, b"\xff" * 40),
    ],
)
def test_a_client_that_sends_garbage_harms_itself_alone(frame: Any) -> None:
    async def side() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, about: None)
        async with asyncio.timeout(20), rpc.serve(Sample(), "127.0.0.1:0", via="socket") as server:
            address = f"127.0.0.1:{server.port}"
            async with (
                rpc.connect(address, via="socket") as good,
                rpc.connect(address, via="socket") as bad,
            ):
                kind, flags, method, payload = frame
                bad._link.send(kind, flags, method, 1 << 40, 0, payload)
                for _ in range(20):
                    assert await good.add(1, 2) == 3
                    await asyncio.sleep(0.001)

    asyncio.run(side())


def test_a_client_that_takes_no_responses_cannot_fill_the_servers_memory() -> None:
    async def side() -> int:
        said: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, about: said.append(str(about["exception"])))
        async with rpc.serve(Sample(), "127.0.0.1:0", via="socket", calls=1) as server:
            address = f"127.0.0.1:{server.port}"
            async with rpc.connect(address, via="socket") as bad:
                link = bad._link
                link._half = 1 << 30
                data = bad._calls._encode((1, 2))
                number = bad._methods["add"].number
                for call in range(5000):
                    link._owed = 0  # it gives no credits back
                    link.send(FrameKind.REQUEST, 0, number, 1000 + call, 0, data)
                    await asyncio.sleep(0)
                    if said:
                        break
                assert said == ["the peer gives no credits back, and asks for more"]
                return call

    async def limited() -> int:
        async with asyncio.timeout(30):
            return await side()

    assert asyncio.run(limited()) < 2000


def test_a_frame_that_says_more_than_its_slot_has_harms_its_client_alone() -> None:
    """What lies behind the slot are the frames of other clients."""

    async def side() -> None:
        said: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, about: said.append(str(about["exception"])))
        async with asyncio.timeout(20), rpc.serve(Sample(), "127.0.0.1:0", via="socket") as server:
            address = f"127.0.0.1:{server.port}"
            async with (
                rpc.connect(address, via="socket") as good,
                rpc.connect(address, via="socket") as bad,
            ):
                out = bad._link._out
                slot = bad._link._sent % bad._link._slots
                length = out.size - FRAME_SIZE + 1
                header = (FrameKind.REQUEST, 0, 0, 0, 1 << 40, 0, length, 0)
                FRAME.pack_into(out.view, slot * out.size, *header)
                bad._link.qp.post_send(out.request(slot, FRAME_SIZE))
                while len(server.clients) > 1:
                    assert await good.add(1, 2) == 3
                assert said == [f"a frame of {length} bytes, more than its slot has"]

    asyncio.run(side())


@pytest.mark.parametrize(
    ("before", "length"),
    [
        (0xFFFFFFFF, 0),
        (FRAME_SIZE - 1, 0),
        (0, 0),
        (64, 64 - FRAME_SIZE + 1),  # more than the record has
        (64, 0xFFFFFFFF),
        (None, 0),  # one byte more than the slot has
    ],
)
def test_a_ring_with_garbage_harms_its_client_alone(before: int | None, length: int) -> None:
    async def side() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, about: None)
        async with asyncio.timeout(20), rpc.serve(Sample(), "127.0.0.1:0", via="socket") as server:
            address = f"127.0.0.1:{server.port}"
            options: Any = {"via": "socket", "strategies": rpc.Strategies("ring")}
            async with rpc.connect(address, **options) as good, rpc.connect(address, **options):
                rings = [each.station.rings[each.link] for each in server._guests.values()]
                end = rings[1].size - 8
                begins = end + 1 if before is None else before
                header = FRAME.pack(FrameKind.REQUEST, 0, 0, 0, 1, 0, length, 0)
                if begins == 64:
                    memoryview(rings[1].region)[end - 64 : end - 64 + FRAME_SIZE] = header
                rings[1].region.store_u64(end, 1 | begins << 32)  # as its client could
                for _ in range(20):
                    assert await good.add(1, 2) == 3
                    await asyncio.sleep(0.001)
                assert len(server.clients) == 1

    asyncio.run(side())


def test_a_frame_has_32_bytes() -> None:
    assert FRAME.size == 32


def certificate(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return contexts of a server and of a client that trusts it."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", key, "-out", cert, "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(cert, key)
    return serving, ssl.create_default_context(cafile=str(cert))


def test_tls(tmp_path: Path) -> None:
    """A client that trusts the server's certificate is served; one that does not, is not."""
    serving, trusting = certificate(tmp_path)

    async def side() -> int:
        async with rpc.serve(Sample(), "127.0.0.1:0", tls=serving) as server:
            address = f"127.0.0.1:{server.port}"
            with pytest.raises(ssl.SSLCertVerificationError):
                await rpc.connect(address, tls=ssl.create_default_context())
            with pytest.raises((OSError, PeerError)):
                async with asyncio.timeout(5):
                    await rpc.connect(address, via="socket")
            async with rpc.connect(address, tls=trusting) as client:
                return int(await client.add(2, 2))

    assert asyncio.run(side()) == 4


@pytest.mark.parametrize("via", WAYS)
def test_the_port_is_taken(via: Any) -> None:
    async def side() -> None:
        async with rpc.serve(Sample(), "127.0.0.1:0", via=via) as server:
            with pytest.raises(OSError):
                await rpc.serve(Sample(), f"127.0.0.1:{server.port}", via=via)

    asyncio.run(side())
