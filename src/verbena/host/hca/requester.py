# SPDX-License-Identifier: Apache-2.0
"""The requester of a queue pair: from send requests to packets, and from answers to completions.

Payload is fetched ahead, by packets, and sent in order. A NAK or a silent peer sets the queue pair
back to a PSN, from which everything is fetched and sent again (go-back-N, IBA 9.7.5).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from verbena.host.hca.formats import CompletionEntry, HcaOpcode, HcaStatus, SendRequest
from verbena.host.hca.landings import Landing
from verbena.host.hca.packets import Packet, Reply
from verbena.host.hca.queues import OutstandingRequest, Qp, QpState, Segment
from verbena.host.hca.tables import Absent, Found, HcaAccess, Refused

if TYPE_CHECKING:
    from verbena.host.hca.device import Hca

AHEAD = 64 << 10  # bytes of payload that are fetched before they can be sent
# So many packets of a message ask for one acknowledgement: its responder, which may have to look up
# a translation for each page, is not silent for longer than the timeout.
ASKS_EVERY = 64

_FAILURES = {
    Reply.INVALID: HcaStatus.REM_INV_REQ_ERR,
    Reply.ACCESS: HcaStatus.REM_ACCESS_ERR,
    Reply.OPERATION: HcaStatus.REM_OP_ERR,
}


def _first_missing(qp: Qp) -> Segment | None:
    """The first packet whose payload is not here."""
    return next((one for one in qp.segments if one.data is None), None)


def _begin_anew(qp: Qp, one: OutstandingRequest) -> None:
    """All responses of a READ or an atomic are asked for once more."""
    one.begin_anew()
    for psn in [psn for psn in qp.landing if one.first_psn <= psn <= one.last_psn]:
        del qp.landing[psn]


class Requester:
    """Of all queue pairs of one adapter."""

    def __init__(self, hca: Hca) -> None:
        self._hca = hca

    # ---- send requests ----

    def start(self, qp: Qp, request: SendRequest) -> None:
        """Carries a request out, behind those before it; of a failed queue pair it is flushed."""
        mtu = self._hca.mtu
        packets = 1 if request.opcode.is_atomic else max(1, -(-request.length // mtu))
        one = OutstandingRequest(request, qp.next_psn, packets)
        qp.next_psn += packets
        qp.requests.append(one)
        if qp.state is QpState.ERROR:
            self._flush(qp)
        else:
            self.run(qp)

    def run(self, qp: Qp) -> None:
        """Fetches and sends all that can be now."""
        if qp.is_running:
            return
        qp.is_running = True
        try:
            while self._fetch_next(qp) or self._send_next(qp):
                pass
        finally:
            qp.is_running = False

    def _fetch_next(self, qp: Qp) -> bool:
        """Begins with the next packet; False: there is none, or it has to wait."""
        place, index = qp.cursor
        if qp.state is not QpState.RTS or qp.waits is not None or place >= len(qp.requests):
            return False
        owner = qp.requests[place]
        answered = owner.request.opcode.is_answered
        if answered and self._outstanding(qp, owner) >= qp.depth:
            return False
        if sum(one.length for one in qp.segments) >= AHEAD:
            return False
        mtu = self._hca.mtu
        length = 0 if answered else min(mtu, owner.request.length - index * mtu)
        last = answered or index == owner.packets - 1
        qp.cursor = (place + 1, 0) if last else (place, index + 1)
        segment = Segment(owner, index, length)
        qp.segments.append(segment)
        self._fetch(qp, segment)
        return True

    def _outstanding(self, qp: Qp, before: OutstandingRequest) -> int:
        """READs and atomics ahead of one whose answers are not all here."""
        return sum(
            1
            for one in qp.requests
            if one.first_psn < before.first_psn
            and one.request.opcode.is_answered
            and not one.is_done
        )

    def _fetch(self, qp: Qp, segment: Segment) -> None:
        """Gets a packet's payload: it has none, or is in the request, or is read by DMA."""
        request, mtu = segment.owner.request, self._hca.mtu
        if segment.length == 0:
            segment.data = b""
            return
        offset = segment.place * mtu
        if request.inline:
            segment.data = request.inline[offset : offset + segment.length]
            return
        epoch = qp.epoch

        def arrived(data: bytes) -> None:
            if qp.epoch == epoch:
                segment.data = data
                self.run(qp)
                self._fetch_waiting(qp)

        def failed(address: int) -> None:
            if qp.epoch == epoch:
                self._refuse(qp, segment.owner, Refused("there is no memory", address))

        def again() -> None:
            if qp.epoch == epoch:
                self._fetch(qp, segment)

        def found(result: Found) -> None:
            if qp.epoch != epoch:
                return
            if isinstance(result, list):
                self._hca.gather(result, arrived, failed)
            elif isinstance(result, Absent):
                self._bring(qp, segment, result, again)
            else:
                self._refuse(qp, segment.owner, result)

        self._hca.tables.translate(
            request.lkey,
            request.local_address + offset,
            segment.length,
            HcaAccess.LOCAL_READ,
            found,
        )

    def _bring(self, qp: Qp, segment: Segment, absent: Absent, again: Callable[[], None]) -> None:
        """Asks for the pages of a packet's payload. If they have left before they were read, for
        those of later packets, it waits for the packets before it: with fewer frames than pages
        there is progress page by page."""
        if segment.was_absent and _first_missing(qp) is not segment:
            segment.waits = True
            return
        segment.was_absent = True
        self._hca.page_in(absent, again)

    def _fetch_waiting(self, qp: Qp) -> None:
        """Goes on with the packet that has waited for those before it."""
        segment = _first_missing(qp)
        if segment is not None and segment.waits:
            segment.waits = False
            self._fetch(qp, segment)

    def _send_next(self, qp: Qp) -> bool:
        """Sends the next packet if its payload is here."""
        if qp.state is not QpState.RTS or not qp.segments or qp.segments[0].data is None:
            return False
        segment = qp.segments.popleft()
        owner, request = segment.owner, segment.owner.request
        answered = request.opcode.is_answered
        assert segment.data is not None
        self._hca.transmit(
            Packet(
                qpn=qp.peer,
                psn=segment.psn,
                opcode=request.opcode,
                data=segment.data,
                is_first=segment.place == 0,
                is_last=answered or segment.place == owner.packets - 1,
                asks=not answered and segment.place % ASKS_EVERY == ASKS_EVERY - 1,
                packets=owner.packets if answered else 1,
                address=request.remote_address,
                rkey=request.rkey,
                length=request.length,
                immediate=request.immediate,
                operand=request.operand,
                swap=request.swap,
            )
        )
        self._restart_timer(qp)
        return True

    # ---- answers ----

    def answered(self, qp: Qp, packet: Packet) -> None:
        """Takes an acknowledgement, NAK, READ response or atomic's value."""
        reply, psn = packet.reply, packet.psn
        if qp.state is not QpState.RTS or psn >= qp.next_psn:
            return
        if reply in (Reply.READ, Reply.ATOMIC):
            self._take_data(qp, packet)
        elif reply is Reply.ACK:
            self._acknowledge(qp, psn)
        elif reply is Reply.RNR:
            self._acknowledge(qp, psn - 1)
            self._wait(qp, packet)
        elif reply is Reply.SEQUENCE:
            self._acknowledge(qp, psn - 1)
            self._again(qp, psn)
        elif reply in _FAILURES:
            self._acknowledge(qp, psn - 1)
            status = _FAILURES[reply]
            owner = self._owner(qp, psn)
            if owner is not None:
                self.fail(qp, owner, status, owner.request.remote_address)

    def _owner(self, qp: Qp, psn: int) -> OutstandingRequest | None:
        return next((one for one in qp.requests if one.first_psn <= psn <= one.last_psn), None)

    def _acknowledge(self, qp: Qp, psn: int) -> None:
        """All requests up to a PSN are at the peer."""
        if psn > qp.acked:
            qp.acked = psn
            qp.retries = qp.rnr_retries = 0
            self._restart_timer(qp)
        self._retire(qp)

    def _take_data(self, qp: Qp, packet: Packet) -> None:
        """Lands a response in memory, if it is the next one of its request."""
        owner = self._owner(qp, packet.psn)
        if owner is None or not owner.request.opcode.is_answered:
            return
        place = packet.psn - owner.first_psn
        if place != owner.received:
            return  # one before it was lost: the timer asks again
        owner.received += 1
        owner.landing += 1
        qp.landing[packet.psn] = None
        self._acknowledge(qp, owner.first_psn - 1)
        self._restart_timer(qp)
        self._land(qp, owner, place * self._hca.mtu, packet.data)

    def _land(self, qp: Qp, owner: OutstandingRequest, offset: int, data: bytes) -> None:
        request, attempt = owner.request, owner.attempt
        psn, was_absent = owner.first_psn + offset // self._hca.mtu, False

        def found(result: Found) -> None:
            nonlocal was_absent
            if qp.state is not QpState.RTS or owner.attempt != attempt:
                return
            if isinstance(result, Absent):
                if was_absent and psn != min(qp.landing):
                    qp.landing[psn] = again  # it waits for those before it, as in _bring
                    return
                was_absent = True
                self._hca.page_in(result, again)
                return
            if isinstance(result, Refused):
                self._refuse(qp, owner, result)
                return
            landing = Landing(
                qp.number,
                request.lkey,
                request.local_address + offset,
                HcaAccess.LOCAL_WRITE,
                data,
            )
            self._hca.landings.begin(landing, result, landed, failed, tells=True)

        def landed() -> None:
            if qp.state is not QpState.RTS or owner.attempt != attempt:
                return
            owner.landing -= 1
            del qp.landing[psn]
            self._land_waiting(qp)
            if owner.landing == 0 and owner.received == owner.packets:
                owner.is_done = True
                qp.acked = max(qp.acked, owner.last_psn)
                qp.retries = qp.rnr_retries = 0
                self._retire(qp)
                self.run(qp)

        def failed(address: int) -> None:
            if qp.state is QpState.RTS:
                self._refuse(qp, owner, Refused("there is no memory", address))

        def again() -> None:
            if qp.state is QpState.RTS and owner.attempt == attempt:
                look_up()

        def look_up() -> None:
            address = request.local_address + offset
            self._hca.tables.translate(
                request.lkey, address, len(data), HcaAccess.LOCAL_WRITE, found
            )

        look_up()

    def _land_waiting(self, qp: Qp) -> None:
        """Goes on with the response that has waited for those before it. Its request makes
        progress: the peer has more time."""
        first = min(qp.landing, default=None)
        again = None if first is None else qp.landing[first]
        if first is not None and again is not None:
            qp.landing[first] = None
            self._restart_timer(qp)
            again()

    def _retire(self, qp: Qp) -> None:
        """Completes, in order, what is at an end."""
        while qp.requests:
            one = qp.requests[0]
            answered = one.request.opcode.is_answered
            if not (one.is_done if answered else one.last_psn <= qp.acked):
                break
            self._drop_first(qp)
            if one.request.is_signalled:
                self._complete(qp, one.request, HcaStatus.SUCCESS, 0)
        if not qp.requests:
            self._stop_timer(qp)

    def _drop_first(self, qp: Qp) -> None:
        qp.requests.popleft()
        place, index = qp.cursor
        qp.cursor = (place - 1, index) if place else (0, 0)

    def _complete(self, qp: Qp, request: SendRequest, status: HcaStatus, address: int) -> None:
        entry = CompletionEntry(
            qp.number, request.index, request.opcode, status, request.length, 0, address
        )
        self._hca.complete(qp.send_cq, entry)

    # ---- again ----

    def _rewind(self, qp: Qp, psn: int) -> None:
        """Makes the packet of a PSN the next one; a READ begins anew."""
        qp.epoch += 1
        qp.segments.clear()
        for place, one in enumerate(qp.requests):
            if one.last_psn < psn or one.is_done:
                continue
            answered = one.request.opcode.is_answered
            if answered:
                _begin_anew(qp, one)
            if place == 0 or one.first_psn <= psn:
                qp.cursor = (place, 0 if answered else max(psn - one.first_psn, 0))
            for later in list(qp.requests)[place + 1 :]:
                if later.request.opcode.is_answered and not later.is_done:
                    _begin_anew(qp, later)
            break

    def _again(self, qp: Qp, psn: int) -> None:
        if not qp.requests:
            return
        if qp.retries >= qp.retry:
            self.fail(qp, qp.requests[0], HcaStatus.RETRY_EXC_ERR, 0)
            return
        qp.retries += 1
        self._rewind(qp, psn)
        self._restart_timer(qp)
        self.run(qp)

    def _wait(self, qp: Qp, packet: Packet) -> None:
        """The peer was not ready: tries again when it says."""
        owner = self._owner(qp, packet.psn)
        if owner is None or qp.waits is not None:
            return
        if qp.rnr_retry != 7 and qp.rnr_retries >= qp.rnr_retry:
            self.fail(qp, owner, HcaStatus.RNR_RETRY_EXC_ERR, 0)
            return
        qp.rnr_retries += 1
        self._rewind(qp, packet.psn)
        self._stop_timer(qp)

        def resume() -> None:
            qp.waits = None
            self.run(qp)

        qp.waits = self._hca.at(self._hca.now + packet.rnr_ps, resume)

    def _restart_timer(self, qp: Qp) -> None:
        self._stop_timer(qp)
        if qp.requests and qp.state is QpState.RTS:
            qp.timer = self._hca.at(self._hca.now + qp.timeout_ps, lambda: self._expired(qp))

    def _stop_timer(self, qp: Qp) -> None:
        if qp.timer is not None:
            qp.timer.cancel()
            qp.timer = None

    def _expired(self, qp: Qp) -> None:
        qp.timer = None
        if qp.state is QpState.RTS and qp.requests and qp.waits is None:
            self._again(qp, max(qp.requests[0].first_psn, qp.acked + 1))

    # ---- failures ----

    def _refuse(self, qp: Qp, owner: OutstandingRequest, refused: Refused) -> None:
        self._hca.note(qp, owner.request.opcode, refused)
        self.fail(qp, owner, HcaStatus.LOC_PROT_ERR, refused.address)

    def fail(self, qp: Qp, owner: OutstandingRequest, status: HcaStatus, address: int) -> None:
        """Completes a request with an error, flushes the others, and ends the queue pair."""
        if qp.state is QpState.ERROR:
            return
        if all(one is not owner for one in qp.requests):  # it was completed already
            self._hca.end(qp)
            return
        while qp.requests and qp.requests[0] is not owner:
            self._complete(qp, qp.requests.popleft().request, HcaStatus.WR_FLUSH_ERR, 0)
        qp.requests.popleft()
        self._complete(qp, owner.request, status, address)
        self._hca.end(qp)

    def end(self, qp: Qp) -> None:
        """The queue pair has failed: nothing is sent any more, and all requests are flushed."""
        qp.epoch += 1
        qp.segments.clear()
        qp.landing.clear()
        self._stop_timer(qp)
        if qp.waits is not None:
            qp.waits.cancel()
            qp.waits = None
        self._flush(qp)

    def _flush(self, qp: Qp) -> None:
        while qp.requests:
            self._complete(qp, qp.requests.popleft().request, HcaStatus.WR_FLUSH_ERR, 0)
        qp.cursor = (0, 0)

    def invalid(self, qp: Qp, index: int) -> None:
        """A send request in memory was none."""
        bad = SendRequest(HcaOpcode.SEND, qp.number, index, 0)
        self._complete(qp, bad, HcaStatus.LOC_QP_OP_ERR, 0)
        self._hca.end(qp)
