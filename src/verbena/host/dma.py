# SPDX-License-Identifier: Apache-2.0
"""DMA of a computer's devices: link, IOMMU, caches and memory, in that order.

``Computer.dma_write`` and ``dma_read`` call it. A link's writes become visible in the order in
which they were made, and a read or an interrupt does not pass them (PCI Express Base 3.0, 2.4.1),
also where the IOMMU delays one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from verbena.host.devices import Ram
from verbena.host.errors import AccessError, HostTypeError
from verbena.host.iommu import IommuFault
from verbena.host.pcie import Slot

if TYPE_CHECKING:
    from verbena.host.computer import Computer
    from verbena.host.devices import Device
    from verbena.host.iommu import Iommu

Parts = list[tuple[int, int]]  # physical address and size
_PAGE = 4096


@dataclass
class _Reads:
    """The reads of a link with an IOMMU: tags in use, and reads with requests that wait for one.
    Each call of a read's iterator makes its next request."""

    tags: int = 0
    waiting: deque[Iterator[None]] = field(default_factory=deque)

    def go_on(self, tags: int) -> None:
        """Makes requests, in the order of the reads, as far as ``tags`` are free."""
        while self.waiting and self.tags < tags:
            first = self.waiting[0]
            if next(first, first) is first:  # it has made all of its requests
                self.waiting.popleft()


def _call(device: Device, then: Callable[..., None], *arguments: bytes) -> None:
    """Calls what a device wanted to be called. HostTypeError if it takes other arguments."""
    try:
        then(*arguments)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise  # of what it does
        takes = "the bytes" if arguments else "no argument"
        raise HostTypeError(
            f"{device!r}: what it gave to DMA as then is called with {takes}, and {then!r} cannot "
            f"be: {error}"
        ) from None


class Dma:
    """The way from devices to one computer's memory."""

    def __init__(self, computer: Computer) -> None:
        self._computer = computer
        self._settled: dict[int, int] = {}  # link: when its last write is in memory
        self._reads: dict[int, _Reads] = {}
        # Accesses by their first and last page of 4096 bytes.
        self._under_way: Counter[tuple[int, int]] = Counter()

    def settled_at(self, slot: Slot) -> int:
        """When all writes that a link has carried are in memory, in ps."""
        return self._settled.get(id(slot), 0)

    def is_under_way(self, page: int) -> bool:
        """Whether a device reads or writes a page now: 4096 bytes, at what devices know it as."""
        return any(first <= page // _PAGE <= last for first, last in self._under_way)

    def _begin(self, address: int, size: int) -> None:
        self._under_way[address // _PAGE, (address + size - 1) // _PAGE] += 1

    def _end(self, address: int, size: int) -> None:
        pages = address // _PAGE, (address + size - 1) // _PAGE
        self._under_way[pages] -= 1
        if not self._under_way[pages]:
            del self._under_way[pages]

    def _fail(self, device: Device, error: AccessError) -> None:
        """Tells the device, and in the error which store to a device has led to the DMA."""
        if (cause := self._computer.clock.cause) is not None:
            cause.name_in(error)
        device.dma_failed(error)

    # ---- writes ----

    def _no_memory(
        self, device: Device, verb: str, address: int, size: int, who: str | None = None
    ) -> AccessError:
        found = self._computer.find(address)
        return AccessError(
            f"{who or repr(device)} {verb} {size} bytes by DMA "
            f"{'to' if verb == 'wrote' else 'at'} {address:#x}, where there is no memory"
            + (f" from {found.end:#x} on" if found and isinstance(found.device, Ram) else "")
        )

    def write(
        self,
        device: Device,
        address: int,
        data: bytes,
        then: Callable[[], None] | None,
        who: str | None = None,
    ) -> None:
        """Writes ``data`` to what the device knows as ``address``, and then calls ``then``.

        Errors name ``who``, or the device.
        """
        computer, bus, slot, iommu = self._computer, device.bus, device.slot, device.iommu
        self._begin(address, len(data))
        drops = device.dma_drops

        def land(parts: Parts) -> None:
            self._end(address, len(data))
            if device.dma_drops != drops:
                return
            offset = 0
            for physical, size in parts:
                if not computer.memory.write(physical, data[offset : offset + size]):
                    self._fail(device, self._no_memory(device, "wrote", physical, size, who))
                    return
                if computer.caches is not None:
                    computer.caches.dma_write(physical, size)
                computer.show_memory("write", physical, size)
                offset += size
            computer.counters.dma_written_bytes += len(data)
            if then is not None:
                _call(device, then)

        def dropped(arrived: int) -> None:
            self._end(address, len(data))
            if arrived and computer.memory.write(address, data[:arrived]):
                if computer.caches is not None:
                    computer.caches.dma_write(address, arrived)
                computer.show_memory("write", address, arrived)
                computer.counters.dma_written_bytes += arrived

        def translated(iommu: Iommu, slot: Slot) -> None:
            if device.dma_drops != drops:
                self._end(address, len(data))
                return
            try:
                ready, parts = iommu.translate(
                    computer.now,
                    address,
                    len(data),
                    write=True,
                    who=who or type(device).__name__,
                )
            except IommuFault as fault:
                self._end(address, len(data))
                self._fail(device, fault)
                return
            ready = max(ready, self.settled_at(slot))
            self._settled[id(slot)] = ready
            computer.at(ready, lambda: land(parts))

        def landed() -> None:
            if device.dma_drops != drops and slot is None and bus is not None:
                dropped(len(data))  # the bridge of a PCI bus has all of it
            else:
                land([(address, len(data))])

        if bus is None:
            computer.at(computer.now, landed)
        elif iommu is None or slot is None:
            bus.carry_to_memory(computer.now, len(data), address, computer.at, landed, dropped)
        else:
            arrives = slot.write_to_memory(computer.now, len(data), address)
            computer.at(arrives, lambda: translated(iommu, slot))

    # ---- reads ----

    def read(self, device: Device, address: int, size: int, then: Callable[[bytes], None]) -> None:
        """Reads what the device knows as ``address``, and calls ``then`` with the bytes."""
        computer, bus, slot, iommu = self._computer, device.bus, device.slot, device.iommu
        self._begin(address, size)
        if slot is not None and iommu is not None and size:
            self._read_translated(device, slot, iommu, address, size, then)
            return

        drops = device.dma_drops

        def arrived() -> None:
            self._end(address, size)
            if device.dma_drops != drops:
                return
            data = self._fetched(device, [(address, size)])
            if data is not None:
                _call(device, then, data)

        if bus is None:
            computer.at(computer.now, arrived)
        elif size and computer.memory.find(address, size) is None:
            bus.refuse_read(computer.now, size, address, computer.at, arrived)
        else:
            bus.carry_to_device(computer.now, size, address, computer.at, arrived)

    def _fetched(self, device: Device, parts: Parts) -> bytes | None:
        """The bytes of memory; None: there are none, and the device knows."""
        found = []
        for physical, size in parts:
            data = self._computer.memory.read(physical, size)
            if data is None:
                self._fail(device, self._no_memory(device, "read", physical, size))
                return None
            self._computer.counters.dma_read_bytes += size
            self._computer.show_memory("read", physical, size)
            found.append(data)
        return b"".join(found)

    def _read_translated(
        self,
        device: Device,
        slot: Slot,
        iommu: Iommu,
        address: int,
        size: int,
        then: Callable[[bytes], None],
    ) -> None:
        """Each request waits for a tag, crosses the link, and for its translation there."""
        computer = self._computer
        reads = self._reads.setdefault(id(slot), _Reads())
        found: dict[int, bytes] = {}
        left = -(-size // slot.link.mrrs)
        has_failed = False
        drops = device.dma_drops

        def end_request() -> None:
            reads.tags -= 1
            reads.go_on(slot.link.tags)

        def fail(error: AccessError) -> None:
            """The first request that cannot be answered ends all of them."""
            nonlocal has_failed
            has_failed = True
            self._end(address, size)
            self._fail(device, error)

        def has_ended() -> bool:
            """Whether the read has failed, or the device has: the first request that sees that
            ends all of them."""
            nonlocal has_failed
            if device.dma_drops != drops and not has_failed:
                has_failed = True
                self._end(address, size)
            return has_failed

        def issue() -> Iterator[None]:
            for where, part in slot.requests(size, address):
                if has_ended():
                    return
                reads.tags += 1
                asked = slot.ask(computer.now, part, where)
                computer.at(asked + slot.half_ps, partial(translate, where, part))
                yield

        def translate(where: int, part: int) -> None:
            if has_ended():
                end_request()
                return
            try:
                ready, parts = iommu.translate(
                    computer.now, where, part, write=False, who=type(device).__name__
                )
            except IommuFault as fault:
                end_request()
                fail(fault)
                return
            computer.at(max(ready, self.settled_at(slot)), lambda: answer(where, part, parts))

        def answer(where: int, part: int, parts: Parts) -> None:
            if has_ended():
                end_request()
                return
            absent = next((one for one in parts if not computer.memory.find(*one)), None)
            if absent is not None:
                end_request()
                fail(self._no_memory(device, "read", *absent))
                return
            data = self._fetched(device, parts)
            assert data is not None
            done = slot.answer(computer.now, part, where) + slot.half_ps
            computer.at(done, lambda: complete(where, data))

        def complete(where: int, data: bytes) -> None:
            nonlocal left
            found[where] = data
            left -= 1
            end_request()
            if left == 0 and not has_ended():
                self._end(address, size)
                _call(device, then, b"".join(found[key] for key in sorted(found)))

        reads.waiting.append(issue())
        reads.go_on(slot.link.tags)
