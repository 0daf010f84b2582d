# SPDX-License-Identifier: Apache-2.0
"""Servers and clients of the contenders in `verbena bench rpc`: verbena.rpc and what others use.

``python -m verbena.measure.rpc_peers NAME`` serves until its stdin closes, and prints its port.
Each server answers with the first 64 bytes of what it gets; a ``Call`` asks it. That of verbena.rpc
also answers with as many bytes as it is asked for, and takes two more words: its strategy for
responses, and the receives of its clients ("shared" or "own").
"""

from __future__ import annotations

import asyncio
import importlib.util
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from verbena import rpc

__all__ = ["ANSWER", "Call", "caller_of", "missing_module"]

ANSWER = 64
_LENGTH = struct.Struct("<I")
_MODULES = {"uvloop": "uvloop", "ZeroMQ": "zmq", "gRPC": "grpc"}
_PACKAGES = {"uvloop": "uvloop", "zmq": "pyzmq", "grpc": "grpcio"}

Call = Callable[[Any], Awaitable[Any]]
"""Sends a request, of these bytes or for so many, and returns the answer."""


@rpc.service
class Measured:
    """The service that is measured."""

    def __init__(self) -> None:
        self._answers: dict[int, bytes] = {}

    def head(self, data: rpc.Buffer) -> rpc.Buffer:
        return bytes(data[:ANSWER])

    def answer(self, size: int) -> rpc.Buffer:
        made = self._answers.get(size)
        if made is None:
            made = self._answers[size] = bytes(size)
        return made


def missing_module(name: str) -> str | None:
    """Return why a contender cannot be measured here, or None."""
    module = _MODULES.get(name)
    if module is None or importlib.util.find_spec(module) is not None:
        return None
    return f"{_PACKAGES[module]} is not installed; pip install {_PACKAGES[module]} brings it"


# ---- TCP -----------------------------------------------------------------------------------------


class _Framed(asyncio.Protocol):
    """Messages with their length in front."""

    def __init__(self) -> None:
        self._got = bytearray()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._got += data
        while len(self._got) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._got)
            if len(self._got) < _LENGTH.size + length:
                return
            message = bytes(self._got[_LENGTH.size : _LENGTH.size + length])
            del self._got[: _LENGTH.size + length]
            self.took(message)

    def took(self, message: bytes) -> None:
        """A message has arrived."""
        raise NotImplementedError

    def say(self, message: bytes) -> None:
        """Send a message."""
        self._transport.write(_LENGTH.pack(len(message)) + message)


class _Heads(_Framed):
    def took(self, message: bytes) -> None:
        self.say(message[:ANSWER])


class _Asks(_Framed):
    answer: asyncio.Future[bytes]

    def took(self, message: bytes) -> None:
        self.answer.set_result(message)

    async def call(self, data: bytes) -> bytes:
        """Send a request and wait for its answer."""
        self.answer = asyncio.get_running_loop().create_future()
        self.say(data)
        return await self.answer


async def _serve_tcp(tell: Callable[[int], None], over: asyncio.Future[None]) -> None:
    server = await asyncio.get_running_loop().create_server(_Heads, "127.0.0.1", 0)
    tell(server.sockets[0].getsockname()[1])
    await over


# ---- verbena.rpc ---------------------------------------------------------------------------------


async def _serve_rpc(
    tell: Callable[[int], None],
    over: asyncio.Future[None],
    spin: float | None,
    response: str = "auto",
    receives: str = "shared",
) -> None:
    plan = rpc.Strategies(response=response)
    options: rpc.ServerOptions = {"spin": spin, "strategies": plan, "receives": receives}
    async with rpc.serve(Measured(), "127.0.0.1:0", **options) as server:
        tell(server.port)
        await over


# ---- the others' ---------------------------------------------------------------------------------


def _serve_zeromq(tell: Callable[[int], None]) -> None:
    zmq: Any = importlib.import_module("zmq")
    socket = zmq.Context.instance().socket(zmq.REP)
    tell(socket.bind_to_random_port("tcp://127.0.0.1"))
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    poller.register(sys.stdin.fileno(), zmq.POLLIN)
    while True:
        ready = dict(poller.poll())
        if sys.stdin.fileno() in ready:
            return
        socket.send(socket.recv()[:ANSWER])


def _serve_grpc(tell: Callable[[int], None]) -> None:
    grpc: Any = importlib.import_module("grpc")
    head = grpc.unary_unary_rpc_method_handler(lambda data, context: data[:ANSWER])
    server = grpc.server(ThreadPoolExecutor(4), options=_GRPC)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("verbena.Measured", {"Head": head}),)
    )
    tell(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    sys.stdin.read()
    server.stop(0)


_GRPC = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


# ---- clients -------------------------------------------------------------------------------------


@asynccontextmanager
async def caller_of(
    name: str, port: int, options: Any, is_answer: bool = False
) -> AsyncIterator[Call]:
    """Connect a client of a contender. ``options`` are those of ``rpc.connect``.

    With ``is_answer``, which verbena.rpc alone has, calls ask for a number of bytes.
    """
    if name in ("asyncio", "uvloop"):
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_connection(_Asks, "127.0.0.1", port)
        yield protocol.call
        transport.close()
    elif name == "ZeroMQ":
        zmq: Any = importlib.import_module("zmq")
        socket = zmq.Context.instance().socket(zmq.REQ)
        socket.connect(f"tcp://127.0.0.1:{port}")

        async def ask(data: bytes) -> bytes:
            socket.send(data)
            return bytes(socket.recv())

        yield ask
        socket.close(0)
    elif name == "gRPC":
        grpc: Any = importlib.import_module("grpc")
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=_GRPC) as channel:
            method = channel.unary_unary("/verbena.Measured/Head")

            async def invoke(data: bytes) -> bytes:
                return bytes(method(data))

            yield invoke
    else:
        async with rpc.connect(f"127.0.0.1:{port}", Measured, **options) as client:
            yield client.answer if is_answer else client.head


# ---- the process of a server ---------------------------------------------------------------------


def _tell(port: int) -> None:
    print(port, flush=True)


async def _until_stdin(serve: Callable[..., Awaitable[None]], *more: Any) -> None:
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def read() -> None:
        loop.remove_reader(sys.stdin.fileno())
        over.set_result(None)

    loop.add_reader(sys.stdin.fileno(), read)
    await serve(_tell, over, *more)


def main(words: list[str]) -> None:
    """Serve as the contender of this name."""
    name = words[0]
    if name == "ZeroMQ":
        _serve_zeromq(_tell)
        return
    if name == "gRPC":
        _serve_grpc(_tell)
        return
    work = _until_stdin(_serve_tcp)
    if name.startswith("verbena"):
        work.close()
        spin = 0.0 if "woken" in name else None
        work = _until_stdin(_serve_rpc, spin, *words[1:])
    if "uvloop" in name:
        uvloop: Any = importlib.import_module("uvloop")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work)
    else:
        asyncio.run(work)


if __name__ == "__main__":
    main(sys.argv[1:])
