# SPDX-License-Identifier: Apache-2.0
"""Targets that answer what no target would: a host says so by an error, and does not hang."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from tests.nvmeof.conftest import HOST, NQN, run
from verbena import cm, nvmeof
from verbena.nvmeof.commands import COMPLETION, AdminOpcode, Command, parse_command
from verbena.nvmeof.fabrics import AcceptData, Capabilities, Property
from verbena.nvmeof.identify import IdentifyController
from verbena.verbs import AccessFlags

pytestmark = pytest.mark.over_roce
Answer = Callable[[Command], tuple[bytes, bytes]]
"""The completion of a command, and the data that are written to the host before."""


async def serve_one(request: cm.ConnectionRequest, accept: bytes, answer: Answer) -> None:
    access = AccessFlags.LOCAL_WRITE
    memory = request.pd.alloc(32 * 4160, access)
    out = request.pd.alloc(8192, access)

    def prepare(qp: object) -> None:
        for slot in range(32):
            qp.recv(memory, slot * 4160, 4160, wr_id=slot)  # type: ignore[attr-defined]

    async with await request.accept(private_data=accept, prepare=prepare) as conn:
        async for wc in conn.acq:
            at = wc.wr_id * 4160
            command = parse_command(bytes(memory.array()[at : at + 64]))
            conn.qp.recv(memory, at, 4160, wr_id=wc.wr_id)
            completion, data = answer(command)
            if data:
                out.array()[: len(data)] = list(data)
                await conn.aqp.write(out, command.sgl.address, command.sgl.key, length=len(data))
            if completion:
                out.array()[: len(completion)] = list(completion)
                await conn.aqp.send(out, length=len(completion))


@asynccontextmanager
async def hostile(answer: Answer, accept: bytes = b"") -> AsyncIterator[int]:
    """A target that answers so; yields its port."""
    tasks: list[asyncio.Task[None]] = []
    accept = accept or AcceptData(crqsize=32).pack()

    async def listen(listener: cm.Listener) -> None:
        async for request in listener:
            tasks.append(asyncio.create_task(serve_one(request, accept, answer)))

    async with cm.listen(0, HOST) as listener:
        tasks.append(asyncio.create_task(listen(listener)))
        yield listener.port
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError, OSError):
                await task


def completion_of(command: Command, result: int = 0, status: int = 0) -> bytes:
    return COMPLETION.pack(result, 0, 0, command.cid, status)


def polite(command: Command) -> tuple[bytes, bytes]:
    """Connect, properties and Identify, as a target answers them."""
    if command.opcode == AdminOpcode.IDENTIFY:
        return completion_of(command), IdentifyController(cntlid=1, sgls=5, keep_alive=1).pack()
    result = 1
    if command.opcode == AdminOpcode.FABRICS and command.nsid == 4:
        result = Capabilities().pack() if command.cdw11 == Property.CAP else 1
    return completion_of(command, result), b""


def connecting(answer: Answer, accept: bytes = b"") -> BaseException | None:
    """Connect to a target, and return why that fails; None if it does not."""

    async def main() -> BaseException | None:
        options = nvmeof.HostOptions(timeout=1.0)
        async with hostile(answer, accept) as port:
            try:
                async with await nvmeof.connect(HOST, NQN, port, options):
                    return None
            except (OSError, TimeoutError) as error:
                return error

    found = run(main(), 30)
    assert found is None or isinstance(found, BaseException)
    return found


def identified(**changes: int) -> Answer:
    def answer(command: Command) -> tuple[bytes, bytes]:
        if command.opcode == AdminOpcode.IDENTIFY:
            found = IdentifyController(cntlid=1, sgls=5, keep_alive=1, kind=1)
            return completion_of(command), replace(found, **changes).pack()  # type: ignore[arg-type]
        return polite(command)

    return answer


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (identified(cntlid=2), "two numbers"),
        (identified(sgls=0), "no keyed descriptors"),
        (identified(in_capsule_offset=1), "no keyed descriptors"),
        (identified(keep_alive=0), "no keep-alive"),
        (lambda command: (completion_of(command, 1 << 17), b""), "authenticate"),
        (lambda command: (completion_of(command, 0, 0x4005 << 1), b""), "the command failed"),
        (lambda command: (bytes(8), b""), "has ended"),
        (lambda command: (COMPLETION.pack(0, 0, 0, 999, 0), b""), "has ended"),
    ],
    ids=["numbers", "sgls", "offset", "kas", "auth", "status", "short", "cid"],
)
def test_wrong_answers(answer: Answer, text: str) -> None:
    error = connecting(answer)
    assert isinstance(error, nvmeof.NvmeError)
    assert text in str(error)


def test_a_target_that_is_not_ready() -> None:
    def answer(command: Command) -> tuple[bytes, bytes]:
        completion, data = polite(command)
        if command.cdw11 == Property.CSTS and command.opcode == AdminOpcode.FABRICS:
            completion = completion_of(command, 2)  # CSTS.CFS
        return completion, data

    assert "does not become ready" in str(connecting(answer))


def test_a_target_that_says_nothing() -> None:
    assert isinstance(connecting(lambda command: (b"", b"")), TimeoutError)


def test_a_listener_that_is_no_target() -> None:
    error = connecting(polite, b"hello, this is something else   ")
    assert "no NVMe target" in str(error)


@pytest.mark.parametrize("seed", range(8))
def test_answers_at_random(seed: int) -> None:
    draw = random.Random(seed)

    def answer(command: Command) -> tuple[bytes, bytes]:
        if draw.random() < 0.8:
            return polite(command)
        completion = draw.choice(
            (
                draw.randbytes(16),
                draw.randbytes(draw.randrange(1, 16)),
                completion_of(command, draw.getrandbits(64), draw.getrandbits(16)),
                struct.pack("<QHHHH", 0, 0, 0, command.cid ^ 1, 0),
                b"",
            )
        )
        return completion, b""

    assert isinstance(connecting(answer), OSError | None)
