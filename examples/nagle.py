# SPDX-License-Identifier: Apache-2.0
"""Two small messages over TCP: Nagle's algorithm and delayed acknowledgements cost 40 ms.

A message is its length in two bytes, and as many bytes. The first, of 100 bytes, leaves at once.
The second, of 200, waits for an acknowledgement of the first, and the receiver delays that by 40
ms, since it has nothing to send. TCP_NODELAY sends the second at once. The clock is the network's.
"""

import asyncio
import socket

from verbena import fabrics, sim


async def receive(times: list[float]) -> None:
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            size = int.from_bytes(await reader.readexactly(2), "big")
            await reader.readexactly(size)
            times.append(asyncio.get_running_loop().time())
        writer.close()
        done.set()

    async with await asyncio.start_server(serve, "0.0.0.0", 7000):
        await done.wait()


async def send(no_delay: bool) -> None:
    _, writer = await asyncio.open_connection("h0", 7000)
    options = writer.get_extra_info("socket")
    options.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, no_delay)
    await asyncio.sleep(0.001)
    for size in (100, 200):
        writer.write(size.to_bytes(2, "big") + bytes(size))
    await asyncio.sleep(1)
    writer.close()


def run(no_delay: bool) -> float:
    times: list[float] = []
    programs = {"h0": lambda: receive(times), "h1": lambda: send(no_delay)}
    sim.run(programs, fabrics.ring(3, rate="10GbE", length_m=5), sockets="tcp")
    return 1e3 * (times[1] - times[0])


for no_delay in (False, True):
    print(f"TCP_NODELAY={no_delay:d}: {run(no_delay):.1f} ms between the two messages")
