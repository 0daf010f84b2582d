# SPDX-License-Identifier: Apache-2.0
"""A ring all-reduce over connections to peers: each rank sends right, and receives from the left.

`verbena.collectives` has this and other algorithms; here is the ring alone, on simulated hosts,
whose clock says how long it takes on 100 Gb/s links.
"""

import asyncio

import numpy as np

import verbena
from verbena import fabrics, sim

RANKS, COUNT = 8, 1 << 20


async def all_reduce(rank: int) -> tuple[float, float]:
    async with verbena.listen(":7174") as listener:
        right, left = await asyncio.gather(
            verbena.connect(f"h{(rank + 1) % RANKS}:7174").__aenter__(), listener.accept()
        )
        parts = np.array_split(np.full(COUNT, rank + 1.0), RANKS)
        begin = asyncio.get_running_loop().time()
        for step in range(2 * (RANKS - 1)):
            sent, got = parts[(rank - step) % RANKS], parts[(rank - step - 1) % RANKS]
            sending = asyncio.create_task(right.send(sent))
            async with left.recv() as view:
                came = np.frombuffer(view)
                got[:] = got + came if step < RANKS - 1 else came
                del came
            await sending
        took = asyncio.get_running_loop().time() - begin
        await asyncio.gather(right.close(), left.close())
        return float(np.concatenate(parts).min()), took


fabric = fabrics.ring(RANKS, rate="100GbE", length_m=5)
programs = {f"h{rank}": (lambda rank=rank: all_reduce(rank)) for rank in range(RANKS)}
for host, (least, took) in sorted(sim.run(programs, fabric).returned.items()):
    print(f"{host}: every element is {least}; below 5 ms: {took < 0.005}")
