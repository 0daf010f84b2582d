# SPDX-License-Identifier: Apache-2.0
"""An RDMA adapter that processes share without the kernel: each has registers and queues.

    doors = HcaDoors(HcaDriver(hca, (0x2000_0000, 8 << 20)))
    opened = doors.open(process)          # before the process runs
    opened.qp.connect(peer)

The kernel takes part in ``open``, by the process's page tables, and in the end of the process, with
which its queue pair and its registrations end. Between the two the process writes requests to its
ring, stores to its doorbell, and finds completions in its memory. The registers and queues of other
processes are not in its address space, so that an access to them is a page fault.
"""

from __future__ import annotations

import struct
from functools import partial

from verbena._arguments import checked_class
from verbena.host.errors import HostError, HostTypeError
from verbena.host.hca.device import ARM, BLUEFLAME, DOORBELL
from verbena.host.hca.driver import CompletionQueue, HcaDriver
from verbena.host.hca.pages import ResidentPages
from verbena.host.hca.posting import QueuePair
from verbena.host.hca.regions import Region
from verbena.host.hca.tables import EVERYTHING, HcaAccess
from verbena.host.kernel.layout import PAGE, USER_BASE
from verbena.host.kernel.page_tables import NO_EXECUTE, USER, WRITABLE
from verbena.host.kernel.process import Process

HCA_INFO = 0x5000_0000  # where a process finds what it has of the adapter; it may only read there
_REGISTERS = HCA_INFO + PAGE
_QUEUES = HCA_INFO + 2 * PAGE
# Words of 8 bytes from HCA_INFO on. HCA_TAKEN is where the process says how many completions it
# has taken, HCA_KEY the key of its own memory.
INFO_FIELDS = (
    "HCA_QP", "HCA_KEY", "HCA_SEND_RING", "HCA_SEND_BLOCKS", "HCA_RECEIVE_RING", "HCA_RECEIVES",
    "HCA_COMPLETIONS", "HCA_COMPLETION_ENTRIES", "HCA_TAKEN",
)  # fmt: skip


def hca_equates() -> str:
    """The names for a program: of the words from ``HCA_INFO`` on, and of its registers."""
    places = {name: HCA_INFO + 8 * place for place, name in enumerate(INFO_FIELDS)}
    places |= {
        "HCA_DOORBELL": _REGISTERS + DOORBELL,
        "HCA_ARM": _REGISTERS + ARM,
        "HCA_BLUEFLAME": _REGISTERS + BLUEFLAME,
    }
    return "\n".join(f"{name} equ {place:#x}" for name, place in places.items())


@checked_class(HostTypeError)
class UserHca:
    """What a process has of an adapter: ``page`` of its registers, a queue pair, its memory's key.

    It ends with the process, as the kernel closes what it has open, or before by ``close``.
    """

    def __init__(
        self,
        doors: HcaDoors,
        process: Process,
        page: int,
        cq: CompletionQueue,
        qp: QueuePair,
        memory: Region,
    ) -> None:
        self._doors, self.process, self.page = doors, process, page
        self.cq, self.qp, self.memory = cq, qp, memory
        self._regions = [memory]
        self.is_open = True

    def register(self, address: int, length: int, access: HcaAccess = EVERYTHING) -> Region:
        """Registers a part of the process's memory, by its own addresses, with other rights."""
        if not self.is_open:
            raise HostError(f"{self.process.title} has given its part of the adapter back")
        region = self._doors.registered(self.process, address, length, access)
        self._regions.append(region)
        return region

    def close(self) -> None:
        """Takes its keys back and ends its queue pair.

        The page stays the process's until another process gets its memory, since its address space
        has it.
        """
        if not self.is_open:
            return
        self.is_open = False
        for region in self._regions:
            if region.is_registered:
                region.deregister()
        self._doors.driver.hca.end(self.qp.context)
        self.qp.context.page = 0  # no page rings for it any more


@checked_class(HostTypeError)
class HcaDoors:
    """Gives processes pages of the registers of the adapter of ``driver``, which has ``pages``."""

    def __init__(self, driver: HcaDriver) -> None:
        self.driver = driver
        self._free = list(range(1, driver.hca.pages + 1))

    def open(
        self, process: Process, *, entries: int = 64, blocks: int = 64, receives: int = 64
    ) -> UserHca:
        """Makes queues of these sizes and maps them, and a page of registers, into a process.

        All memory of the process is registered. The memory of its queues is used by no other after
        it. HostError if every page is given, if the driver's memory has no room, or if the process
        is on another computer, has ended, or has the adapter already.
        """
        driver = self.driver
        if process.computer is not driver.computer:
            raise HostError(
                f"{process.title} runs on {process.computer.name!r}, and the adapter is in "
                f"{driver.computer.name!r}"
            )
        if process.has_ended:
            raise HostError(
                f"{process.title} has ended: open the adapter for a process before it runs"
            )
        if process.space.is_mapped(HCA_INFO):
            raise HostError(f"{process.title} has its part of the adapter already")
        if not self._free:
            raise HostError(
                f"all {driver.hca.pages} pages of registers are given to processes: make the Hca "
                "with more pages"
            )
        page = self._free.pop(0)
        try:
            opened = self._made(process, page, entries, blocks, receives)
        except HostError:
            self._free.insert(0, page)
            raise
        process.when_ended(opened.close)
        process.at_end.append(partial(self._free.append, opened.page))
        return opened

    def _made(
        self, process: Process, page: int, entries: int, blocks: int, receives: int
    ) -> UserHca:
        """The queues, which have pages of memory of their own, as two processes share none."""
        driver = self.driver
        info = driver.memory.take(PAGE, PAGE)
        cq = driver.completion_queue(entries, page=page)
        qp = driver.queue_pair(cq, page=page, blocks=blocks, receives=receives)
        end = driver.memory.take(0, PAGE)
        memory = self.registered(process, USER_BASE, process.size, EVERYTHING)
        opened = UserHca(self, process, page, cq, qp, memory)
        self._map(opened, info, end)
        return opened

    def _map(self, opened: UserHca, info: int, end: int) -> None:
        space, queues = opened.process.space, info + PAGE
        rights = WRITABLE | USER | NO_EXECUTE
        space.map(HCA_INFO, info, PAGE, USER | NO_EXECUTE)
        space.map(_REGISTERS, self.driver.page_address(opened.page), PAGE, rights)
        space.map(_QUEUES, queues, end - queues, rights)
        ring, completions = opened.qp.context, opened.cq.ring

        def linear(physical: int) -> int:
            return physical - queues + _QUEUES

        words = (
            opened.qp.number, opened.memory.key, linear(ring.ring.address), ring.ring.blocks,
            linear(ring.receive_address), ring.receives, linear(completions.address),
            completions.entries, linear(completions.record),
        )  # fmt: skip
        data = struct.pack(f"<{len(INFO_FIELDS)}Q", *words)
        self.driver.computer.write(info, data.ljust(PAGE, b"\0"))

    def registered(self, process: Process, address: int, length: int, access: HcaAccess) -> Region:
        """A region of a process's memory, by its own addresses; HostError if it is not all its."""
        process.check_owned(address, length)
        pages = ResidentPages(process.base - USER_BASE)
        return self.driver.register(address, length, access, pages=pages)
