# SPDX-License-Identifier: Apache-2.0
"""The row of a PCI bus in a timeline: each transaction, and who has asked for it.

timeline.py makes it for each bus that it follows. A bus tells of a transaction when it is over, so
the store that led to it is the one that the transaction remembers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from verbena.host.clock import Cause
from verbena.host.pci_arbiter import PciEnd, PciTransaction
from verbena.host.timeline_rows import Row


@dataclass
class PciRow:
    """``devices`` are the rows of the devices on the bus, by the names that they have there.

    ``hop(row, at, cause)`` lets the arrow of the store ``cause`` pass a row.
    """

    row: Row
    devices: dict[str, Row]
    hop: Callable[[Row, int, Cause | None], None]
    instant: int

    def see(self, one: PciTransaction) -> None:
        """Adds a transaction, and the store at the device to which it led."""
        details = {
            "master": one.master.name,
            "target": one.target,
            "address": hex(one.address),
            "bytes": one.size,
            "data phases": one.phases,
            "ending": str(one.ending),
        }
        name = f"{one.command}, {one.master.name}"
        if not one.phases:
            name = f"{name}: {one.ending}"
        self.row.add(name, "PCI", one.start, one.end - one.start, details)
        is_store = not one.up and not one.is_read
        if is_store or one.transfer is not None:
            self.hop(self.row, one.start, one.cause)
        if is_store and one.ending is PciEnd.COMPLETED and one.target in self.devices:
            self.devices[one.target].add("store", "device", one.end, self.instant, details)
            self.hop(self.devices[one.target], one.end, one.cause)
