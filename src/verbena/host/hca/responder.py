# SPDX-License-Identifier: Apache-2.0
"""The responder of a queue pair: carries out the peer's requests in the order of their PSNs.

Packets wait in ``arrivals`` while a translation, a receive request or an atomic is under way;
answers leave in order from ``answers``. A receive request is fetched when its message arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from verbena.host.hca.formats import (
    RECEIVE_BYTES,
    CompletionEntry,
    HcaOpcode,
    HcaStatus,
    ReceiveRequest,
    parse_receive,
)
from verbena.host.hca.landings import Landing
from verbena.host.hca.packets import Packet, Reply
from verbena.host.hca.queues import Answer, Arrival, Qp, QpState
from verbena.host.hca.tables import Absent, Found, HcaAccess, Refused

if TYPE_CHECKING:
    from verbena.host.hca.device import Hca

AHEAD = 64 << 10  # bytes of READ responses that are fetched before they can be sent
_KEPT_ATOMICS = 16
_MASK = (1 << 64) - 1


def _consumes(packet: Packet) -> bool:
    """Whether a packet takes a receive request."""
    if packet.opcode in (HcaOpcode.SEND, HcaOpcode.SEND_WITH_IMM):
        return packet.is_first
    return packet.opcode is HcaOpcode.WRITE_WITH_IMM and packet.is_last


class Responder:
    """Of all queue pairs of one adapter."""

    def __init__(self, hca: Hca) -> None:
        self._hca = hca
        self._atomics: list[Callable[[], None]] = []  # one after the other, the first is under way

    # ---- order ----

    def arrive(self, qp: Qp, packet: Packet) -> None:
        """Takes a request's packet."""
        if qp.state is not QpState.RTS:
            return
        if packet.psn < qp.expected:
            self._repeat(qp, packet)
            return
        if packet.psn > qp.expected:
            self._complain(qp, packet)
            return
        qp.has_complained = False
        qp.early = None
        qp.expected += packet.packets
        arrival = Arrival(packet)
        qp.arrivals.append(arrival)
        if _consumes(packet):
            self._fetch_receive(qp, arrival)
        self._work(qp)

    def _complain(self, qp: Qp, packet: Packet) -> None:
        """Asks for the packet that is missing before this one, once. That acknowledges all before
        it, so it waits until they are carried out: one of them may be refused."""
        if qp.has_complained:
            return
        qp.early = packet
        if not qp.arrivals:
            qp.early = None
            qp.has_complained = True
            self._answer(qp, packet, Reply.SEQUENCE, psn=qp.expected)

    def _repeat(self, qp: Qp, packet: Packet) -> None:
        """A packet that came before: its answer was lost, or is still to come."""
        if any(one.packet.psn == packet.psn for one in qp.arrivals):
            return
        if packet.opcode.is_atomic:
            if packet.psn in qp.atomics:
                self._answer(qp, packet, Reply.ATOMIC, data=qp.atomics[packet.psn])
        elif packet.opcode is HcaOpcode.READ:
            if not any(one.packet.psn == packet.psn for one in qp.answers):
                self._read(qp, packet, lambda: None)
        elif (packet.is_last or packet.asks) and not qp.arrivals:
            self._answer(qp, packet, Reply.ACK, psn=qp.expected - 1)

    def _fetch_receive(self, qp: Qp, arrival: Arrival) -> None:
        index = arrival.index = qp.next_receive
        qp.next_receive += 1
        turn = qp.turn

        def fetched(data: bytes) -> None:
            if qp.turn == turn:
                arrival.taken = parse_receive(data, index, qp.receives)
                arrival.is_fetched = True
                self._work(qp)

        place = qp.receive_address + index % qp.receives * RECEIVE_BYTES
        self._hca.transfers.read(
            place, RECEIVE_BYTES, fetched, lambda: self._missing(qp, arrival.packet, place)
        )

    def _work(self, qp: Qp) -> None:
        """Carries out what is first, as far as nothing has to be waited for."""
        if qp.is_working:
            return  # the loop below goes on with what is next
        qp.is_working = True
        try:
            while self._begin_next(qp):
                pass
        finally:
            qp.is_working = False

    def _begin_next(self, qp: Qp) -> bool:
        """Begins with what is first; False: there is none, or it has to wait."""
        if not qp.arrivals or qp.is_busy or qp.state is not QpState.RTS:
            return False
        arrival = qp.arrivals[0]
        if arrival.index is not None and not arrival.is_fetched:
            return False
        qp.is_busy = True
        turn = qp.turn

        def done() -> None:
            if qp.turn == turn:
                qp.is_busy = False
                qp.arrivals.popleft()
                if qp.early is not None:
                    self._complain(qp, qp.early)
                self._work(qp)

        self._carry_out(qp, arrival, done)
        return True

    def _carry_out(self, qp: Qp, arrival: Arrival, done: Callable[[], None]) -> None:
        packet = arrival.packet
        if arrival.index is not None and arrival.taken is None:
            self._not_ready(qp, arrival, qp.rnr_ps)
        elif packet.opcode is HcaOpcode.READ:
            self._read(qp, packet, done)
        elif packet.opcode.is_atomic:
            self._atomic(qp, packet, done)
        elif packet.opcode.is_write:
            self._write(qp, arrival, done)
        else:
            self._send(qp, arrival, done)

    # ---- SEND and WRITE ----

    def _send(self, qp: Qp, arrival: Arrival, done: Callable[[], None]) -> None:
        packet = arrival.packet
        if packet.is_first:
            qp.receive, qp.offset = arrival.taken, 0
        receive = qp.receive
        if receive is None:
            self._nak(qp, packet, Reply.INVALID)
            return
        if qp.offset + len(packet.data) > receive.length:
            refused = Refused(
                f"a message of {packet.length} bytes came for a receive request of "
                f"{receive.length}",
                receive.address,
            )
            self._hca.note(qp, packet.opcode, refused)
            self._received(qp, packet, receive, HcaStatus.LOC_LEN_ERR, 0)
            self._nak(qp, packet, Reply.INVALID)
            return

        def landed() -> None:
            qp.offset += len(packet.data)
            if packet.is_last:
                self._received(qp, packet, receive, HcaStatus.SUCCESS, qp.offset)
                qp.receive = None
            if packet.is_last or packet.asks:
                self._answer(qp, packet, Reply.ACK)
            done()

        def refuse(refused: Refused) -> None:
            self._hca.note(qp, packet.opcode, refused)
            if receive.index >= qp.reported:
                self._received(qp, packet, receive, HcaStatus.LOC_PROT_ERR, 0, refused.address)
            self._nak(qp, packet, Reply.OPERATION)

        address = receive.address + qp.offset
        self._land(qp, arrival, receive.lkey, address, HcaAccess.LOCAL_WRITE, landed, refuse)

    def _write(self, qp: Qp, arrival: Arrival, done: Callable[[], None]) -> None:
        packet = arrival.packet
        if packet.is_first:
            qp.target, qp.offset = (packet.address, packet.rkey), 0

        def landed() -> None:
            qp.offset += len(packet.data)
            if packet.is_last and arrival.taken is not None:
                self._received(qp, packet, arrival.taken, HcaStatus.SUCCESS, qp.offset)
            if packet.is_last or packet.asks:
                self._answer(qp, packet, Reply.ACK)
            done()

        def refuse(refused: Refused) -> None:
            self._hca.note(qp, packet.opcode, refused)
            self._nak(qp, packet, Reply.ACCESS)

        address, key = qp.target
        whole = packet.length if packet.is_first else None
        self._land(
            qp, arrival, key, address + qp.offset, HcaAccess.REMOTE_WRITE, landed, refuse, whole
        )

    def _land(
        self,
        qp: Qp,
        arrival: Arrival,
        key: int,
        address: int,
        access: HcaAccess,
        landed: Callable[[], None],
        refuse: Callable[[Refused], None],
        whole: int | None = None,
    ) -> None:
        """Writes a packet's data to memory and goes on."""
        data, turn = arrival.packet.data, qp.turn
        if not data and whole in (None, 0):
            landed()
            return

        def found(result: Found) -> None:
            if qp.turn != turn:
                return
            if isinstance(result, Refused):
                refuse(result)
            elif isinstance(result, Absent):
                self._hca.page_in(result, lambda: None)
                self._not_ready(qp, arrival, qp.rnr_ps)
            else:
                landing = Landing(qp.number, key, address, access, data)
                tells = arrival.packet.is_last or arrival.packet.asks
                self._hca.landings.begin(landing, result, in_turn, failed, tells=tells)

        def in_turn() -> None:
            if qp.turn == turn:
                landed()

        def failed(place: int) -> None:
            if arrival.packet.opcode.is_write:
                self._missing(qp, arrival.packet, place)
            elif qp.state is QpState.RTS:
                refuse(Refused("there is no memory", place))

        self._hca.tables.translate(key, address, len(data), access, found, whole=whole)

    def _received(
        self,
        qp: Qp,
        packet: Packet,
        receive: ReceiveRequest,
        status: HcaStatus,
        length: int,
        address: int = 0,
    ) -> None:
        qp.reported = receive.index + 1
        kind = HcaOpcode.RECV_WRITE_WITH_IMM if packet.opcode.is_write else HcaOpcode.RECV
        entry = CompletionEntry(
            qp.number, receive.index, kind, status, length, packet.immediate, address
        )
        self._hca.complete(qp.receive_cq, entry)

    # ---- READ and atomics ----

    def _read(self, qp: Qp, packet: Packet, done: Callable[[], None]) -> None:
        turn = qp.turn

        def found(result: Found) -> None:
            if qp.turn != turn:
                return
            if isinstance(result, Refused):
                self._hca.note(qp, packet.opcode, result)
                self._nak(qp, packet, Reply.ACCESS)
            elif isinstance(result, Absent) and not _has_left(qp, packet, result):
                qp.absent = packet.psn, result.pages
                self._hca.page_in(result, lambda: None)
                arrival = next((a for a in qp.arrivals if a.packet is packet), None)
                if arrival is not None:
                    self._not_ready(qp, arrival, qp.rnr_ps)
            else:
                # If a page that was there has left, as with fewer frames than pages, each piece
                # is looked up when those before it are sent.
                is_paged = isinstance(result, Absent)
                whole = [(packet.address, packet.length)] if isinstance(result, Absent) else result
                pieces = _cut(whole, self._hca.mtu) or [[]]
                qp.absent = None
                qp.answers.append(
                    Answer(packet, pieces, is_paged=is_paged, changes=self._hca.tables.changes)
                )
                self._send_answers(qp)
                done()

        self._hca.tables.translate(
            packet.rkey, packet.address, packet.length, HcaAccess.REMOTE_READ, found
        )

    def _atomic(self, qp: Qp, packet: Packet, done: Callable[[], None]) -> None:
        turn = qp.turn

        def found(result: Found) -> None:
            if qp.turn != turn:
                return
            if isinstance(result, Refused) or packet.address % 8:
                if not isinstance(result, Refused):
                    result = Refused("an atomic has an address of 8 bytes", packet.address)
                self._hca.note(qp, packet.opcode, result)
                is_access = packet.address % 8 == 0
                self._nak(qp, packet, Reply.ACCESS if is_access else Reply.INVALID)
            elif isinstance(result, Absent):
                self._hca.page_in(result, lambda: None)
                self._not_ready(qp, qp.arrivals[0], qp.rnr_ps)
            else:
                place = result[0][0]
                self._in_turn(
                    lambda: self._hca.transfers.read(
                        place, 8, lambda old: change(place, old), lambda: failed(place)
                    )
                )

        is_over = False

        def failed(place: int) -> None:
            if not is_over:
                self._next_atomic()
            self._missing(qp, packet, place)

        def change(place: int, old: bytes) -> None:
            value = int.from_bytes(old, "little")
            if packet.opcode is HcaOpcode.FETCH_AND_ADD:
                new = value + packet.operand & _MASK
            else:
                new = packet.swap if value == packet.operand else value
            landing = Landing(
                qp.number,
                packet.rkey,
                packet.address,
                HcaAccess.REMOTE_ATOMIC,
                new.to_bytes(8, "little"),
            )
            self._hca.landings.begin(
                landing, [(place, 8)], lambda: changed(old), failed, tells=True
            )

        def changed(old: bytes) -> None:
            nonlocal is_over
            is_over = True
            self._next_atomic()
            qp.atomics[packet.psn] = old
            if len(qp.atomics) > _KEPT_ATOMICS:
                del qp.atomics[min(qp.atomics)]
            if qp.turn == turn:
                self._answer(qp, packet, Reply.ATOMIC, data=old)
                done()

        self._hca.tables.translate(packet.rkey, packet.address, 8, HcaAccess.REMOTE_ATOMIC, found)

    def _in_turn(self, start: Callable[[], None]) -> None:
        """Atomics of an adapter are carried out one after the other."""
        self._atomics.append(start)
        if len(self._atomics) == 1:
            start()

    def _next_atomic(self) -> None:
        """The first one is done."""
        self._atomics.pop(0)
        if self._atomics:
            self._atomics[0]()

    def forget_atomics(self) -> None:
        """The DMA of the one under way was dropped."""
        self._atomics.clear()

    # ---- answers ----

    def _answer(
        self, qp: Qp, packet: Packet, reply: Reply, *, psn: int | None = None, data: bytes = b""
    ) -> None:
        answer = Packet(
            qpn=qp.peer,
            psn=packet.psn if psn is None else psn,
            opcode=packet.opcode,
            data=data,
            reply=reply,
            rnr_ps=qp.rnr_ps if reply is Reply.RNR else 0,
        )
        qp.answers.append(Answer(answer))
        self._send_answers(qp)

    def _send_answers(self, qp: Qp) -> None:
        """Sends, in order, what is ready, and fetches data of READs ahead."""
        ahead = 0
        for answer in qp.answers:
            ahead += self._unsent(answer)
            while answer.asked < len(answer.pieces) and ahead < AHEAD and answer.may_ask:
                ahead += sum(size for _, size in answer.pieces[answer.asked])
                self._fetch_piece(qp, answer, answer.asked)
                answer.asked += 1
            if ahead >= AHEAD or answer.is_paged:
                break
        while qp.answers and self._send_answer(qp, qp.answers[0]):
            qp.answers.popleft()
        first = qp.answers[0] if qp.answers else None
        if first is not None and first.sent in first.waiting:
            first.waiting.pop(first.sent)()
        elif first is not None and first.is_paged and first.may_ask:
            self._send_answers(qp)

    def _unsent(self, answer: Answer) -> int:
        """Bytes that were asked of memory for an answer and have not been sent."""
        asked, sent = (number * self._hca.mtu for number in (answer.asked, answer.sent))
        length = answer.packet.length
        return min(asked, length) - min(sent, length)

    def _fetch_piece(self, qp: Qp, answer: Answer, number: int) -> None:
        def arrived(data: bytes) -> None:
            answer.data[number] = data
            self._send_answers(qp)

        def failed(address: int) -> None:
            refuse(Refused("there is no memory", address), Reply.OPERATION)

        def refuse(refused: Refused, reply: Reply) -> None:
            """The answers before this packet are sent, and then it is refused."""
            if answer not in qp.answers:
                return
            while qp.answers.pop() is not answer:
                pass
            last = replace(answer.packet, psn=answer.packet.psn + number)
            answer.pieces = answer.pieces[:number]
            if answer.sent < number:
                qp.answers.append(answer)
            if qp.state is QpState.RTS:
                self._hca.note(qp, last.opcode, refused)
                self._nak(qp, last, reply)

        def look_up() -> None:
            packet, offset = answer.packet, number * self._hca.mtu
            size = min(self._hca.mtu, packet.length - offset)
            self._hca.tables.translate(
                packet.rkey, packet.address + offset, size, HcaAccess.REMOTE_READ, found
            )

        def found(result: Found) -> None:
            if isinstance(result, list):
                self._hca.gather(result, arrived, failed)
            elif isinstance(result, Absent) and number > answer.sent:
                answer.is_paged = True
                answer.waiting[number] = look_up
            elif isinstance(result, Absent):
                self._hca.page_in(result, lambda: look_up() if answer in qp.answers else None)
            else:
                refuse(result, Reply.ACCESS)

        if not answer.pieces[number]:
            answer.data[number] = b""
        elif answer.is_paged or answer.changes != self._hca.tables.changes:
            look_up()  # a page may have left since its place was found
        else:
            self._hca.gather(answer.pieces[number], arrived, failed)

    def _send_answer(self, qp: Qp, answer: Answer) -> bool:
        """Sends what there is of the first answer; True: it is all sent."""
        if answer.packet.reply is not None:
            self._hca.transmit(answer.packet)
            return True
        while answer.sent in answer.data:
            self._hca.transmit(
                Packet(
                    qpn=qp.peer,
                    psn=answer.packet.psn + answer.sent,
                    opcode=HcaOpcode.READ,
                    data=answer.data.pop(answer.sent),
                    is_first=answer.sent == 0,
                    is_last=answer.sent == len(answer.pieces) - 1,
                    reply=Reply.READ,
                )
            )
            answer.sent += 1
        return answer.sent == len(answer.pieces)

    # ---- not ready, and failures ----

    def _not_ready(self, qp: Qp, arrival: Arrival, rnr_ps: int) -> None:
        """Sends an RNR NAK; the peer sends this packet and all behind it again."""
        qp.turn += 1
        qp.is_busy = False
        indices = [one.index for one in qp.arrivals if one.index is not None]
        if indices:
            qp.next_receive = min(indices)
        qp.expected = arrival.packet.psn
        qp.early = None
        qp.arrivals.clear()
        self._answer(qp, arrival.packet, Reply.RNR)

    def _missing(self, qp: Qp, packet: Packet, address: int) -> None:
        """There is no memory for a request of the peer."""
        if qp.state is QpState.RTS:
            self._hca.note(qp, packet.opcode, Refused("there is no memory", address))
            self._nak(qp, packet, Reply.OPERATION)

    def _nak(self, qp: Qp, packet: Packet, reply: Reply) -> None:
        self._answer(qp, packet, reply)
        self._hca.end(qp)

    def end(self, qp: Qp) -> None:
        """The queue pair has failed: nothing is carried out any more; receives are flushed."""
        qp.turn += 1
        qp.is_busy = False
        qp.receive = None
        qp.next_receive = qp.reported  # also one that a message had taken and not filled
        qp.early = None
        qp.arrivals.clear()
        self.flush(qp)

    def flush(self, qp: Qp) -> None:
        """Completes the receive requests that are left, one by one, with an error."""
        index = qp.next_receive

        def fetched(data: bytes) -> None:
            receive = parse_receive(data, index, qp.receives)
            if receive is None or index != qp.next_receive:
                return
            qp.next_receive = qp.reported = index + 1
            entry = CompletionEntry(
                qp.number, index, HcaOpcode.RECV, HcaStatus.WR_FLUSH_ERR, 0, 0, 0
            )
            self._hca.complete(qp.receive_cq, entry)
            self.flush(qp)

        place = qp.receive_address + index % qp.receives * RECEIVE_BYTES
        self._hca.transfers.read(place, RECEIVE_BYTES, fetched, lambda: None)


def _has_left(qp: Qp, packet: Packet, absent: Absent) -> bool:
    """Whether a page that was there when the READ came last is absent now."""
    if qp.absent is None or qp.absent[0] != packet.psn:
        return False
    return not set(absent.pages) <= set(qp.absent[1])


def _cut(parts: list[tuple[int, int]], size: int) -> list[list[tuple[int, int]]]:
    """Cuts parts of memory into pieces of ``size`` bytes, each of which may have several parts."""
    pieces: list[list[tuple[int, int]]] = []
    room = 0
    for address, left in parts:
        while left:
            if room == 0:
                pieces.append([])
                room = size
            part = min(room, left)
            pieces[-1].append((address, part))
            address, left, room = address + part, left - part, room - part
    return pieces
