# SPDX-License-Identifier: Apache-2.0
"""One of the two processes of a measurement in Python: its socket to the other, and its QP.

verbena.measure.worker makes a Side and passes it to the measuring function.
"""

from __future__ import annotations

import json
import mmap
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from verbena import verbs

HEAD = 4
PATIENCE = 20.0
REMOTE = (
    verbs.AccessFlags.LOCAL_WRITE | verbs.AccessFlags.REMOTE_WRITE | verbs.AccessFlags.REMOTE_READ
)


@dataclass(frozen=True)
class Side:
    """A process of a pair: the first one measures and returns the result."""

    first: bool
    socket: socket.socket

    def send(self, value: Any) -> None:
        data = json.dumps(value).encode()
        self.socket.sendall(len(data).to_bytes(HEAD, "big") + data)

    def receive(self) -> Any:
        size = int.from_bytes(self._exactly(HEAD), "big")
        return json.loads(self._exactly(size))

    def exchange(self, value: Any) -> Any:
        """Exchange a value with the other side; neither returns before both have called this."""
        self.send(value)
        return self.receive()

    def meet(self) -> None:
        """Wait until the other side has called this, too."""
        self.exchange(None)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the other process ended: see its words")
            data += piece
        return bytes(data)


@dataclass(frozen=True)
class Endpoint:
    """A connected RC QP with one region, and the address and key of the peer's region."""

    context: verbs.Context
    pd: verbs.PD
    cq: verbs.CQ
    qp: verbs.QP
    mr: verbs.MR
    remote_addr: int
    rkey: int


@contextmanager
def endpoint(
    side: Side, nbytes: int, *, own: bool = False, depth: int = 256, path_mtu: int = 0
) -> Iterator[Endpoint]:
    """Open the device and connect to the other side.

    The region has `nbytes` and is allocated by Verbena, or with `own` by this process. A
    `path_mtu` takes the place of the device's.
    """
    with verbs.open_device() as context:
        pd = context.alloc_pd()
        cq = context.create_cq(2 * depth)
        qp = pd.create_qp(send_cq=cq, max_send_wr=depth, max_recv_wr=depth)
        mr = region(pd, nbytes, own)
        mtu = verbs.MTU[f"MTU_{path_mtu}"] if path_mtu else None
        verbs.connect_rc(qp, side.socket, path_mtu=mtu)
        remote_addr, rkey = side.exchange([mr.addr, mr.rkey])
        yield Endpoint(context, pd, cq, qp, mr, remote_addr, rkey)
        side.meet()  # closing a QP early would end the peer's connection


def region(pd: verbs.PD, nbytes: int, own: bool) -> verbs.MR:
    if not own:
        return pd.alloc(nbytes, REMOTE)
    # On page boundaries, as perftest's buffers are.
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(bytes(nbytes))  # the pages are there before the first copy
    return pd.reg_mr(memory, REMOTE)


def take(cq: verbs.CQ, count: int) -> None:
    """Take `count` completions. Raises CompletionError when one failed, TimeoutError."""
    found = cq.wait(count, PATIENCE)
    for wc in found:
        wc.raise_for_status()
    if len(found) < count:
        raise TimeoutError(f"{len(found)} of {count} completions came within {PATIENCE} s")
