# SPDX-License-Identifier: Apache-2.0
"""A process that opens the device and works under every value of a limit, one after another.

python -m tests.robust.starved descriptors | space | meeting | way. Prints how many values were too
small; way prints the error of a connection that is made without a free descriptor.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tests.robust.child import Child
from verbena import verbs

MIB = 1 << 20
ACCESS = verbs.AccessFlags.LOCAL_WRITE | verbs.AccessFlags.REMOTE_WRITE


@contextlib.contextmanager
def limited(number: int, value: int) -> Iterator[None]:
    before = resource.getrlimit(number)
    resource.setrlimit(number, (value, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(number, before)


def traces() -> tuple[int, int, int]:
    """Descriptors, mappings of memory files, threads."""
    maps = Path("/proc/self/maps").read_text()
    return len(os.listdir("/proc/self/fd")), maps.count("memfd:verbena"), threading.active_count()


def work() -> None:
    """A connection of two queue pairs, and one WRITE that is compared."""
    with verbs.open_device() as ctx:
        pd = ctx.alloc_pd()
        cq = ctx.create_cq(16, ctx.create_comp_channel())
        near, far = pd.create_qp(send_cq=cq), pd.create_qp(send_cq=cq)
        verbs.connect_pair(near, far)
        source, target = pd.alloc(4096, ACCESS), pd.reg_mr(np.zeros(4096, "u1"), ACCESS)
        source.array()[:] = 7
        near.write(source, target.addr, target.rkey)
        assert cq.wait(1, 10)[0].is_success
        assert bytes(target) == bytes([7]) * 4096


def sweep(number: int, values: list[int], refused: int) -> int:
    """Works under each value, or is refused with this errno, and holds nothing afterwards."""
    work()
    before, refusals, worked = traces(), 0, False
    for value in values:
        try:
            with limited(number, value):
                work()
            worked = True
        except (verbs.VerbsError, MemoryError) as error:
            wrong = isinstance(error, verbs.VerbsError) and error.errno != refused
            if wrong:
                raise
            refusals += 1
        assert traces() == before, (value, before, traces())
    work()
    assert worked
    return refusals


def descriptors() -> int:
    used = fill_gaps()
    return sweep(resource.RLIMIT_NOFILE, list(range(used, used + 60)), errno.EMFILE)


def space() -> int:
    now = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
    steps = [now + step * 16 * MIB for step in range(1, 200, 3)]
    return sweep(resource.RLIMIT_AS, [*steps, resource.RLIM_INFINITY], errno.ENOMEM)


def fill_gaps() -> int:
    """Every descriptor below the number that this returns is open."""
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    while (last := os.dup(0)) < highest:
        pass
    return last + 1


def meeting() -> int:
    """The device is open; the limit is reached while another process is met."""
    refusals = 0
    with verbs.open_device() as ctx:
        pd, cq = ctx.alloc_pd(), ctx.create_cq(64)
        source = pd.alloc(4096, ACCESS)
        for more in range(12):
            refusals += not meet_once(ctx, pd, cq, source, more)
        assert meet_once(ctx, pd, cq, source, 1000)
    return refusals


def meet_once(ctx: verbs.Context, pd: verbs.PD, cq: verbs.CQ, source: verbs.MR, more: int) -> bool:
    """A new process each time: who is known needs no descriptors."""
    child = Child()
    far = child.make()
    with pd.create_qp(send_cq=cq) as near:
        info, gid_index = verbs.local_qp_info(near)
        far_info = far.info()
        with limited(resource.RLIMIT_NOFILE, fill_gaps() + more):
            verbs.connect.bring_up(near, info, far_info, gid_index, timeout=10, retry_cnt=2)
            far.connect(info)
            near.write(source, *far.region(), length=64)
            (done,) = cq.wait(1, 20)
        assert done.status.name in ("SUCCESS", "RETRY_EXC_ERR"), done
    child.stop()
    return bool(done.is_success)


def way() -> str:
    """The route to a new address is asked of the kernel, by a socket."""
    with verbs.open_device() as ctx:
        pd, cq = ctx.alloc_pd(), ctx.create_cq(64)
        near, far = pd.create_qp(send_cq=cq), pd.create_qp(send_cq=cq)
        with limited(resource.RLIMIT_NOFILE, fill_gaps()):
            try:
                verbs.connect_pair(near, far)
            except verbs.VerbsError as error:
                return f"{errno.errorcode[error.errno]} {error}"
    return "connected"


SWEEPS: dict[str, Callable[[], int | str]] = {
    "descriptors": descriptors,
    "space": space,
    "meeting": meeting,
    "way": way,
}

if __name__ == "__main__":
    print(SWEEPS[sys.argv[1]]())
