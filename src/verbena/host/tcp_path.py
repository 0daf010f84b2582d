# SPDX-License-Identifier: Apache-2.0
"""What TCP costs the processors of its two ends: cycles of each message, by named costs.

``verbena compare`` and lessons call it. The path is charged and not simulated: for each message it
adds up system calls, copies, segments, frames, acknowledgements and interrupts. Its defaults are
tuned to one published number, the 42 Gb/s that one receiving core reached at 3.4 GHz with all
offloads and jumbo frames, about half of its cycles copying (Cai and others, "Understanding Host
Network Stack Overheads", SIGCOMM 2021).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from verbena._arguments import checked_class
from verbena.host.costs import Costs, Ledger
from verbena.host.errors import HostError, HostTypeError

HEADERS = 52  # of IPv4 and TCP with the time-stamp option (RFC 791, RFC 9293, RFC 7323)
SEGMENT = 65536  # what TSO and GRO join at most
PAGE = 4096


@checked_class(HostTypeError)
@dataclass(frozen=True)
class TcpPath:
    """Two ends and what is between them.

    ``mtu`` is in bytes, ``tso`` and ``gro`` say whether the adapters split and join segments of
    64 KiB. ``miss`` is the part of what the receiver copies that comes from memory and not from L3
    (DMA into a share of the cache that is too small for the window). ``per_interrupt`` is how many
    segments an interrupt brings under load; ``wakes`` lets each message find the receiver asleep,
    as a request and its answer do.
    """

    mtu: int = 9000
    tso: bool = True
    gro: bool = True
    ghz: float = 3.4
    miss: float = 0.4
    per_interrupt: float = 4.0
    wakes: bool = False
    costs: Costs = field(default_factory=Costs)

    def __post_init__(self) -> None:
        if not 576 <= self.mtu <= 65535:
            raise HostError(f"an MTU of TCP is 576 to 65,535 bytes, not {self.mtu}")
        if self.ghz <= 0 or not 0 <= self.miss <= 1 or self.per_interrupt < 1:
            raise HostError(
                "a path has a clock above 0 GHz, a part of misses from 0 to 1, "
                "and one segment or more to an interrupt"
            )

    # ---- what a message is on the way ----

    def frames(self, size: int) -> int:
        """The frames that a message of ``size`` bytes takes; HostError if it has none."""
        if size < 1:
            raise HostError(f"a message has at least one byte, not {size}")
        return -(-size // (self.mtu - HEADERS))

    def segments(self, size: int, joined: bool) -> int:
        """The segments that the stack handles: frames, or joined ones of up to 64 KiB."""
        frames = self.frames(size)
        return -(-size // SEGMENT) if joined else frames

    def acknowledgements(self, size: int) -> int:
        """One for each joined segment, or for every second frame (RFC 9293, 3.8.6.3)."""
        return self.segments(size, True) if self.gro else -(-self.frames(size) // 2)

    # ---- the two ends ----

    def sender(self, size: int) -> Ledger:
        """What the sender's core is charged for a message."""
        ledger, segments = Ledger(self.costs), self.segments(size, self.tso)
        ledger.add("syscall")
        ledger.copy(size, "l3")
        ledger.add("skb", segments)
        ledger.add("segment_out", segments)
        ledger.add("doorbell", segments)
        ledger.add("ack", self.acknowledgements(size))
        self._interrupts(ledger, segments)
        return ledger

    def receiver(self, size: int) -> Ledger:
        """What the receiver's core is charged for a message."""
        ledger, frames = Ledger(self.costs), self.frames(size)
        segments = self.segments(size, self.gro)
        self._interrupts(ledger, segments)
        ledger.add("frame_in", frames)
        if self.gro:
            ledger.add("gro_frame", frames)
        else:
            ledger.add("softirq_packet", frames)
        ledger.add("page", -(-size // PAGE))
        ledger.add("skb", segments)
        ledger.add("segment_in", segments)
        ledger.add("ack", self.acknowledgements(size))
        if self.wakes:
            ledger.add("wakeup")
        ledger.add("syscall")
        missed = round(size * self.miss)
        ledger.copy(missed, "memory")
        ledger.copy(size - missed, "l3")
        return ledger

    def _interrupts(self, ledger: Ledger, segments: int) -> None:
        interrupts = 1.0 if self.wakes else segments / self.per_interrupt
        ledger.add("hard_irq", interrupts)
        ledger.add("softirq_poll", interrupts)

    # ---- rates and times ----

    def receiver_gbps(self, size: int = SEGMENT) -> float:
        """What one receiving core takes, in Gb/s, with messages of ``size`` bytes."""
        return self.ghz * size * 8 / self.receiver(size).total

    def sender_gbps(self, size: int = SEGMENT) -> float:
        """What one sending core gives, in Gb/s."""
        return self.ghz * size * 8 / self.sender(size).total

    def throughput_gbps(self, size: int = SEGMENT, line_gbps: float = float("inf")) -> float:
        """The least of sender, receiver and line (payload of full frames), in Gb/s."""
        if line_gbps <= 0:
            raise HostError(f"a line has a rate above 0 Gb/s, not {line_gbps:g}")
        frame = self.mtu + 38  # preamble, Ethernet header, FCS and gap (IEEE 802.3)
        line = line_gbps * (self.mtu - HEADERS) / frame
        return min(self.receiver_gbps(size), self.sender_gbps(size), line)

    def processor_ns(self, size: int) -> float:
        """The processors' part of the latency of a message to a receiver that sleeps: all of the
        sender's cycles before the doorbell, and all of the receiver's, one after the other."""
        path = TcpPath(
            self.mtu, self.tso, self.gro, self.ghz, self.miss, self.per_interrupt, True, self.costs
        )
        sender = path.sender(size)
        after = sum(sender.cycles[name] for name in ("ack", "hard_irq", "softirq_poll"))
        return (sender.total - after + path.receiver(size).total) / self.ghz
