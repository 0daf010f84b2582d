# SPDX-License-Identifier: Apache-2.0
"""The interrupt wires of a PCI bus, INTA# to INTD#: levels, which several devices share.

A device pulls its wire while it has something to report (PCI Local Bus 2.2, 2.2.6), and lets it go
when the driver has asked for the reason. The wire is active while any device pulls it, so a handler
has to ask each device that shares it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from verbena.host.errors import HostError

WIRES = ("INTA#", "INTB#", "INTC#", "INTD#")

Deliver = Callable[[], None]


def checked_wire(name: str) -> str:
    """The name of a wire. Raises HostError for another."""
    if name not in WIRES:
        raise HostError(f"the wires of a PCI bus are {', '.join(WIRES)}: not {name!r}")
    return name


@dataclass
class PciWire:
    """One wire. ``raised`` and ``lowered`` are called when its level changes; without them each
    pull delivers the device's own vector, once more if it is still pulled when another device has
    let go: so no interrupt is lost, and a handler may find that nothing is left to do."""

    name: str
    raised: Callable[[str], None] | None = None
    lowered: Callable[[str], None] | None = None
    changes: int = 0  # of the level
    _pulled: dict[int, Deliver] = field(default_factory=dict)  # by device, in order of time

    @property
    def is_active(self) -> bool:
        """Whether a device pulls it."""
        return bool(self._pulled)

    def pull(self, device: int, deliver: Deliver) -> None:
        """A device, known by a number, pulls the wire; ``deliver`` sends its vector."""
        was_active = self.is_active
        self._pulled[device] = deliver
        self.changes += not was_active
        if self.raised is None:
            deliver()
        elif not was_active:
            self.raised(self.name)

    def let_go(self, device: int) -> None:
        """The device has nothing to report any more; nothing if it did not pull."""
        if self._pulled.pop(device, None) is None:
            return
        if not self._pulled:
            self.changes += 1
            if self.lowered is not None:
                self.lowered(self.name)
        elif self.raised is None:
            next(iter(self._pulled.values()))()
