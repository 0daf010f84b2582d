# SPDX-License-Identifier: Apache-2.0
"""The state of one core's local APIC: which interrupts wait, are handled, and may come next.

``LocalApics`` has one for each core and gives it what arrives and what the core writes. The APIC
offers its core at most one vector at a time, that of the highest priority which TPR and the
interrupts in service allow. It learns that the core has taken the vector by taking it back when
something changes: nothing else depends on it before (SDM volume 3, 11.8; chapter 10 in older
editions).

    a vector   arrives       is offered           is taken      EOI
    idle    -> IRR        -> IRR, at the core  -> ISR        -> idle
               merged if IRR has it already; in ISR and IRR at once it comes once more after EOI
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

VECTORS = 256
RESET_SPURIOUS = 0xFF
_ENABLED = 1 << 8  # of the spurious vector register


class CorePins(Protocol):
    """Where a core gets interrupts; ``CoreState`` is one."""

    def interrupt(self, vector: int) -> bool:
        """Makes a vector pending."""

    def withdraw(self, vector: int) -> bool:
        """Takes it back; False: the core has taken it."""


class Acceptance(Enum):
    """What became of an interrupt that arrived."""

    KEPT = "kept"
    MERGED = "merged"
    REFUSED = "refused"


def highest(bits: int) -> int:
    """The highest vector of a set of bits; -1 if it is empty."""
    return bits.bit_length() - 1


class LocalApic:
    """Of the core that has ``pins``. Sets of vectors are numbers of 256 bits."""

    def __init__(self, pins: CorePins) -> None:
        self._pins = pins
        self._offered: int | None = None
        self._irr = self._isr = self._tmr = 0
        self._tpr = 0
        self.spurious = RESET_SPURIOUS
        self._taken = 0

    # ---- registers ----

    @property
    def irr(self) -> int:
        """Vectors that wait."""
        self._settle()
        self._offer()
        return self._irr

    @property
    def isr(self) -> int:
        """Vectors whose handlers have not written EOI yet."""
        self._settle()
        self._offer()
        return self._isr

    @property
    def tmr(self) -> int:
        """Vectors that were level-triggered when they last arrived."""
        return self._tmr

    @property
    def taken(self) -> int:
        """How many interrupts the core has taken."""
        self._settle()
        self._offer()
        return self._taken

    @property
    def is_enabled(self) -> bool:
        """By software, with bit 8 of the spurious vector register."""
        return bool(self.spurious & _ENABLED)

    @property
    def tpr(self) -> int:
        """The task's priority: vectors of its class and below wait."""
        return self._tpr

    @tpr.setter
    def tpr(self, value: int) -> None:
        self._settle()
        self._tpr = value & 0xFF
        self._offer()

    @property
    def ppr(self) -> int:
        """The processor's priority: that of the task, or of the interrupt that is handled."""
        return self._priority(self.isr)

    def _priority(self, isr: int) -> int:
        handled = max(highest(isr), 0) & 0xF0
        return self._tpr if self._tpr & 0xF0 >= handled else handled

    # ---- what happens ----

    def accept(self, vector: int, *, level: bool = False) -> Acceptance:
        """An interrupt arrives."""
        if not self.is_enabled:
            return Acceptance.REFUSED
        self._settle()
        bit = 1 << vector
        is_new = not self._irr & bit
        self._irr |= bit
        self._tmr = self._tmr | bit if level else self._tmr & ~bit
        self._offer()
        return Acceptance.KEPT if is_new else Acceptance.MERGED

    def end(self) -> int | None:
        """EOI: the handler of the highest vector in service has ended. That vector if I/O APICs
        are to know, since it is level-triggered."""
        self._settle()
        vector = highest(self._isr)
        if vector >= 0:
            self._isr &= ~(1 << vector)
        self._offer()
        return vector if vector >= 0 and self._tmr >> vector & 1 else None

    # ---- the core ----

    def _settle(self) -> None:
        """Takes the offered vector back, or learns that the core has taken it."""
        if self._offered is None:
            return
        vector, self._offered = self._offered, None
        if not self._pins.withdraw(vector):
            self._irr &= ~(1 << vector)
            self._isr |= 1 << vector
            self._taken += 1

    def _offer(self) -> None:
        """Offers the most urgent vector that may come now."""
        vector = highest(self._irr)
        if vector >> 4 > self._priority(self._isr) >> 4:
            self._offered = vector
            self._pins.interrupt(vector)
