# SPDX-License-Identifier: Apache-2.0
"""C30: a stream has no messages, and what small writes wait for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Sequence
from functools import partial
from random import Random
from typing import Any

from tests.sim.test_sockets import MS, RTT, pair, read_frames
from tests.validation.row import Confidence, Figure, Row, Scope, around, equal, near
from verbena import sim

SIZES = (100, 200)
DATA = b"".join(size.to_bytes(2, "big") + bytes([size]) * size for size in SIZES)


def frames(pieces: Sequence[int], *, mss: int, errors: float) -> int:
    """DATA written in such pieces: the frames that the other side reads."""
    times: list[float] = []

    async def client() -> None:
        _, writer = await asyncio.open_connection("h0", 80)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        at = 0
        for size in pieces:
            writer.write(DATA[at : at + size])
            at += size
            await asyncio.sleep(1e-6)
        writer.close()

    world = pair(MS, errors=errors, tcp={"mss": mss})
    sim.run({"h0": partial(read_frames, len(SIZES), times), "h1": client}, world)
    return len(times)


def split(random: Random) -> list[int]:
    """Pieces that together have DATA's length."""
    cuts = sorted(random.sample(range(1, len(DATA)), random.randrange(12)))
    return [end - start for start, end in zip([0, *cuts], [*cuts, len(DATA)], strict=True)]


def stall(no_delay: bool, **world: Any) -> tuple[float, float]:
    """The seconds that connecting takes, and that lie between the arrivals of two small writes."""
    times: list[float] = []

    async def client() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        _, writer = await asyncio.open_connection("h0", 80)
        took = loop.time() - began
        own = writer.get_extra_info("socket")
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(no_delay))
        await asyncio.sleep(1e-3)  # the handshake's last ACK has left the link
        for size in SIZES:
            writer.write(size.to_bytes(2, "big") + bytes(size))
        await asyncio.sleep(1)
        writer.close()
        return took

    result = sim.run({"h0": partial(read_frames, len(SIZES), times), "h1": client}, pair(**world))
    return float(result.returned["h1"]), times[1] - times[0]


def measure(scope: Scope) -> Iterator[Figure]:
    random = Random(scope.seed)
    for errors in (0.0, 1e-5):
        count = scope.pick(5, 200)
        whole = [
            frames(split(random), mss=random.choice((64, 100, 536, 1460)), errors=errors)
            for _ in range(count)
        ]
        lost = "" if errors == 0 else f", bit errors of {errors:g}"
        yield equal(f"{count} random splits{lost}: frames of 2", sum(whole) / count, 2)
    took, waits = stall(no_delay=False)
    yield near("connect, in round trips", took / RTT, 1, 1e-3)
    yield around("Nagle: the second small write waits", waits * 1e3, 40 + RTT * 1e3, 0.01, "ms")
    slow = {"jitter": 0, "ack_delay": 200 * MS}
    _, waits = stall(no_delay=False, tcp=slow)
    yield around("acknowledgements after 200 ms", waits * 1e3, 200 + RTT * 1e3, 0.01, "ms")
    _, waits = stall(no_delay=True)
    yield around("with TCP_NODELAY", waits * 1e3, 0, 0.01, "ms")


ROW = Row(
    number="C30",
    title="Sockets: framing, Nagle's algorithm and delayed acknowledgements (RFC 9293, RFC 896)",
    setup="Programs of a simulated network with 20 ms there and back write a frame of 100 and one "
    "of 200 bytes, each with its length before it, in random pieces and with segments of 64 to "
    "1,460 bytes; then two small writes one after the other.",
    expected="any split of the stream gives the two frames; connecting takes a round trip; the "
    "second small write waits for the acknowledgement of the first, which the receiver delays by "
    "40 ms as Linux does, or by 200 ms as others, and with TCP_NODELAY it does not wait.",
    fails="bytes are lost, or joined otherwise, or a write waits without a reason.",
    meaning="A receiver has to join what belongs together, by a length or a mark. A program that "
    "writes a message in two parts pays 40 ms for it.",
    measure=measure,
    confidence=Confidence.EXACT,
    quick=True,
    tested="`tests/sim/test_sockets.py`",
)
