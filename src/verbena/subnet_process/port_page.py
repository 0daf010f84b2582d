# SPDX-License-Identifier: Apache-2.0
"""The page that a fabric's process shares with the programs at its hosts (port/fabric.h).

It has a record of each host's port, which the library shows its program, and the flows: for each
address to which a queue pair sends, which port is reached, and what was sent. ``PortPage`` serves
role PAGE and is a duty of the server: after each round of the loop it writes what has changed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import secrets
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verbena.manage.agents import Drop, PortEvent
from verbena.manage.codes import PortState
from verbena.manage.errors import MadError

from .data_flows import DataWay, Judgement, charge, judge, loss_sentence
from .link_meters import METER_BYTES, NO_METERS, LinkMeters, LinkWaits
from .messages import Welcome
from .port_records import RECORD_BYTES, port_record

if TYPE_CHECKING:
    from verbena.manage.agents import NodeAgent, NodePort

    from .live_subnet import LiveSubnet
    from .server import FabricConnection

__all__ = ["PortPage"]

LINE, FLOWS, GROUPS = 64, 1 << 16, 1 << 10
FLOW_BYTES = 8 * LINE
GROUP = 0xFFFF_FFFF
FOR_CALLS, FOR_NEWS, FOR_A_LOOK = range(3)
ASK, RELEASE = 1, 2
_WELCOME = struct.Struct("=6QII")
_CALL = struct.Struct("=IIQIHBBHBB16sII4x")
_ANSWER = struct.Struct("=IIQ")
_NEWS = struct.Struct("=Ii")
_COUNTS = struct.Struct("=23Q")
LOSS_AT, LIMITED_AT, COUNTS_AT, RANDOM_AT, SENTENCE_AT, SENTENCE_BYTES = 8, 12, 16, 200, 208, 232
METERS_AT = 440
NOTHING = (0,) * 23
MOST_LOSS = (1 << 32) - 1
CALLS_AT_ONCE = 64
MOST_AT_ONCE = 1 << 56  # packets, words or nanoseconds since the last look: two years are less
LOOK_SECONDS, LONGEST_DELAY = 1.0, 0.5
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
"""A program that made the page shorter would end the process by SIGBUS."""
NO_EVENT = -1
PORT_ACTIVE, PORT_ERROR = 9, 10
EVENTS = {  # enum ibv_event_type
    PortEvent.LID: 11,
    PortEvent.P_KEYS: 12,
    PortEvent.SM: 13,
    PortEvent.CLIENT_REREGISTER: 17,
    PortEvent.GUIDS: 18,
}


@dataclass(eq=False)
class _Flow:
    """A flow of a program; ``seen`` are the counts that the ports have already."""

    owner: FabricConnection
    origin: NodePort
    way: DataWay
    verdict: Judgement
    group: int | None = None
    seen: tuple[int, ...] = NOTHING


class PortPage:
    """The page of a fabric. ``name`` is the fabric's."""

    def __init__(self, live: LiveSubnet, name: str) -> None:
        self._live, self._subnet, self._name = live, live.subnet, name
        nodes = [node for node in live.subnet.nodes.values() if not node.is_switch]
        ends = [port for node in nodes for port in node.end_ports()]
        self._index = {port: index for index, port in enumerate(ends)}
        self._identity = secrets.randbelow(0xFFFE) + 1 << 16
        self._lay_out(len(ends))
        self._waits = LinkWaits(lambda: live.now)
        self._states = [int(port.state) for port in ends]
        self._generations = [0] * len(ends)
        self._flows: dict[int, _Flow] = {}
        self._free = iter(range(FLOWS))
        self._returned: list[int] = []
        self._free_groups = list(range(GROUPS))[::-1]
        self._hearers: dict[NodeAgent, list[FabricConnection]] = {}
        self._news: list[tuple[NodePort, int]] = []
        self._routes_changed = False
        self._judge_from = 0.0
        self._others = live.subnet.on_port_event
        live.subnet.on_port_event = self._port_event
        live.subnet.on_routes_changed = self._note_routes
        live.subnet.on_read_counters = self.fold
        for port in ends:
            self._write_record(port)

    def _lay_out(self, ports: int) -> None:
        self._flows_at = LINE + -(-ports * RECORD_BYTES // LINE) * LINE
        self._members_at = self._flows_at + FLOWS * FLOW_BYTES
        self._stride = -(-ports // 8)
        self._meters_at = -(-(self._members_at + GROUPS * self._stride) // LINE) * LINE
        cabled = [
            port
            for node in self._subnet.nodes.values()
            for port in node.ports.values()
            if port.peer is not None
        ]
        self._meter_count = len(cabled)
        end = self._meters_at + len(cabled) * METER_BYTES
        self._size = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
        self._fd = os.memfd_create("verbena-fabric", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._fd, self._size)
        fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, _SEALS)
        self._page = mmap.mmap(self._fd, self._size)
        self._words = memoryview(self._page).cast("I")
        self._meters = LinkMeters(self._words, self._meters_at, cabled)

    def close(self) -> None:
        """Release the page. Programs keep theirs."""
        self._words.release()
        self._page.close()
        os.close(self._fd)

    # ---- role PAGE -----------------------------------------------------------------------------

    def open(self, connection: FabricConnection) -> Welcome | None:
        """Attach a program to a host: a connection for its calls, and one for news."""
        try:
            node = self._live.host(connection.hello.host)
        except MadError as error:
            return Welcome.refused(errno.ENODEV, str(error))
        welcome = Welcome(0, self._described(node))
        if connection.hello.number == FOR_CALLS:
            connection.on_readable = lambda: self._serve(connection, node)
            connection.on_close = lambda: self._leave(connection)
            connection.welcome(welcome, [self._fd])
            return None
        if connection.hello.number == FOR_NEWS:
            self._hearers.setdefault(node, []).append(connection)
            connection.on_readable = lambda: self._hear(connection)
            connection.on_close = lambda: self._hearers[node].remove(connection)
        return welcome

    def programs(self) -> dict[str, list[int]]:
        """Return the processes that have a device open, by the names of their hosts."""
        return {
            node.name: sorted({each.pid for each in hearers})
            for node, hearers in self._hearers.items()
            if hearers
        }

    def _described(self, node: NodeAgent) -> bytes:
        ports = list(node.end_ports())[:2]  # as many as a device of the library has
        first = self._index[ports[0]] * RECORD_BYTES
        head = _WELCOME.pack(
            node.guid,
            self._size,
            first,
            self._flows_at,
            self._members_at,
            self._meters_at,
            len(ports),
            self._meter_count,
        )
        return head + self._page[first : first + len(ports) * RECORD_BYTES]

    def _hear(self, connection: FabricConnection) -> None:
        """A program sends nothing by its connection for news, but its end."""
        with contextlib.suppress(BlockingIOError):
            connection.sock.recv(1)
            connection.close()

    def _serve(self, connection: FabricConnection, node: NodeAgent) -> None:
        for _ in range(CALLS_AT_ONCE):
            try:
                raw = connection.sock.recv(_CALL.size + 1)
            except BlockingIOError:
                return
            except OSError:
                raw = b""
            if len(raw) != _CALL.size:
                connection.server.refused += bool(raw)  # no bytes are its end
                connection.close()
                return
            kind, sequence, at, *way = _CALL.unpack(raw)
            self._call(connection, node, kind, sequence, at, DataWay(*way))

    def _call(
        self,
        connection: FabricConnection,
        node: NodeAgent,
        kind: int,
        sequence: int,
        at: int,
        way: DataWay,
    ) -> None:
        slot = (at - self._flows_at) // FLOW_BYTES
        flow = self._flows.get(slot)
        if flow is not None and flow.owner is not connection:
            flow = None
        if kind == RELEASE:
            if flow is not None:
                self._release(slot)
            return
        answer = _ANSWER.pack(sequence, 0, self._ask(connection, node, way))
        with contextlib.suppress(OSError):  # the loop will hear that it is closed
            connection.sock.send(answer)

    # ---- flows ---------------------------------------------------------------------------------

    def _ask(self, connection: FabricConnection, node: NodeAgent, way: DataWay) -> int:
        """Make a flow and return where it is in the page; 0: there is no room."""
        origin = node.ports.get(way.port)
        if origin is None:
            return 0
        slot = self._returned.pop() if self._returned else next(self._free, None)
        if slot is None:
            return 0
        flow = _Flow(connection, origin, way, judge(origin, way, moves=True))
        self._flows[slot] = flow
        at = self._flows_at + slot * FLOW_BYTES
        self._page[at : at + FLOW_BYTES] = bytes(FLOW_BYTES)
        seed = self._subnet.random.getrandbits(64).to_bytes(8, "little")
        self._page[at + RANDOM_AT : at + RANDOM_AT + 8] = seed
        used = (self._flows_at - LINE) // 4
        self._words[used] = max(self._words[used], slot + 1)
        self._show(slot, flow)
        return at

    def _show(self, slot: int, flow: _Flow) -> None:
        """Write where a flow leads."""
        at = (self._flows_at + slot * FLOW_BYTES) // 4
        ends = [self._index[end] for end in flow.verdict.ends if end in self._index]
        if flow.verdict.problem is not None or flow.verdict.loss:
            self._say(slot, flow)
        self._words[at + LOSS_AT // 4] = min(round(flow.verdict.loss * (1 << 32)), MOST_LOSS)
        meters = self._meters.numbers(flow.verdict.links, flow.verdict.back_links)
        self._page[4 * at + METERS_AT : 4 * at + METERS_AT + len(meters)] = meters
        self._words[at + LIMITED_AT // 4] = meters != NO_METERS
        if not flow.verdict.multicast:
            self._words[at] = self._identity | ends[0] + 1 if ends else 0
            return
        if flow.group is None and self._free_groups:
            flow.group = self._free_groups.pop()
        if flow.group is None:
            return  # 1024 groups at once; its datagrams are lost
        bits = bytearray(self._stride)
        for index in ends:
            bits[index // 8] |= 1 << index % 8
        members = flow.group * self._stride
        start = self._members_at + members
        self._page[start : start + self._stride] = bytes(bits)
        self._words[at + 1] = members
        self._words[at] = GROUP

    def _say(self, slot: int, flow: _Flow) -> None:
        """Write why what goes by a flow is lost."""
        text = loss_sentence(self._subnet, flow.origin, flow.way, flow.verdict, self._name)
        at = self._flows_at + slot * FLOW_BYTES + SENTENCE_AT
        sentence = text.encode()[: SENTENCE_BYTES - 1]
        self._page[at : at + SENTENCE_BYTES] = sentence.ljust(SENTENCE_BYTES, b"\0")

    def _release(self, slot: int) -> None:
        flow = self._flows.pop(slot)
        self._fold_one(slot, flow)
        self._words[(self._flows_at + slot * FLOW_BYTES) // 4] = 0
        if flow.group is not None:
            self._free_groups.append(flow.group)
        self._returned.append(slot)

    def _leave(self, connection: FabricConnection) -> None:
        for slot in [slot for slot, flow in self._flows.items() if flow.owner is connection]:
            self._release(slot)

    def _fold_one(self, slot: int, flow: _Flow) -> bool:
        """Add what was sent since the last time to the counters. Returns whether it was any."""
        counts = _COUNTS.unpack_from(self._page, self._flows_at + slot * FLOW_BYTES + COUNTS_AT)
        if counts == flow.seen:
            return False
        fresh = tuple(now - before for now, before in zip(counts, flow.seen, strict=True))
        flow.seen = counts
        if min(fresh) < 0 or max(fresh) > MOST_AT_ONCE:  # the program has written anything there
            flow.owner.server.refused += 1
            return False
        *sent, waited, back_waited = fresh
        charge(self._subnet, flow.way, flow.origin, flow.verdict, tuple(sent))
        self._waits.add(flow.verdict.links, waited)
        self._waits.add(flow.verdict.back_links, back_waited)
        return True

    def fold(self) -> None:
        """Add what programs have sent to the counters of the ports on the ways."""
        for slot, flow in self._flows.items():
            self._fold_one(slot, flow)
        self._waits.settle()

    # ---- what changes --------------------------------------------------------------------------

    def _note_routes(self) -> None:
        self._routes_changed = True

    def _port_event(self, port: NodePort, event: PortEvent) -> None:
        if self._others is not None:
            self._others(port, event)
        index = self._index.get(port)
        if index is None:
            return
        number = EVENTS.get(event, NO_EVENT)
        if event is PortEvent.STATE:
            was, now = self._states[index], int(port.state)
            self._states[index] = now
            if now == PortState.ACTIVE != was:
                number = PORT_ACTIVE
            elif was == PortState.ACTIVE != now:
                number = PORT_ERROR
        self._news.append((port, number))

    def _write_record(self, port: NodePort) -> None:
        """The generation is odd while a program must not trust the record."""
        index = self._index[port]
        at, generation = index * RECORD_BYTES, self._generations[index]
        self._words[at // 4] = generation + 1
        record = port_record(port, self._identity | index + 1, generation + 1)
        self._page[at + 4 : at + RECORD_BYTES] = record[4:]
        self._generations[index] = generation = (generation + 2) % (1 << 32)
        self._words[at // 4] = generation

    def refresh(self) -> None:
        """Write what has changed to the page, and then tell the programs of their ports."""
        while self._news or self._routes_changed:  # a packet on a new way may make ports ACTIVE
            news, self._news = self._news, []
            for port in dict.fromkeys(port for port, _ in news):
                self._write_record(port)
            if self._routes_changed:
                self._routes_changed = False
                self._judge_all()
            for port, event in news:
                for connection in self._hearers.get(port.node, ()):
                    with contextlib.suppress(OSError):  # one that reads no news misses some
                        connection.sock.send(_NEWS.pack(port.number, event))

    def _judge_all(self) -> None:
        judged: dict[tuple[NodePort, DataWay, bool], Judgement] = {}
        for slot, flow in self._flows.items():
            moves = self._fold_one(slot, flow)
            key = flow.origin, flow.way._replace(qp=0, dest_qp=0), moves
            verdict = judged.get(key)
            if verdict is None:
                verdict = judged[key] = judge(flow.origin, flow.way, moves=moves)
            flow.verdict = verdict
            self._show(slot, flow)

    # ---- a duty of the server ------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Packets that a port drops for their P_Key are looked for now and then: it sends traps."""
        if self._news or self._routes_changed:
            return self._live.begun + self._judge_from
        refused = any(flow.verdict.problem is Drop.P_KEY for flow in self._flows.values())
        return self._live.begun + self._live.now + LOOK_SECONDS if refused else None

    def tick(self, now: float) -> None:
        """Called after each round of the loop.

        While a subnet manager writes tables, they change in every round: judging the flows takes at
        most a fifth of the time, and writing what no flow needs a twentieth.
        """
        begun = self._live.now
        if (self._news or self._routes_changed) and begun >= self._judge_from:
            self.refresh()
            taken = self._live.now - begun
            self._judge_from = begun + min((5 if self._flows else 20) * taken, LONGEST_DELAY)
        for slot, flow in self._flows.items():
            if flow.verdict.problem is Drop.P_KEY:
                self._fold_one(slot, flow)
