# SPDX-License-Identifier: Apache-2.0
"""``Completions``: a CQ that a loop serves in batches; the base of both sides' queues.

While completions come they are taken without system calls. When there are none the CQ is armed and
the loop waits for its channel. After some batches other tasks of the loop run once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np

from verbena.verbs import CQ, WCStatus, wc_dtype
from verbena.waiting import Reader

from .send_queue import WC

__all__ = ["Completions"]

_BATCH = 64
_TURNS = 16  # batches until the loop serves others


class Completions:
    """What a queue inherits. ``take_batch`` gets (wr_id, status, opcode, vendor_err, byte_len)."""

    def __init__(self, cq: CQ, spin: float = 0.0) -> None:
        self.cq = cq
        assert cq.channel is not None
        self._channel = cq.channel
        self._reader = Reader(cq.channel.fd, self._on_event)
        self._wcs = np.zeros(_BATCH, wc_dtype)
        self._spin = spin
        self.is_ended = False

    def take_batch(self, completions: Iterator[tuple[int, int, int, int, int]]) -> None:
        """Take completions, and post what follows from them. Raises VerbsError."""
        raise NotImplementedError

    def end(self, reason: str) -> None:
        """End the queue."""
        raise NotImplementedError

    def start(self) -> None:
        """Serve the queue in the running loop."""
        self._reader.attach()
        self._run()

    def stop(self) -> None:
        """Serve it no more."""
        self.is_ended = True
        self._reader.detach()

    def _on_event(self) -> None:
        if not self.is_ended:
            self._channel.drain()
            self._run()

    def _run(self) -> None:
        """Serve completions until there are none, and arm the CQ."""
        try:
            for _ in range(_TURNS):
                if self.is_ended:
                    return
                count = self.cq.poll(_BATCH, out=self._wcs) or self._wait_or_arm()
                if not count:
                    return
                # Of a copy, and not of a view: the garbage collector may clear a memoryview that
                # an iterator in a traceback still has, and CPython 3.11 does not survive that.
                self.take_batch(WC.iter_unpack(self._wcs[:count].tobytes()))
        except OSError as error:  # VerbsError is one
            self.end(str(error))
            return
        except Exception as error:
            self.end(f"a defect: {error!r}")
            raise
        asyncio.get_running_loop().call_soon(self._run)

    def _wait_or_arm(self) -> int:
        if self._spin:
            count: int = self.cq.wait(1, self._spin, out=self._wcs)
            if count:
                return count
        self.cq.req_notify()
        return self.cq.poll(_BATCH, out=self._wcs)

    def reason(self, status: int, vendor: int) -> str:
        """Return why a request failed. Those behind the one that failed, or on a queue pair that
        the connection manager has ended, only say that it has ended."""
        if status == WCStatus.WR_FLUSH_ERR:
            return "the other side ended the connection, or cannot be reached any more"
        said = self.cq.context.explain(vendor) if vendor else ""
        return said or f"a request ended with status {status}"
