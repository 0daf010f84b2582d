# SPDX-License-Identifier: Apache-2.0
"""The interrupt controller of a computer: a local APIC for each core, and an I/O APIC.

    controller = InterruptController(computer)
    controller.io.connect(keyboard, 1)

From then on every interrupt goes through the local APICs, which drivers program and tell of each
interrupt's end (EOI). A computer without one gives interrupts to its cores at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from verbena._arguments import checked_class
from verbena.host.computer import Computer
from verbena.host.errors import HostError, HostTypeError
from verbena.host.interrupt_message import MESSAGE_BASE
from verbena.host.io_apic import LINES, IoApic
from verbena.host.local_apics import LocalApics

LOCAL_APIC_BASE = MESSAGE_BASE
IO_APIC_BASE = 0xFEC0_0000


@checked_class(HostTypeError)
class InterruptController:
    """Maps the local APICs at 0xFEE00000 and an I/O APIC at 0xFEC00000.

    ``timer_mhz`` is the clock of the local APICs' timers, ``ipi_ns`` how long an interrupt from
    core to core is under way, and ``active_low`` are the lines whose wires are low while a device
    raises them. HostError if the computer has one already, or something else at these addresses.
    """

    def __init__(
        self,
        computer: Computer,
        *,
        timer_mhz: float = 100.0,
        ipi_ns: float = 0.0,
        active_low: Iterable[int] = range(16, LINES),
    ) -> None:
        if computer.apics is not None:
            raise HostError(f"{computer!r} has an interrupt controller already")
        self.computer = computer
        self.local = LocalApics(computer, timer_mhz=timer_mhz, ipi_ns=ipi_ns)
        self.io = IoApic(self.local, active_low=active_low)
        computer.map(self.local, LOCAL_APIC_BASE)
        computer.map(self.io, IO_APIC_BASE)
        computer.apics = self.local

    @property
    def waiting(self) -> int:
        """How many interrupts the local APICs have that no core has taken yet."""
        cores = range(len(self.computer.cores))
        return sum(self.local.apic(core).irr.bit_count() for core in cores)

    @property
    def taken(self) -> int:
        """How many interrupts the cores have taken from their local APICs."""
        return sum(self.local.apic(core).taken for core in range(len(self.computer.cores)))
