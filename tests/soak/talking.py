# SPDX-License-Identifier: Apache-2.0
"""What the two ends of a talk do: rounds of messages that are checked, then perhaps an upset."""

from __future__ import annotations

import time
from random import Random

from tests.soak import pattern
from tests.soak.end import GRH, PATIENCE, RECV, End, Failed, PartnerGone, is_full
from verbena import verbs

EXPLAINED = {  # errors that each upset may lead to, beside what is flushed
    "unmap target": {"REM_OP_ERR", "LOC_PROT_ERR", "REM_ACCESS_ERR", "RETRY_EXC_ERR"},
    "unmap source": {"LOC_PROT_ERR", "RETRY_EXC_ERR"},
    "close region": {"REM_ACCESS_ERR", "REM_OP_ERR", "LOC_PROT_ERR", "RETRY_EXC_ERR"},
    "close qp": {"RETRY_EXC_ERR", "REM_OP_ERR"},
    "reset qp": {"RETRY_EXC_ERR", "REM_OP_ERR"},
}
GONE = {"RETRY_EXC_ERR", "WR_FLUSH_ERR"}  # what a partner that is killed leads to
SLOW = 0.02  # seconds between the receives of a slow reader
QUIET = 0.05  # seconds without a datagram: what has not come by then is lost
LATE = 0.2  # seconds in which a packet that has left arrives


class Talker:
    """An end at work. ``done`` counts the messages whose content was checked here."""

    def __init__(self, end: End) -> None:
        self.end, self.talk = end, end.talk
        self.done = 0
        self.last = -1  # the message received last
        self.lossy = self.talk.qp_type != "RC"

    def run(self) -> None:
        for number in range(self.talk.rounds):
            self.end.meet()
            getattr(self, f"{self.talk.kind}_{self.end.side}")(number * self.talk.depth)
            self.end.meet()
        self._all_well()
        if self.talk.upset:
            self._upset()

    def _all_well(self) -> None:
        if self.end.account.bad:
            self.end.raise_if_partner_died()
            raise Failed(f"errors without a cause; {self.end.describe()}")

    def _ready(self, base: int) -> list[tuple[int, int]]:
        """The round's messages, with lengths; they are in their slots."""
        pairs = [(base + i, length) for i, length in enumerate(self.talk.lengths())]
        for message, length in pairs:
            payload = pattern.payload(self.talk.number, message, length)
            self.end.store(self.end.place(message), payload)
        return pairs

    def _take_sends(self) -> None:
        while self.end.account.sends:
            self._take()

    def _take(self) -> list[verbs.WC]:
        done = self.end.take()
        if self.end.account.bad:
            self.end.raise_if_partner_died()
            raise Failed(f"errors without a cause; {self.end.describe()}")
        return done

    # ---- stream: SENDs, received in order ----

    def stream_a(self, base: int) -> None:
        options = self.end.datagram_options()
        self.end.meet()
        for message, length in self._ready(base):
            self.end.post("send", message, length, **options)
        self._take_sends()

    def stream_b(self, base: int) -> None:
        for i in range(self.talk.depth):
            self._refill(base + i)
        self.end.meet()
        self._receive(base)

    def slow_a(self, base: int) -> None:
        self.stream_a(base)

    def slow_b(self, base: int) -> None:
        if self.lossy:
            self.stream_b(base)
            return
        self.end.meet()
        for i in range(self.talk.depth):
            if i < 5:
                time.sleep(SLOW)
            self._refill(base + i)
        self._receive(base)

    def full_a(self, base: int) -> None:
        """Writes, without looking at the CQ until there is no room."""
        self.end.meet()
        pairs = self._ready(base)
        posted = 0
        try:
            while posted < 4 * len(pairs):
                self.end.post("write", *pairs[posted % len(pairs)])
                posted += 1
        except verbs.VerbsError as error:
            if not is_full(error) or posted < self.talk.depth:
                raise Failed(f"after {posted} of {self.talk.depth} requests: {error}") from error
        self._finish_writes()

    def full_b(self, base: int) -> None:
        self.write_b(base)

    def _refill(self, message: int) -> None:
        """A receive request, unless the one of a lost datagram still has the slot."""
        depth = self.talk.depth
        if all((wr_id - RECV - message) % depth for wr_id in self.end.account.receives):
            self.end.post_recv(message)

    def _receive(self, base: int) -> None:
        lengths = self.talk.lengths()
        while self.last < base + self.talk.depth - 1:
            if self.lossy:
                done = self.end.take(QUIET, must=False)
                if not done and self.end.partner_spoke():
                    return
            else:
                done = self._take()
            for wc in done:
                self._check(wc, lengths, base)

    def _check(self, wc: verbs.WC, lengths: list[int], base: int) -> None:
        """A datagram of an earlier round may come late, but not out of order and not twice."""
        if not wc.is_success:
            raise Failed(f"a receive failed: {wc}; {self.end.describe()}")
        skip = GRH if self.talk.qp_type == "UD" else 0
        offset = self.end.place(wc.wr_id - RECV, True) + skip
        data = self.end.load(offset, wc.byte_len - skip)
        message = pattern.message_of(self.talk.number, data)
        pattern.check(self.talk.number, message, data)
        if message <= self.last or (message != self.last + 1 and not self.lossy):
            raise Failed(f"message {message} after {self.last}")
        if message >= base + len(lengths) or len(data) != lengths[message % len(lengths)]:
            raise Failed(f"message {message} has {len(data)} bytes")
        self.last = message
        self.done += 1

    # ---- memory: WRITE, READ, atomics ----

    def write_a(self, base: int) -> None:
        self.end.meet()
        for message, length in self._ready(base):
            self.end.post("write", message, length)
        self._finish_writes()

    def _finish_writes(self) -> None:
        self._take_sends()
        if self.lossy and self.talk.packets:
            time.sleep(LATE)  # they have left, and may still be under way
        self.end.meet()

    def write_b(self, base: int) -> None:
        self.end.meet()
        self.end.meet()  # the partner has finished the round, and waits in run()
        for i, length in enumerate(self.talk.lengths()):
            data = self.end.load(self.end.place(base + i, True), length)
            if not (self.lossy and self.talk.packets and self._is_older(base + i, data)):
                pattern.check(self.talk.number, base + i, data)
                self.done += 1

    def _is_older(self, message: int, data: bytes) -> bool:
        """The WRITE was lost: what one before it wrote is there, or nothing."""
        if not any(data):
            return True
        was = pattern.message_of(self.talk.number, data)
        if was < message and was % self.talk.depth == message % self.talk.depth:
            pattern.check(self.talk.number, was, data)
            return True
        return False

    def read_a(self, base: int) -> None:
        self.end.meet()
        pairs = [(base + i, length) for i, length in enumerate(self.talk.lengths())]
        for message, length in pairs:
            self.end.post("read", message, length)
        self._take_sends()
        for message, length in pairs:
            data = self.end.load(self.end.place(message, True), length)
            pattern.check(self.talk.number, message, data)
            self.done += 1

    def read_b(self, base: int) -> None:
        self._ready(base)
        self.end.meet()

    def atomic_a(self, base: int) -> None:
        self.end.meet()
        for i in range(self.talk.depth):
            self.end.post("fetch_add", base + i, 8)
        self._take_sends()
        for i in range(self.talk.depth):
            old = int.from_bytes(self.end.load(self.end.place(base + i, True), 8), "little")
            if old != base + i:
                raise Failed(f"fetch_add {base + i} found {old}")
            self.done += 1

    def atomic_b(self, base: int) -> None:
        self.end.meet()

    # ---- the upset ----

    def _upset(self) -> None:
        self.end.meet()
        getattr(self, f"_upset_{self.end.side}")()
        self.end.meet()
        unexplained = self.end.account.bad - EXPLAINED[self.talk.upset] - {"WR_FLUSH_ERR"}
        if unexplained:
            raise Failed(f"{unexplained} after {self.talk.upset}; {self.end.describe()}")

    def _upset_a(self) -> None:
        """Works on until a request fails, or for a while."""
        base = self.talk.rounds * self.talk.depth
        pairs = self._ready(base)
        opcode = {"stream": "send", "slow": "send", "read": "read", "atomic": "fetch_add"}
        verb = opcode.get(self.talk.kind, "write")
        for turn in range(6):
            if turn == 1 and self.talk.upset == "unmap source":
                self.end.block.unmap()  # type: ignore[union-attr]
            for message, length in pairs:
                self._post_if_possible(verb, message, length)
                if self.end.account.bad:
                    return
            while self.end.account.sends and not self.end.account.bad:
                # Nobody receives any more: a SEND waits for ever.
                done = self.end.take(0.1 if verb == "send" else PATIENCE, must=verb != "send")
                if not done and self.end.partner_spoke():
                    return

    def _post_if_possible(self, verb: str, message: int, length: int) -> None:
        try:
            self.end.post(verb, message, length)
        except verbs.VerbsError as error:
            if not is_full(error):
                raise
            self.end.take(0.02, must=False)

    def _upset_b(self) -> None:
        end, upset = self.end, self.talk.upset
        time.sleep(Random(self.talk.number).random() / 200)
        if upset == "close qp":
            end.close_qp()
        elif upset == "reset qp":
            end.account.receives.clear()
            end.qp.modify(qp_state=verbs.QPState.RESET)
            end.closed_qp = True
        elif upset == "close region":
            end.mr.close()
        elif upset == "unmap target":
            end.block.unmap()  # type: ignore[union-attr]


def talk(end: End) -> Talker:
    """Connected ends talk; whatever comes, each request completes once."""
    talker = Talker(end)
    try:
        talker.run()
    except PartnerGone:
        if unexplained := end.account.bad - GONE - EXPLAINED.get(end.talk.upset, set()):
            raise Failed(f"{unexplained} after the partner's end; {end.describe()}") from None
        end.drain()
        raise
    end.drain()
    return talker
