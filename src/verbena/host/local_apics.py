# SPDX-License-Identifier: Apache-2.0
"""The local APICs of a computer's cores as a device: each core finds its own at the same address.

``InterruptController`` maps it. Registers have 4 bytes at multiples of 16 (SDM volume 3, table
11-1; chapter 10 in older editions):

    0x020 ID         the core's number, in bits 31-24     0x100-0x170 ISR   in service
    0x030 VERSION                                         0x180-0x1F0 TMR   level-triggered
    0x080 TPR        priority of the task                 0x200-0x270 IRR   waiting
    0x0A0 PPR        priority of the processor            0x280 ESR         0: there are no errors
    0x0B0 EOI        a write ends the interrupt           0x300, 0x310 ICR  interrupts to cores
    0x0D0 LDR        logical destination                  0x320 LVT timer   vector, mask, mode
    0x0E0 DFR        flat, all ones                       0x330-0x370 LVT   others, always masked
    0x0F0 SPURIOUS   bit 8: the APIC is on                0x380, 0x390, 0x3E0  timer: initial and
                                                                            current count, divisor
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction

from verbena._arguments import checked_class
from verbena.host.apic_timer import ApicTimer
from verbena.host.computer import Computer
from verbena.host.devices import Device
from verbena.host.errors import HostError, HostTypeError
from verbena.host.interrupt_message import FIXED, LOWEST_PRIORITY, InterruptMessage
from verbena.host.local_apic import Acceptance, LocalApic

(ID, VERSION, TPR, PPR, EOI, LDR, DFR, SPURIOUS, ISR, TMR, IRR, ESR, ICR_LOW, ICR_HIGH, LVT_TIMER,
 LVT_ERROR, INITIAL, CURRENT, DIVIDE) = (
    0x20, 0x30, 0x80, 0xA0, 0xB0, 0xD0, 0xE0, 0xF0, 0x100, 0x180, 0x200, 0x280, 0x300, 0x310,
    0x320, 0x370, 0x380, 0x390, 0x3E0,
)  # fmt: skip
MASKED = 1 << 16  # of an LVT entry
MOST_CORES = 255
_VERSION = 0x14 | 5 << 16  # an integrated APIC whose last LVT entry is the sixth
_SIZE, _BITS, _WORD = 0x1000, 0x80, 0xFFFFFFFF
_ALL = 0xFF
_INIT, _STARTUP = 5, 6  # delivery modes, beside those of messages
_PENDING = 1 << 12  # of the ICR: on its way
_READ_ONLY = (ID, VERSION, PPR, CURRENT)


class _ApicUnit:
    """What a core's APIC has beside its priorities."""

    def __init__(self, apic: LocalApic, timer: ApicTimer) -> None:
        self.apic, self.timer = apic, timer
        self.ldr, self.dfr = 0, _WORD
        self.icr_low = self.icr_high = 0
        self.under_way = 0  # interrupts to other cores
        self.lvt = dict.fromkeys(range(LVT_TIMER, LVT_ERROR + 1, 16), MASKED)


@checked_class(HostTypeError, but=("deliver", "peek", "read", "targets", "write"))
class LocalApics(Device):
    """Of ``computer``, whose cores are at most 255.

    ``timer_mhz`` is the clock of their timers, and ``ipi_ns`` how long an interrupt from core to
    core is under way.
    """

    def __init__(
        self, computer: Computer, *, timer_mhz: float = 100.0, ipi_ns: float = 0.0
    ) -> None:
        super().__init__(_SIZE)
        if not 0.001 <= timer_mhz <= 100_000 or not 0 <= ipi_ns <= 1e9:
            raise HostError(
                f"a clock of APIC timers has 0.001 to 100,000 MHz, and an interrupt between cores "
                f"takes 0 ns to 1 s: not {timer_mhz} MHz and {ipi_ns} ns"
            )
        if len(computer.cores) > MOST_CORES:
            raise HostError(
                f"an APIC's ID has 8 bits: a computer with them has at most {MOST_CORES} cores, "
                f"not {len(computer.cores)}"
            )
        self._cores = computer.cores
        self._ipi_ps = round(ipi_ns * 1000)
        self._clock_ps = Fraction(10**6) / Fraction(timer_mhz).limit_denominator(10_000)
        self._units = [self._unit(number) for number in range(len(computer.cores))]
        self.refused: Counter[str] = Counter()  # interrupts that no core got, by the reason
        # I/O APICs: called with the vector of a level-triggered interrupt that has ended, and when
        # an APIC was enabled.
        self.end_observers: list[Callable[[int], None]] = []
        self.enable_observers: list[Callable[[], None]] = []

    def _unit(self, number: int) -> _ApicUnit:
        timer = ApicTimer(
            self._clock_ps, lambda: self.now, self.at, lambda: self._timer_ends(number)
        )
        return _ApicUnit(LocalApic(self._cores[number].state), timer)

    def apic(self, core: int) -> LocalApic:
        """The state of a core's APIC, to look at."""
        if not 0 <= core < len(self._units):
            raise HostError(f"there is no core {core}: there are 0 to {len(self._units) - 1}")
        return self._units[core].apic

    # ---- interrupts that arrive ----

    def targets(self, message: InterruptMessage) -> list[int]:
        """The cores that a message goes to."""
        cores = range(len(self._units))
        if message.destination == _ALL:
            found = list(cores)
        elif message.logical:
            found = [one for one in cores if self._units[one].ldr >> 24 & message.destination]
        else:
            found = [one for one in cores if one == message.destination]
        if message.lowest and found:
            ready = [one for one in found if self._units[one].apic.is_enabled] or found
            return [min(ready, key=lambda one: self._units[one].apic.ppr)]
        return found

    def deliver(self, message: InterruptMessage, how: str = "MSI") -> bool:
        """Brings an interrupt to its cores now; False: none has taken it in.

        ``how`` is told to ``memory_observers``: "MSI", "I/O APIC", "IPI" or "APIC timer".
        """
        computer, found = self._home(), self.targets(message)
        if not found:
            kind = "logical destination" if message.logical else "core"
            self._refuse(f"there is no {kind} {message.destination:#x}")
            return False
        computer.counters.interrupts_sent += len(found) - 1
        computer.heed_interrupt()
        accepted = [self._accept(one, message, how) for one in found]
        return True in accepted

    def _accept(self, core: int, message: InterruptMessage, how: str) -> bool:
        computer, apic = self._home(), self._units[core].apic
        computer.show_memory(how, message.vector, core)
        accepted = apic.accept(message.vector, level=message.level)
        if accepted is Acceptance.MERGED:
            computer.counters.interrupts_merged += 1
        elif accepted is Acceptance.REFUSED:
            self._refuse(f"the APIC of core {core} is off: its driver sets bit 8 at {SPURIOUS:#x}")
        return accepted is not Acceptance.REFUSED

    def _refuse(self, why: str) -> None:
        self.refused[why] += 1
        self._home().counters.interrupts_refused += 1

    def _send(self, message: InterruptMessage, how: str) -> None:
        self._home().counters.interrupts_sent += 1
        self.deliver(message, how)

    def _timer_ends(self, core: int) -> None:
        entry = self._units[core].lvt[LVT_TIMER]
        if not entry & MASKED:
            self._send(InterruptMessage(core, entry & 0xFF), "APIC timer")

    # ---- registers ----

    def _check_access(self, verb: str, offset: int, size: int) -> None:
        if size != 4 or offset % 16:
            raise HostError(
                f"{self!r}: a {verb} of {size} bytes at offset {offset:#x}: registers of a local "
                "APIC have 4 bytes at multiples of 16"
            )

    def read(self, offset: int, size: int) -> int:
        self._check_access("load", offset, size)
        value = self.peek(offset, size)
        if value is None:
            raise HostError(f"{self!r} has no register to read at offset {offset:#x}")
        return value

    def peek(self, offset: int, size: int) -> int | None:
        core = self._home().running
        unit = self._units[core]
        apic = unit.apic
        if ISR <= offset < ESR:
            place, within = divmod(offset - ISR, _BITS)
            return (apic.isr, apic.tmr, apic.irr)[place] >> 2 * within & _WORD
        if offset in unit.lvt:
            return unit.lvt[offset]
        values = {
            ID: core << 24, VERSION: _VERSION, TPR: apic.tpr, PPR: apic.ppr, EOI: 0,
            LDR: unit.ldr, DFR: unit.dfr, SPURIOUS: apic.spurious, ESR: 0,
            ICR_LOW: unit.icr_low | (_PENDING if unit.under_way else 0), ICR_HIGH: unit.icr_high,
            INITIAL: unit.timer.initial, CURRENT: unit.timer.current,
            DIVIDE: unit.timer.divide_code,
        }  # fmt: skip
        return values.get(offset)

    def write(self, offset: int, size: int, value: int) -> None:
        self._check_access("store", offset, size)
        core = self._home().running
        unit = self._units[core]
        if offset == EOI:
            self._end(unit)
        elif offset == TPR:
            unit.apic.tpr = value
        elif offset == ICR_LOW:
            self._command(core, unit, value)
        elif offset == ICR_HIGH:
            unit.icr_high = value & 0xFF000000
        elif offset in unit.lvt:
            self._set_entry(unit, offset, value)
        elif offset == INITIAL:
            unit.timer.start(value)
        elif offset == DIVIDE:
            unit.timer.divide(value)
        elif not self._configure(unit, offset, value):
            why = "can only be read" if offset in _READ_ONLY else "is none"
            raise HostError(f"{self!r}: the register at offset {offset:#x} {why}")

    def _configure(self, unit: _ApicUnit, offset: int, value: int) -> bool:
        if offset == SPURIOUS:
            self._set_spurious(unit, value)
        elif offset == LDR:
            unit.ldr = value & 0xFF000000
        elif offset == DFR:
            if value >> 28 != 0xF:
                raise HostError(
                    f"{self!r}: logical destinations are flat here: DFR is 0xffffffff, not "
                    f"{value:#x}"
                )
        elif offset != ESR:
            return False
        return True

    def _end(self, unit: _ApicUnit) -> None:
        ended = unit.apic.end()
        if ended is not None:
            for observe in self.end_observers:
                observe(ended)

    def _set_spurious(self, unit: _ApicUnit, value: int) -> None:
        was_enabled = unit.apic.is_enabled
        unit.apic.spurious = value & 0x1FF
        if not unit.apic.is_enabled:
            for offset in unit.lvt:
                unit.lvt[offset] |= MASKED
        elif not was_enabled:
            for observe in self.enable_observers:
                observe()

    def _set_entry(self, unit: _ApicUnit, offset: int, value: int) -> None:
        """An entry of the LVT; while the APIC is off all stay masked (SDM 11.4.7.2)."""
        if not unit.apic.is_enabled:
            value |= MASKED
        if offset != LVT_TIMER:
            if not value & MASKED and offset != LVT_ERROR:
                raise HostError(
                    f"{self!r}: nothing is wired to the entry at offset {offset:#x} of the LVT: "
                    "leave it masked (bit 16)"
                )
            unit.lvt[offset] = value & (MASKED | 0xFFFF)
            return
        mode = value >> 17 & 3
        if mode > 1:
            raise HostError(
                f"{self!r}: the timer counts once (mode 0) or periodically (1): there is no mode "
                f"{mode}"
            )
        if not value & MASKED:
            self._check_vector(value & 0xFF, "the timer's entry")
        unit.lvt[offset] = value & (3 << 17 | MASKED | 0xFF)
        unit.timer.mode = mode

    def _check_vector(self, vector: int, what: str) -> None:
        if vector < 32:
            raise HostError(
                f"{self!r}: {what} has vector {vector}: 0 to 31 are the processor's exceptions, "
                "write 32 to 255"
            )

    # ---- from core to core ----

    def _command(self, core: int, unit: _ApicUnit, low: int) -> None:
        """A write of the ICR's lower half sends (SDM 11.6.1)."""
        mode, vector, shorthand = low >> 8 & 7, low & 0xFF, low >> 18 & 3
        unit.icr_low = low & 0xCCFFF & ~_PENDING
        if mode == _INIT:
            return
        if mode not in (FIXED, LOWEST_PRIORITY, _STARTUP):
            raise HostError(
                f"{self!r}: ICR {low:#x} has delivery mode {mode}: 0 (fixed), 1 (lowest priority), "
                "5 (INIT) and 6 (start-up) are here"
            )
        if mode != _STARTUP:
            self._check_vector(vector, f"ICR {low:#x}")
        messages = list(self._messages(core, unit, low, mode == LOWEST_PRIORITY, shorthand))
        unit.under_way += 1
        how = self._start_cores if mode == _STARTUP else self._send_ipis

        def arrive() -> None:
            unit.under_way -= 1
            how(messages)

        self.at(self.now + self._ipi_ps, arrive)

    def _messages(
        self, core: int, unit: _ApicUnit, low: int, lowest: bool, shorthand: int
    ) -> Iterator[InterruptMessage]:
        vector = low & 0xFF
        if shorthand == 0:
            logical = bool(low & 1 << 11)
            yield InterruptMessage(unit.icr_high >> 24, vector, logical, lowest)
        elif shorthand == 1:
            yield InterruptMessage(core, vector)
        else:
            for one in range(len(self._units)):
                if shorthand == 2 or one != core:
                    yield InterruptMessage(one, vector)

    def _send_ipis(self, messages: list[InterruptMessage]) -> None:
        for message in messages:
            self._send(message, "IPI")

    def _start_cores(self, messages: list[InterruptMessage]) -> None:
        """Cores that have no program begin at the page that the vector names."""
        self._home().heed_interrupt()
        for message in messages:
            for one in self.targets(message):
                self._cores[one].begin_at(message.vector << 12)
