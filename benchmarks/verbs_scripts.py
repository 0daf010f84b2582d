# SPDX-License-Identifier: Apache-2.0
"""Measurements of verbena.verbs; each runs in both processes, and the first returns the value.

goals.py names these functions, and verbena.measure.worker calls them.
"""

from __future__ import annotations

import statistics
import threading
import time

import numpy as np
from numpy.typing import NDArray

from verbena import verbs
from verbena.measure.case import MIB
from verbena.measure.side import PATIENCE, Endpoint, Side, endpoint, take

SIGNALED = int(verbs.SendFlags.SIGNALED)
WRITE = int(verbs.WROpcode.RDMA_WRITE)
OUT, IN = 0, 64  # the words of a ping-pong, in lines of their own
CHUNK = 32  # WRITEs per signalled one
BATCH = 64
WALK_BATCH = 16
IDLE_SECONDS = 2.0


def write_latency(side: Side, seconds: float) -> float | None:
    """Half a round trip of 8-byte WRITEs in µs; both sides spin on the word that arrives."""
    with endpoint(side, 4096) as end:
        times = ping_pong(end, side, chunks_for(end, side, seconds))
        return statistics.median(times) / (2 * CHUNK) * 1e6 if side.first else None


def chunks_for(end: Endpoint, side: Side, seconds: float) -> int:
    """How many chunks fill the time, by a trial; the same on both sides."""
    trial = sum(ping_pong(end, side, 50)) / 50
    theirs = side.exchange(trial)
    return max(int(seconds / max(trial, theirs, 1e-7)), 20)


def ping_pong(end: Endpoint, side: Side, chunks: int) -> list[float]:
    """The seconds that each chunk of round trips took."""
    side.meet()
    end.mr.store_u64(IN, 0)
    side.meet()
    step = ping if side.first else pong
    times = []
    for number in range(chunks):
        start = time.perf_counter()
        step(end, number * CHUNK + 1)
        times.append(time.perf_counter() - start)
    return times


def ping(end: Endpoint, first_value: int) -> None:
    mr, write, addr, rkey = end.mr, end.qp.write, end.remote_addr + IN, end.rkey
    store, wait = mr.store_u64, mr.wait_u64
    last = first_value + CHUNK - 1
    for value in range(first_value, last):
        store(OUT, value)
        write(mr, addr, rkey, OUT, 8, flags=0)
        wait(IN, value)
    store(OUT, last)
    write(mr, addr, rkey, OUT, 8, flags=SIGNALED)
    wait_or_fail(mr, last)
    take(end.cq, 1)


def pong(end: Endpoint, first_value: int) -> None:
    mr, write, addr, rkey = end.mr, end.qp.write, end.remote_addr + IN, end.rkey
    store, wait = mr.store_u64, mr.wait_u64
    last = first_value + CHUNK - 1
    for value in range(first_value, last):
        wait(IN, value)
        store(OUT, value)
        write(mr, addr, rkey, OUT, 8, flags=0)
    wait_or_fail(mr, last)
    store(OUT, last)
    write(mr, addr, rkey, OUT, 8, flags=SIGNALED)
    take(end.cq, 1)


def wait_or_fail(mr: verbs.MR, value: int) -> None:
    if not mr.wait_u64(IN, value, PATIENCE):
        raise TimeoutError(f"the word {value} did not come within {PATIENCE} s")


def write_batches(side: Side, seconds: float) -> float | None:
    """µs for each 8-byte WRITE posted and polled in batches of 64, every one signalled."""
    with endpoint(side, 4096) as end:
        if not side.first:
            return None
        records = requests(end, 8, BATCH)
        records["flags"] = SIGNALED
        wcs = np.empty(BATCH, verbs.wc_dtype)
        chunks = []
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            start = time.perf_counter()
            for _ in range(20):
                end.qp.post_many(records)
                taken = end.cq.poll(out=wcs)
                while taken < BATCH:
                    taken += end.cq.poll(out=wcs[taken:])
            chunks.append(time.perf_counter() - start)
            check(wcs)
        return statistics.median(chunks) / (20 * BATCH) * 1e6


def requests(end: Endpoint, size: int, count: int, stride: int = 0) -> NDArray[np.void]:
    """`count` WRITEs of `size` bytes, each `stride` bytes behind the one before; the last one is
    signalled."""
    steps = np.arange(count, dtype="u8") * np.uint64(stride)
    records = np.zeros(count, verbs.send_dtype)
    records["addr"] = end.mr.addr + steps
    records["length"] = size
    records["lkey"] = end.mr.lkey
    records["opcode"] = WRITE
    records["flags"][-1] = SIGNALED
    records["remote_addr"] = end.remote_addr + steps
    records["rkey"] = end.rkey
    return records


def check(wcs: NDArray[np.void]) -> None:
    failed = wcs["status"].nonzero()[0]
    if len(failed):
        status = verbs.WCStatus(int(wcs["status"][failed[0]]))
        raise RuntimeError(f"{len(failed)} WRITEs failed, the first with {status.name}")


def write_bandwidth(side: Side, seconds: float, size: int, own: bool) -> float | None:
    """MiB/s of WRITEs of `size` bytes from one buffer into one, as perftest sends them."""
    with endpoint(side, size, own=own) as end:
        if not side.first:
            return None
        return rate_of(end, [requests(end, size, BATCH)], seconds)


def write_cold(
    side: Side, seconds: float, total: int, own: bool, path_mtu: int = 0
) -> float | None:
    """MiB/s of 1 MiB WRITEs that walk over `total` bytes, so that no cache helps."""
    with endpoint(side, total, own=own, path_mtu=path_mtu) as end:
        end.mr.array()[:] = 1  # every page is there, on both sides
        side.meet()
        if not side.first:
            return None
        walk = requests(end, MIB, total // MIB, MIB)
        walk["flags"][WALK_BATCH - 1 :: WALK_BATCH] = SIGNALED
        return rate_of(end, np.split(walk, len(walk) // WALK_BATCH), seconds)


def rate_of(end: Endpoint, batches: list[NDArray[np.void]], seconds: float) -> float:
    """MiB/s of posting all batches again and again; the first time does not count."""
    nbytes = sum(int(batch["length"].sum()) for batch in batches)
    passes = -1
    start = now = time.perf_counter()
    while passes < 1 or now - start < seconds:
        for batch in batches:
            end.qp.post_many(batch)
            take(end.cq, 1)
        passes += 1
        now = time.perf_counter()
        if passes == 0:
            start = now
    return passes * nbytes / (now - start) / MIB


def connect(side: Side, seconds: float) -> float | None:
    """µs from create_qp to RTS between two processes that have met already; median of many QPs."""
    del seconds
    with endpoint(side, 4096) as end:
        times = [connect_one(side, end) for _ in range(200)]
        return statistics.median(times) * 1e6 if side.first else None


def connect_one(side: Side, end: Endpoint) -> float:
    """Seconds of this side's own work; the exchange over the socket is left out."""
    start = time.perf_counter()
    qp = end.pd.create_qp(send_cq=end.cq)
    created = time.perf_counter()
    local, gid_index = verbs.local_qp_info(qp)
    remote = verbs.QPInfo.from_bytes(bytes.fromhex(side.exchange(local.to_bytes().hex())))
    bring_up_from = time.perf_counter()
    verbs.bring_up(qp, local, remote, gid_index)
    done = time.perf_counter()
    side.meet()
    qp.close()
    return created - start + done - bring_up_from


def idle(side: Side, seconds: float) -> float | None:
    """CPU time in percent of one core while a connected QP waits on its completion channel."""
    del seconds
    with endpoint(side, 4096) as end:
        channel = end.context.create_comp_channel()
        cq = end.context.create_cq(16, channel)
        cq.req_notify()
        waiter = threading.Thread(target=channel.get_cq_event, args=(IDLE_SECONDS + 0.5,))
        waiter.start()
        time.sleep(0.2)
        before = time.process_time()
        time.sleep(IDLE_SECONDS)
        used = (time.process_time() - before) / IDLE_SECONDS * 100
        waiter.join()
        worst = max(used, side.exchange(used))
        return worst if side.first else None
