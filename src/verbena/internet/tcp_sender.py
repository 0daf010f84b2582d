# SPDX-License-Identifier: Apache-2.0
"""The sending half of a TCP connection: which bytes may leave, and which are sent again.

A ``TcpConnection`` has one from the moment it is established. Congestion control is Reno's (RFC
5681) with NewReno's recovery (RFC 6582), and the timer is that of RFC 6298. There is no selective
acknowledgement: after a timeout everything is sent again from the first missing byte.

    state      event                                next       action
    OPEN       third duplicate acknowledgement      RECOVERY   halve the window; first segment again
    RECOVERY   acknowledgement below ``recover``    RECOVERY   deflate it; the next segment again
    RECOVERY   acknowledgement of all before it     OPEN       the window is the threshold
    any        timer                                OPEN       one segment; begin again at the first

Duplicates count only when more is acknowledged than was sent before the last recovery or timeout.
What an acknowledgement permits leaves after a random delay, since flows without randomness that
share a queue can lock in phase, so that one of them suffers all losses (Floyd and Jacobson,
"Traffic phase effects in packet-switched gateways", Computer Communication Review 21(2), 1991).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from verbena._arguments import checked_class
from verbena.host.clock import Agenda
from verbena.internet.errors import InternetError, InternetTypeError
from verbena.internet.timer import MICROSECOND, MILLISECOND, SECOND, Timer

DUPLICATES = 3
MOST_RTO = 60 * SECOND
JITTER_SHARE = 8  # of a round trip at most one part in so many is random delay


@checked_class(InternetTypeError)
@dataclass(frozen=True)
class TcpSettings:
    """``mss``: bytes of a segment at most, less where a link's MTU is smaller. ``window``: bytes
    that are taken before the program reads them, at most 65,535. ``least_rto_ms`` and
    ``ack_delay_ms`` are Linux' defaults. ``retries``: of a segment, then the connection fails.
    ``jitter_us``: the longest random delay of what an acknowledgement permits to send; 0: none;
    None: the time between two segments at the connection's rate, and at most an eighth of its round
    trip. It applies while segments fly, so that a request alone is never delayed. A SYN that is
    sent again has a jitter, too: at most ``jitter_us``, and an eighth of its wait."""

    mss: int = 1460
    window: int = 65535
    initial_window: int = 10
    first_rto_ms: int = 1000
    least_rto_ms: int = 200
    ack_delay_ms: int = 40
    retries: int = 15
    syn_retries: int = 6
    time_wait_s: int = 60
    jitter_us: float | None = None

    def __post_init__(self) -> None:
        """Raises InternetError."""
        if not 1 <= self.mss <= 65495 or not 1 <= self.window <= 65535:
            raise InternetError(
                f"segments of {self.mss} bytes, a window of {self.window}: TCP has segments of 1 "
                "to 65495 bytes and, without scaling, windows of 1 to 65535"
            )
        if self.initial_window < 1 or min(self.first_rto_ms, self.least_rto_ms) < 1:
            raise InternetError("the initial window and the retransmission timeouts are above 0")
        if min(self.ack_delay_ms, self.retries, self.syn_retries, self.time_wait_s) < 0:
            raise InternetError("delays and numbers of retries are 0 or more")
        if self.jitter_us is not None and not 0 <= self.jitter_us <= 1e6:
            raise InternetError(f"a jitter of {self.jitter_us} us: it is 0 to 1000000 us, or None")


def after_lost_syn(settings: TcpSettings) -> TcpSettings:
    """For a connection whose SYN, or answer to one, was sent more than once: it begins with one
    segment (RFC 5681, section 3.1) and a timeout of 3 s at least (RFC 6298, section 5.7)."""
    return replace(settings, initial_window=1, first_rto_ms=max(3000, settings.first_rto_ms))


class RoundTripTimer:
    """The retransmission timeout in ps (RFC 6298)."""

    def __init__(self, settings: TcpSettings) -> None:
        self._least = settings.least_rto_ms * MILLISECOND
        self._first = settings.first_rto_ms * MILLISECOND
        self._smoothed = self._variation = 0
        self.timeout = self._first

    @property
    def smoothed(self) -> int:
        """0 before a round trip was measured."""
        return self._smoothed

    def add(self, measured: int) -> None:
        """A round trip, of a segment that was sent once (Karn's algorithm)."""
        if self._smoothed == 0:
            self._smoothed, self._variation = measured, measured // 2
        else:
            off = abs(self._smoothed - measured)
            self._variation = (3 * self._variation + off) // 4
            self._smoothed = (7 * self._smoothed + measured) // 8
        self.begin_again()

    def begin_again(self) -> None:
        """The timeout without what ``back_off`` has added."""
        measured = max(self._least, self._smoothed + 4 * self._variation)
        self.timeout = min(MOST_RTO, measured if self._smoothed else self._first)

    def back_off(self) -> None:
        self.timeout = min(MOST_RTO, 2 * self.timeout)


class TcpSender:
    """``emit(sequence, payload, is_last)`` sends a segment, and ``give_up()`` ends the connection.

    Sequence numbers are not wrapped. ``first`` is the first byte's, ``window`` the peer's.
    """

    def __init__(
        self,
        agenda: Agenda,
        settings: TcpSettings,
        first: int,
        mss: int,
        window: int,
        emit: Callable[[int, bytes, bool], None],
        give_up: Callable[[], None],
        random: Random,
    ) -> None:
        self._random = random
        self._agenda = agenda
        self._settings = settings
        self._mss = mss
        self._emit = emit
        self._give_up = give_up
        self._timer = Timer(agenda, self._expire)
        self._soon = Timer(agenda, self.send)  # while it runs, only a timeout sends
        self._round_trip = RoundTripTimer(settings)
        self._buffer = bytearray()  # from ``una`` on
        self._small_end = 0  # the number behind the last segment that was not full
        self._ended = False
        self._end = 0  # behind the FIN
        self._tries = 0
        self._timed: tuple[int, int] | None = None  # a sequence number, and when it left
        self._duplicates = 0
        self._recover: int | None = None
        self._resent_to = first - 1  # duplicates up to here may come of what was sent again
        self._window_at = 0  # the sequence number of the segment with the peer's window
        self.no_delay = False
        self.una = self.next = self.highest = first
        self.window = window
        self.congestion_window = settings.initial_window * mss
        self.threshold = 1 << 30
        self.resent = 0

    @property
    def unsent(self) -> int:
        """Bytes that wait for a window."""
        return max(0, self.una + len(self._buffer) - self.next)

    @property
    def unacknowledged(self) -> int:
        """Bytes that the peer has not confirmed."""
        return len(self._buffer)

    @property
    def end(self) -> int:
        """The number behind all that was written, and behind the FIN if there is one."""
        return self._end if self._ended else self.una + len(self._buffer)

    @property
    def is_done(self) -> bool:
        """Whether the FIN is acknowledged, and so everything."""
        return self._ended and self.una == self._end

    def write(self, data: bytes) -> None:
        self._buffer += data
        if not self._soon.running:
            self.send()

    def finish(self) -> None:
        """A FIN follows the last byte."""
        if not self._ended:
            self._ended = True
            self._end = self.una + len(self._buffer) + 1
            if not self._soon.running:
                self.send()

    def drop_unsent(self) -> None:
        """Forget the bytes that were never sent. A FIN that waited for them may leave now."""
        kept = max(0, self.highest - self.una)
        if kept < len(self._buffer):
            del self._buffer[kept:]
            if self._ended:
                self._end = self.una + kept + 1
                self.send()

    def stop(self) -> None:
        self._timer.stop()
        self._soon.stop()

    def acknowledge(self, number: int, window: int, sequence: int, is_bare: bool) -> bool:
        """An acknowledgement, and the peer's window, from a segment with this sequence number;
        ``is_bare``: it has no data. False if it acknowledges what was never sent.
        """
        if number > self.highest:
            return False
        if number < self.una:
            return True
        changed = False
        if number > self.una or sequence >= self._window_at:  # RFC 9293, 3.10.7.4: SND.WL1
            changed = window != self.window
            if self.window == 0 < window:  # probes back off, but they were not lost
                self._round_trip.begin_again()
                self._timer.stop()
            self.window, self._window_at = window, sequence
        if self.window == 0:  # the peer is alive: its window may be shut for ever
            self._tries = 0
        if number > self.una:
            self._advance(number)
        elif is_bare and not changed and self.window > 0 and self.una < self.highest:
            self._duplicate()
        self._send_soon()
        return True

    def _send_soon(self) -> None:
        """Send what the windows allow, after the jitter. Acknowledgements that come meanwhile wait
        for the same moment, so that segments keep their order."""
        if self._soon.running:
            return
        longest = self._longest_jitter()
        if longest:
            self._soon.start(self._random.randrange(longest))
        else:
            self.send()

    def _longest_jitter(self) -> int:
        """ps; 0 while nothing flies, or no round trip was measured."""
        flying = self.next - self.una
        if flying <= 0:
            return 0
        if self._settings.jitter_us is not None:
            return round(self._settings.jitter_us * MICROSECOND)
        round_trip = self._round_trip.smoothed
        return min(round_trip * self._mss // flying, round_trip // JITTER_SHARE)

    def send(self) -> None:
        """Send what the windows allow."""
        while self._may_send():
            at = self.next - self.una
            room = min(self._mss, self.una + self._limit - self.next)
            piece = bytes(self._buffer[at : at + room])
            last = self._ended and at + len(piece) == len(self._buffer)
            self._send(self.next, piece, last)
            self.next += len(piece) + last
            if len(piece) < self._mss:
                self._small_end = self.next
            self.highest = max(self.highest, self.next)
        waits = self.una < self.next or (self.window == 0 and self.next < self.end)
        if waits and not self._timer.running:
            self._timer.start(self._round_trip.timeout)

    @property
    def _limit(self) -> int:
        return min(self.congestion_window, self.window)

    def _may_send(self) -> bool:
        waiting = self.unsent
        if self.next >= self.end:
            return False
        room = self.una + self._limit - self.next
        if waiting == 0:  # the FIN alone
            return room >= 0
        if room <= 0:
            return False
        if min(waiting, room) >= self._mss or self.next < self.highest:
            return True
        if room < waiting:  # RFC 9293, 3.8.6.2.1: wait for a larger window, unless nothing flies
            return self.next == self.una
        # RFC 896, for segments that are not full: one waits for the one before (Minshall's form).
        return self.no_delay or self._ended or self._small_end <= self.una

    def _send(self, at: int, piece: bytes, last: bool) -> None:
        if at < self.highest:
            self.resent += 1
        elif self._timed is None:
            self._timed = (at, self._agenda.now)
        self._emit(at, piece, last)

    def _advance(self, number: int) -> None:
        count = number - self.una
        del self._buffer[: min(count, len(self._buffer))]
        self.una = number
        self.next = max(self.next, number)
        self._tries = self._duplicates = 0
        if self._timed is not None and number > self._timed[0]:
            self._round_trip.add(self._agenda.now - self._timed[1])
            self._timed = None
        self._timer.stop()
        if self._recover is None:
            self._grow(count)
        elif number >= self._recover:
            self._recover = None
            self.congestion_window = self.threshold
        else:  # RFC 6582, section 3.2, step 3
            back = self._mss if count >= self._mss else 0
            self.congestion_window = max(self._mss, self.congestion_window - count + back)
            self._send_first_again()

    def _grow(self, count: int) -> None:
        if self.congestion_window < self.threshold:
            self.congestion_window += min(count, self._mss)
        else:
            self.congestion_window += max(1, self._mss * self._mss // self.congestion_window)

    def _duplicate(self) -> None:
        self._duplicates += 1
        if self._recover is not None:
            self.congestion_window += self._mss
        elif self._duplicates == DUPLICATES and self.una > self._resent_to:
            self._recover = self._resent_to = self.highest
            self.threshold = max((self.highest - self.una) // 2, 2 * self._mss)
            self.congestion_window = self.threshold + DUPLICATES * self._mss
            self._send_first_again()

    def _send_first_again(self) -> None:
        piece = bytes(self._buffer[: min(self._mss, self.highest - self.una)])
        last = self._ended and self.una + len(piece) + 1 == self._end == self.highest
        self._timed = None
        self._send(self.una, piece, last)
        self._timer.start(self._round_trip.timeout)

    def _expire(self) -> None:
        self._tries += 1
        if self._tries > self._settings.retries:
            self._give_up()
            return
        if self.window == 0 and self.next == self.una:
            # RFC 9293, 3.8.6.1: a probe of one byte asks for the window, for as long as
            # it is shut and the peer answers.
            probe = bytes(self._buffer[:1])
            self._emit(self.una, probe, not probe)
            self.highest = max(self.highest, self.una + 1)
        else:
            self.threshold = max((self.highest - self.una) // 2, 2 * self._mss)
            self.congestion_window = self._mss
            self.next, self._timed, self._recover = self.una, None, None
            self._resent_to = self.highest
            self._duplicates = 0
        self._round_trip.back_off()
        self._soon.stop()
        self.send()
        if not self._timer.running:
            self._timer.start(self._round_trip.timeout)
