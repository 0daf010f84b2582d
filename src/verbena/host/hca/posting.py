# SPDX-License-Identifier: Apache-2.0
"""A queue pair as a Python program has it: requests are written to the ring, and rung for.

``HcaDriver.queue_pair`` makes it. ``ring=False`` leaves a request unannounced, so that one
doorbell announces several; ``blueflame=True`` writes it into the adapter's registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verbena._arguments import checked_class
from verbena.host.errors import HostError, HostTypeError
from verbena.host.hca.device import BLUEFLAME, DOORBELL
from verbena.host.hca.formats import (
    BLOCK,
    INLINE,
    MOST_INLINE,
    MOST_MESSAGE,
    SIGNALLED,
    HcaOpcode,
    ReceiveRequest,
    SendRequest,
)
from verbena.host.hca.queues import Qp, QpState

if TYPE_CHECKING:
    from verbena.host.hca.driver import HcaDriver
    from verbena.host.hca.regions import Region


@checked_class(HostTypeError)
class QueuePair:
    """Posts to one queue pair; ``number`` and ``context`` are what the adapter has."""

    def __init__(self, driver: HcaDriver, context: Qp) -> None:
        self._driver, self.context = driver, context
        self._peer: HcaDriver | None = None
        self.posted = 0  # blocks
        self._rung = 0
        self._buffer = 0
        self._received = 0

    @property
    def number(self) -> int:
        """Its QP number."""
        return self.context.number

    @property
    def state(self) -> QpState:
        """Its state in the adapter."""
        return self.context.state

    def connect(self, peer: QueuePair) -> None:
        """Connects both; HostError if one is connected already, or if no wire is between them."""
        self._check_wire(peer)
        for one, other in ((self, peer), (peer, self)):
            if one.context.state is not QpState.INIT:
                raise HostError(f"QP {one.number} is connected already")
            one.context.peer = other.number
            one._peer = other._driver
        self.context.state = peer.context.state = QpState.RTS

    def _check_wire(self, peer: QueuePair) -> None:
        mine, other = self._driver.hca, peer._driver.hca
        if mine is other or mine.wire is None or mine.wire is not other.wire:
            raise HostError(
                f"QP {self.number} of {mine} cannot be connected to QP {peer.number} of {other}: "
                "there is no wire between them; plug one in by Wire.connect first"
            )

    # ---- requests ----

    def write(
        self,
        source: Region | bytes,
        target: Region,
        length: int | None = None,
        *,
        source_offset: int = 0,
        target_offset: int = 0,
        immediate: int | None = None,
        signalled: bool = True,
        blueflame: bool = False,
        ring: bool = True,
        id: int | None = None,
    ) -> None:
        """RDMA WRITE; ``source`` as bytes is inline."""
        opcode = HcaOpcode.WRITE if immediate is None else HcaOpcode.WRITE_WITH_IMM
        request = self._request(opcode, source, source_offset, length, signalled)
        remote = {**self._remote(target, target_offset), "immediate": immediate or 0}
        self.post(_with(request, remote), blueflame=blueflame, ring=ring, id=id)

    def send(
        self,
        source: Region | bytes,
        length: int | None = None,
        *,
        source_offset: int = 0,
        immediate: int | None = None,
        signalled: bool = True,
        blueflame: bool = False,
        ring: bool = True,
        id: int | None = None,
    ) -> None:
        """SEND; ``source`` as bytes is inline."""
        opcode = HcaOpcode.SEND if immediate is None else HcaOpcode.SEND_WITH_IMM
        request = self._request(opcode, source, source_offset, length, signalled)
        request = _with(request, {"immediate": immediate or 0})
        self.post(request, blueflame=blueflame, ring=ring, id=id)

    def read(
        self,
        into: Region,
        source: Region,
        length: int | None = None,
        *,
        into_offset: int = 0,
        source_offset: int = 0,
        signalled: bool = True,
        blueflame: bool = False,
        ring: bool = True,
        id: int | None = None,
    ) -> None:
        """RDMA READ of the peer's ``source``."""
        request = self._request(HcaOpcode.READ, into, into_offset, length, signalled)
        remote = self._remote(source, source_offset)
        self.post(_with(request, remote), blueflame=blueflame, ring=ring, id=id)

    def compare_and_swap(
        self,
        into: Region,
        target: Region,
        compare: int,
        swap: int,
        *,
        into_offset: int = 0,
        target_offset: int = 0,
        id: int | None = None,
    ) -> None:
        """Atomic of 8 bytes; the old value lands in ``into``."""
        operands = {"operand": compare, "swap": swap}
        self._atomic(
            HcaOpcode.COMPARE_AND_SWAP, into, into_offset, target, target_offset, operands, id
        )

    def fetch_and_add(
        self,
        into: Region,
        target: Region,
        add: int,
        *,
        into_offset: int = 0,
        target_offset: int = 0,
        id: int | None = None,
    ) -> None:
        """Atomic of 8 bytes; the old value lands in ``into``."""
        self._atomic(
            HcaOpcode.FETCH_AND_ADD, into, into_offset, target, target_offset, {"operand": add}, id
        )

    def _atomic(
        self,
        opcode: HcaOpcode,
        into: Region,
        into_offset: int,
        target: Region,
        target_offset: int,
        operands: dict[str, int],
        id: int | None,
    ) -> None:
        request = self._request(opcode, into, into_offset, 8, True)
        remote = self._remote(target, target_offset)
        self.post(_with(request, {**remote, **operands}), id=id)

    def _request(
        self,
        opcode: HcaOpcode,
        local: Region | bytes,
        offset: int,
        length: int | None,
        signalled: bool,
    ) -> SendRequest:
        flags = SIGNALLED if signalled else 0
        if isinstance(local, bytes):
            if len(local) > MOST_INLINE:
                raise HostError(f"{len(local)} bytes are not inline: at most {MOST_INLINE}")
            return SendRequest(opcode, self.number, 0, len(local), flags | INLINE, inline=local)
        check_region(local, self._driver, "a local buffer")
        size = local.length - offset if length is None else length
        if not 0 <= size <= MOST_MESSAGE:
            raise HostError(f"a message has 0 to {MOST_MESSAGE} bytes, not {size}")
        return SendRequest(
            opcode,
            self.number,
            0,
            size,
            flags,
            local_address=local.address + offset,
            lkey=local.key,
        )

    def _remote(self, region: Region, offset: int) -> dict[str, int]:
        """How a request names memory of the peer."""
        if self._peer is not None:
            check_region(region, self._peer, "the memory that a request names at the peer")
        return {"remote_address": region.address + offset, "rkey": region.key}

    def post(
        self,
        request: SendRequest,
        *,
        blueflame: bool = False,
        ring: bool = True,
        id: int | None = None,
    ) -> None:
        """Writes a request of any kind to the ring; its index is set here. HostError for a field
        that has more bits than its place, and for a full ring."""
        _check_fields(request)
        send = self.context.ring
        if self.posted + request.blocks - self._oldest() > send.blocks:
            raise HostError(
                f"the ring of QP {self.number} has {send.blocks} blocks, all in use: wait for "
                "completions, or make it with more"
            )
        driver = self._driver
        driver.charge("verbs_post", driver.costs.post)
        made = _with(request, {"index": self.posted})
        data = made.packed()
        for at in range(0, len(data), BLOCK):
            place = send.address + (self.posted + at // BLOCK) % send.blocks * BLOCK
            driver.computer.write(place, data[at : at + BLOCK])
        driver.remember(self.number, True, self.posted, self.posted if id is None else id)
        self.posted += made.blocks
        if blueflame:
            for at in range(0, len(data), BLOCK):
                register = BLUEFLAME + self._buffer * 256 + at
                driver.store(self.context.page, register, data[at : at + BLOCK])
            self._buffer = (self._buffer + 1) % 4
            self._rung = self.posted
        elif ring:
            self.ring()

    def _oldest(self) -> int:
        """The first block that the adapter has not taken over yet."""
        return self.context.ring.parsed

    def ring(self) -> None:
        """Rings the doorbell for all requests posted so far."""
        if self._rung == self.posted:
            return
        self._rung = self.posted
        self._store_doorbell()

    def ring_again(self) -> None:
        """Rings for what the adapter has not heard of."""
        ring = self.context.ring
        unheard = self._rung - ring.producer & 0xFFFFFFFF
        if self.context.page and 0 < unheard <= ring.blocks:  # not what machine code has rung for
            self._store_doorbell()

    def _store_doorbell(self) -> None:
        value = self.number | (self._rung & 0xFFFFFFFF) << 32
        self._driver.store(self.context.page, DOORBELL, value.to_bytes(8, "little"))

    def receive(
        self, into: Region, length: int | None = None, *, offset: int = 0, id: int | None = None
    ) -> None:
        """Posts a receive request. The adapter looks for it in memory: nothing is rung."""
        qp, driver = self.context, self._driver
        if self._received - qp.next_receive >= qp.receives:
            raise HostError(f"the ring of QP {self.number} has {qp.receives} receives, all in use")
        check_region(into, driver, "a local buffer")
        size = into.length - offset if length is None else length
        if not (0 <= size <= MOST_MESSAGE and 0 <= into.address + offset < 1 << 64):
            raise HostError(
                f"a receive has 0 to {MOST_MESSAGE} bytes and an address of 0 to 2^64 - 1: not "
                f"{size} bytes at offset {offset} of {into.address:#x}"
            )
        request = ReceiveRequest(into.address + offset, size, into.key, self._received)
        driver.charge("verbs_post", driver.costs.post)
        place = qp.receive_address + self._received % qp.receives * 16
        driver.computer.write(place, request.packed(qp.receives))
        driver.remember(self.number, False, self._received, self._received if id is None else id)
        self._received += 1
        if qp.state is QpState.ERROR:
            driver.hca.flush_receives(qp)


def check_region(region: Region, driver: HcaDriver, what: str) -> None:
    """HostError for a region of another adapter, whose key may be that of a region here."""
    if region.registry is not driver.registry:
        here, there = str(driver.hca), str(region.registry.driver.hca)
        other = ", of another computer with that name" if here == there else ""
        raise HostError(
            f"{what} is registered at {here}, and not at {there}{other}: each adapter has keys of "
            "its own"
        )


_BITS = {"immediate": 32, "operand": 64, "swap": 64, "local_address": 64, "remote_address": 64}


def _check_fields(request: SendRequest) -> None:
    """HostError for a number that does not fit into its place in memory."""
    for name, bits in _BITS.items():
        value = getattr(request, name)
        if not 0 <= value < 1 << bits:
            what = name.replace("_", " ")
            raise HostError(
                f"the {what} of a request has {bits} bits, 0 to {(1 << bits) - 1:#x}: {value:#x} "
                f"does not fit; take it modulo 2^{bits} if that is meant"
            )


def _with(request: SendRequest, changes: dict[str, int]) -> SendRequest:
    return SendRequest(**{**request.__dict__, **changes})
