# SPDX-License-Identifier: Apache-2.0
"""A cable between the adapters of two computers that share a clock.

Each direction has a rate and a delay, and packets follow each other in it. ``drop`` may lose
packets; nothing else does, except that an adapter which has failed or is not mapped takes none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from verbena._arguments import checked_class
from verbena.host.computer import Computer, check_link
from verbena.host.errors import HostError, HostTypeError
from verbena.host.hca.packets import Packet

if TYPE_CHECKING:
    from verbena.host.hca.device import Hca

_MTUS = (256, 512, 1024, 2048, 4096)


@checked_class(HostTypeError, but=("send",))
class Wire:
    """``rate_gbps`` of each direction, ``delay_ns`` one way, ``mtu`` of payload in bytes.

    ``drop(packet)`` is called for each packet in the order of sending, and says whether it is lost.
    """

    def __init__(
        self,
        rate_gbps: float = 100.0,
        delay_ns: float = 500.0,
        *,
        mtu: int = 4096,
        drop: Callable[[Packet], bool] | None = None,
    ) -> None:
        if rate_gbps <= 0 or delay_ns < 0:
            raise HostError("a wire has a rate above 0 Gb/s and a delay of at least 0 ns")
        if mtu not in _MTUS:
            raise HostError(f"an MTU is 256, 512, 1024, 2048 or 4096 bytes, not {mtu}")
        self.rate_gbps, self.mtu, self.drop = rate_gbps, mtu, drop
        self.delay_ps = round(delay_ns * 1000)
        self.packets = 0
        self.bytes = 0
        self.busy_ps = [0, 0]  # of the direction from each end
        # Each gets a packet's sender, its text, its bytes and when it is on the wire, in ps.
        self.observers: list[Callable[[Hca, str, int, int, int], None]] = []
        self._ends: list[Hca] = []
        self._homes: list[Computer] = []
        self._free_at = [0, 0]

    def connect(self, left: Hca, right: Hca) -> None:
        """Plugs it into two adapters, which have none yet, on one clock."""
        for one in (left, right):
            if one.wire is not None:
                raise HostError(f"{one!r} has a wire already")
        if self._ends or left is right:
            raise HostError("a wire connects two adapters, once")
        if left.home.clock is not right.home.clock:
            raise HostError("computers with a wire between them share a clock: use Machines")
        check_link(left.home, right.home, self.delay_ps)
        self._ends = [left, right]
        self._homes = [left.home, right.home]
        left.wire = right.wire = self

    def send(self, sender: Hca, packet: Packet) -> int:
        """Puts a packet behind those of its direction; when its last bit is on the wire, in ps."""
        side = self._ends.index(sender)
        size = packet.wire_bytes
        start = max(self._free_at[side], sender.now)
        end = self._free_at[side] = start + round(size * 8000 / self.rate_gbps)
        self.busy_ps[side] += end - start
        for observe in self.observers:
            text = packet.opcode.name if packet.reply is None else packet.reply.value
            observe(sender, text, size, start, end)
        self.packets += 1
        self.bytes += size
        if self.drop is None or not self.drop(packet):
            peer = self._ends[1 - side]
            # An adapter that is not mapped then has no computer to ask for the time.
            self._homes[1 - side].at(end + self.delay_ps, lambda: peer.arrive(packet))
        return end
