# SPDX-License-Identifier: Apache-2.0
"""Log shipping: a primary writes its log into a follower's memory, and the follower applies it.

The follower lends a ring of records and shares a counter of what it has applied. The primary writes
records by WRITEs and then the counter of what is written; it waits only while the ring is full. So
a record is in the follower's memory when `append` returns, whether the follower runs or not.
"""

import asyncio
import pickle
import sys

import numpy as np

import verbena

PORT = 7174
ROOM, RECORDS = 64, 1000
RECORD = np.dtype([("number", "i8"), ("account", "i8"), ("amount", "i8")])


async def follow() -> None:
    async with verbena.listen(PORT) as listener, await listener.accept() as conn:
        log, counters = conn.array(ROOM, RECORD), conn.array(2, "i8")  # written, applied
        await conn.send(pickle.dumps((conn.share(log), conn.share(counters))))
        balances = np.zeros(10, "i8")
        while counters[1] < RECORDS:
            if counters[0] == counters[1]:
                await asyncio.sleep(0.0005)
                continue
            record = log[counters[1] % ROOM]
            assert record["number"] == counters[1]
            balances[record["account"]] += record["amount"]
            counters[1] += 1
        await conn.wait_closed()
        print("the follower's balances are", *balances)


async def lead(host: str) -> None:
    async with verbena.connect(f"{host}:{PORT}") as conn:
        log, counters = pickle.loads(await conn.recv())
        balances = np.zeros(10, "i8")
        applied = 0
        for number in range(RECORDS):
            record = np.array([(number, number % 10, number)], RECORD)
            while number - applied == ROOM:
                applied = int((await counters[1:].get())[0])
            await log[number % ROOM : number % ROOM + 1].put(record)
            await counters[:1].put(np.array([number + 1]))
            balances[number % 10] += number
        while applied < RECORDS:
            applied = int((await counters[1:].get())[0])
        print("the primary's balances are", *balances)


asyncio.run(lead(sys.argv[1]) if len(sys.argv) > 1 else follow())
