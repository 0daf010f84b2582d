# SPDX-License-Identifier: Apache-2.0
"""From one computer's memory to another's by SEND, WRITE and READ, and a disk of another computer.

The adapters, their links and the wire are those of verbena.host.hca. The programs that post and
poll are Python; the driver's named costs are charged to the cores when they do. Each way runs once
before it is measured, so that the adapters' translation caches are warm. ``ways.py`` lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from verbena.host.clock import NEVER
from verbena.host.comparison.disk_ways import charge_interrupts, content_of
from verbena.host.comparison.drivers import DISK
from verbena.host.comparison.recording import Recording
from verbena.host.comparison.rows import Reading, Row, Side
from verbena.host.comparison.settings import Setup, checked_size
from verbena.host.costs import Costs
from verbena.host.disk import ADDRESS, BLOCK, COMMAND, COUNT, ENABLE, READ_DMA, Disk
from verbena.host.errors import HostError
from verbena.host.hca import Node, Region, Wire, connected
from verbena.host.hca.device import PAGE
from verbena.host.hca.driver import Completion
from verbena.host.hca.formats import CQE_BYTES, parse_completion

_BUFFER = 0x10_0000
_TRANSLATIONS = 2048  # entries of the translation cache, more where the buffer has more pages
_TABLE_PAGES = 16384  # of the translation table, more where the buffer and messages have more
_OTHER_PAGES = 64
_TIMEOUT_US = 1e6  # longer than any cold transfer takes: the wire loses nothing
_COMMAND = bytes(64)  # what asks for the disk's blocks, and what answers


class Pair:
    """Two connected computers, here and there, with a buffer each."""

    def __init__(self, setup: Setup, size: int, recording: Recording | None) -> None:
        self.setup, self.size, self.recording = setup, checked_size(size), recording
        wire = Wire(setup.gbps, setup.wire_us * 1000)
        pages = -(-size // PAGE) + _OTHER_PAGES
        ram = max(16 << 20, 2 * (-(-size // 4096) * 4096 + (2 << 20)))
        self.wire = wire
        self.here, self.there = connected(
            wire=wire,
            ghz=setup.ghz,
            pcie=setup.pcie,
            ram=ram,
            charged=True,
            hca={"translations": max(_TRANSLATIONS, pages)},
            driver={"table_pages": max(_TABLE_PAGES, pages)},
            queue_pair={"timeout_us": _TIMEOUT_US},
        )
        self.here.computer.name, self.there.computer.name = "here", "there"
        self.mine = self.here.register(_BUFFER, size)
        self.theirs = self.there.register(_BUFFER, size)

    @property
    def now(self) -> int:
        """The time of the core that is furthest, in ps."""
        return self.here.machines.now

    def until(self, holds: Callable[[], bool]) -> None:
        """Runs event by event until a condition holds."""
        machines = self.here.machines
        while not holds():
            if machines.clock.next_at == NEVER:
                raise HostError("nothing happens any more, and the transfer is not complete")
            machines.run(until=machines.clock.next_at)

    def completed(self, node: Node) -> list[Completion]:
        """Waits for a completion at a node and polls it."""
        ring = node.cq.ring

        def is_there() -> bool:
            data = node.computer.read(ring.place(node.cq.taken), CQE_BYTES)
            return parse_completion(data, node.cq.taken, ring.entries) is not None

        self.until(is_there)
        found = node.cq.poll()
        if failed := [one for one in found if one.is_error]:
            raise HostError(f"a request failed: {failed[0].entry.status!r}")
        return found

    def level(self) -> None:
        """Lets both cores be idle up to the time that the later one has reached."""
        now = self.now
        for node in (self.here, self.there):
            node.computer.idle_until(now)
        self.here.machines.clock.run_due(now)

    def fill(self, node: Node, data: bytes) -> None:
        """Sets a node's buffer."""
        node.computer.write(_BUFFER, data)


def _measured(way: str, pair: Pair, transfer: Callable[[], Side], arrives: Node) -> Row:
    """Runs a transfer twice and measures the second.

    ``transfer`` returns what was charged there beside the driver's costs.
    """
    nodes = {"here": pair.here, "there": pair.there}
    machines = pair.here.machines
    transfer()
    machines.run()
    pair.level()
    pair.fill(arrives, bytes(pair.size))
    before = {name: Reading.of(one.computer, pair.setup.ghz) for name, one in nodes.items()}
    spent = {name: dict(one.driver.spent) for name, one in nodes.items()}
    start, busy = pair.now, list(pair.wire.busy_ps)
    if pair.recording is not None:
        pair.recording.begin(start, machines.timeline())
    more = transfer()
    end = max(pair.now, _landed_at(arrives))
    machines.run()
    if pair.recording is not None:
        pair.level()
        pair.recording.end()
    if arrives.computer.read(_BUFFER, pair.size) != content_of(pair.size):
        raise HostError(f"{way}: the bytes did not arrive")
    sides = {}
    for name, node in nodes.items():
        was = spent[name]
        charged = {key: value - was.get(key, 0) for key, value in node.driver.spent.items()}
        charged = {key: value for key, value in charged.items() if value}
        side = Reading.of(node.computer, pair.setup.ghz).since(before[name])
        extra = more if name == "there" else Side()
        charged |= extra.charged
        sides[name] = Side(
            cycles=sum(charged.values()),
            instructions=side.instructions,
            charged=charged,
            interrupts=extra.interrupts,
            to_device=side.to_device,
            to_memory=side.to_memory,
        )
    demands = {
        f"the wire from {name}": now - was
        for name, now, was in zip(nodes, pair.wire.busy_ps, busy, strict=True)
    }
    if more.interrupts:
        demands["the disk's medium"] = round(pair.setup.disk_us * 1e6)
    return Row(
        way, pair.size, end - start, pair.setup.ghz, sides["here"], sides["there"], demands=demands
    )


def by_write(setup: Setup, size: int, recording: Recording | None = None) -> Row:
    """An RDMA WRITE from here into memory there."""
    pair = Pair(setup, size, recording)
    pair.fill(pair.here, content_of(size))

    def transfer() -> Side:
        pair.here.qp.write(pair.mine, pair.theirs)
        pair.completed(pair.here)
        return Side()

    return _measured("write", pair, transfer, pair.there)


def by_read(setup: Setup, size: int, recording: Recording | None = None) -> Row:
    """An RDMA READ from memory there into memory here."""
    pair = Pair(setup, size, recording)
    pair.fill(pair.there, content_of(size))

    def transfer() -> Side:
        pair.here.qp.read(pair.mine, pair.theirs)
        pair.completed(pair.here)
        return Side()

    return _measured("read", pair, transfer, pair.here)


def by_send(setup: Setup, size: int, recording: Recording | None = None) -> Row:
    """A SEND from here into the receive buffer there; both sides poll their completion."""
    pair = Pair(setup, size, recording)
    pair.fill(pair.here, content_of(size))

    def transfer() -> Side:
        pair.there.qp.receive(pair.theirs)
        pair.here.qp.send(pair.mine)
        pair.completed(pair.there)
        pair.completed(pair.here)
        return Side()

    return _measured("send", pair, transfer, pair.there)


def by_remote_disk(setup: Setup, size: int, recording: Recording | None = None) -> Row:
    """A disk there: a command by SEND, its DMA, an RDMA WRITE into memory here, an answer."""
    pair = Pair(setup, size, recording)
    block = gcd(size, 512)
    disk = Disk(content_of(size), block=block, latency_us=setup.disk_us)
    pair.there.computer.map(disk, DISK, pcie=setup.pcie)
    messages: dict[str, Region] = {}
    for name, node in (("here", pair.here), ("there", pair.there)):
        messages[name] = node.register(0x8_0000, len(_COMMAND))
    charge_interrupts(pair.there.computer)

    def transfer() -> Side:
        pair.fill(pair.there, bytes(size))
        pair.here.qp.receive(messages["here"])
        pair.there.qp.receive(messages["there"])
        pair.here.qp.send(_COMMAND, signalled=False)
        pair.completed(pair.there)
        sent = pair.there.computer.counters.interrupts_sent
        stores = ((ENABLE, 1), (BLOCK, 0), (COUNT, size // block), (ADDRESS, _BUFFER),
                  (COMMAND, READ_DMA))  # fmt: skip
        for register, value in stores:
            pair.there.computer.store(DISK + register, value.to_bytes(8, "little"))
        counters = pair.there.computer.counters
        pair.until(lambda: counters.interrupts_sent > sent and _is_quiet(disk, pair.now))
        pair.there.qp.write(pair.theirs, pair.mine, signalled=False)
        pair.there.qp.send(_COMMAND, signalled=False)
        pair.completed(pair.here)
        return Side(charged={"hard_irq": round(Costs().cycles("hard_irq"))}, interrupts=1)

    return _measured("remote-disk", pair, transfer, pair.here)


def _landed_at(node: Node) -> int:
    """When the last bytes that a node's adapter has written so far are in memory, in ps.

    A WRITE is acknowledged as soon as its bytes are in the adapter there: they may still queue for
    the link to memory when the sender has its completion.
    """
    return node.slot.up.free_at + node.slot.half_ps


def _is_quiet(disk: Disk, now: int) -> bool:
    """Whether the disk's interrupt has arrived: it is the last thing that its link carries."""
    assert disk.slot is not None
    return disk.slot.up.free_at + disk.slot.half_ps <= now
