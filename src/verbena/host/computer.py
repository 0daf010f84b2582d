# SPDX-License-Identifier: Apache-2.0
"""A computer: cores, a memory controller with its table of ranges, devices, and one clock.

    from verbena.host import Computer, Keyboard, Mouse, Program, Ram

    computer = Computer(ghz=3.0)
    computer.map(Ram(10_000), 0)
    computer.map(Keyboard(2_000), 10_000)
    computer.load(Program.assemble("movzx eax, byte ptr [11500]\\n hlt"))
    computer.run()

The clock is the agenda's, in picoseconds. A core runs up to the next event, which a store to a
device may bring nearer; ``hlt`` lets time pass to the next event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING

from verbena._arguments import checked_class, is_whole
from verbena.host._cpu import PhysicalMemory, Turns
from verbena.host.accesses import Accesses
from verbena.host.assembler import Program
from verbena.host.caches import Caches
from verbena.host.clock import NEVER, Agenda, Event
from verbena.host.computer_records import Counters, Range, Step, Transaction
from verbena.host.core import Core, Stop
from verbena.host.devices import Device, Ram, check_fault
from verbena.host.dma import Dma
from verbena.host.errors import HostError, HostTypeError
from verbena.host.interrupt_message import InterruptMessage, message_address
from verbena.host.iommu import Iommu
from verbena.host.memory_controller import MemoryController
from verbena.host.pci import PciBus
from verbena.host.pci_slot import PciSlot
from verbena.host.pcie import Pcie, Slot
from verbena.host.timeline import Timeline

if TYPE_CHECKING:
    from verbena.host.local_apics import LocalApics
    from verbena.host.machines import Machines
    from verbena.host.used_costs import UsedCosts


# A core gets fewer cycles than these beyond the next one, if the caller names no other number.
TURN_CYCLES = 16
# A core runs at most so many cycles until Python looks for signals, as Ctrl-C: a tenth of a second
# or so. Several in turns are slower.
WITHOUT_SIGNALS = 1 << 24
TURNS_WITHOUT_SIGNALS = 1 << 20


def halted(cores: Iterable[Core]) -> Stop:
    """Why cores that have all halted do not go on."""
    return Stop.WAITS if any(core.waits for core in cores) else Stop.HALT


def check_link(left: Computer | None, right: Computer | None, delay_ps: int) -> None:
    """HostError for a link between two computers that is shorter than the lookahead of their
    machines: what crosses it would come too late."""
    machines = None if left is right or left is None else left.machines
    if machines is not None and delay_ps < machines.lookahead_ps:
        delay = f"{delay_ps / 1000:g}"
        raise HostError(
            f"a link of {delay} ns is shorter than the lookahead, {machines.lookahead_ps / 1000:g} "
            f"ns: make Machines(lookahead_ns={delay})"
        )


@contextmanager
def names_the_place(runs: Computer | Machines) -> Iterator[None]:
    """Adds a note to Ctrl-C: where each core was, as in a loop without end."""
    try:
        yield
    except KeyboardInterrupt as error:
        error.add_note(runs.where())
        raise


def checked_limits(instructions: int, until: int) -> tuple[int, int]:
    """The limits of a run as a core takes them. Raises HostError for one below 0."""
    if instructions < 0 or until < 0:
        raise HostError(f"a run has at least 0 instructions and 0 ps: not {instructions}, {until}")
    return instructions, min(until, NEVER - 1)


@checked_class(
    HostTypeError,
    but=(
        "at",
        "dma_is_under_way",
        "dma_read",
        "dma_write",
        "heed_interrupt",
        "hold_core",
        "idle_until",
        "idle_until_latest",
        "interrupt_from",
        "read",
        "run_cores",
        "show_memory",
        "shut_down_core",
        "stop_for",
        "time_at",
        "time_of",
        "write",
    ),
)
class Computer:
    """``ghz`` is the clock of its cores, ``cores`` their number, ``caches`` what charged
    copies and loads cost by where their lines are; instructions cost the same without.

    While several cores are awake they take turns: the one that is furthest behind runs up to a
    random number of cycles below ``turn_cycles`` beyond the next one, at least one instruction.
    ``seed`` begins the random numbers. With 1 the order is that of their clocks.

    ``clock`` is an agenda that it shares with other computers: ``Machines`` makes and runs those.
    """

    def __init__(
        self,
        *,
        ghz: float = 3.0,
        cores: int = 1,
        name: str = "computer",
        clock: Agenda | None = None,
        caches: Caches | None = None,
        turn_cycles: int = TURN_CYCLES,
        seed: int = 0,
    ) -> None:
        if not 0.001 <= ghz <= 1000 or not 1 <= cores <= 1024:
            raise HostError(
                f"a computer has 1 to 1024 cores and a clock of 0.001 to 1000 GHz, and not {cores} "
                f"cores of {ghz} GHz"
            )
        if not 1 <= turn_cycles <= 1 << 20 or not 0 <= seed < 1 << 63:
            raise HostError(
                f"a turn has 1 to {1 << 20} cycles, and a seed is 0 to 2^63 - 1: turn_cycles is "
                f"{turn_cycles} and seed is {seed}"
            )
        per_cycle = Fraction(1000) / Fraction(ghz).limit_denominator(10_000)  # ps
        self._per_cycle = per_cycle.numerator, per_cycle.denominator
        self.name = name
        self.caches = caches
        self.machines: Machines | None = None  # which run it together with others
        self._controller = MemoryController()
        self._memory = self._controller.memory
        self._agenda = Agenda() if clock is None else clock
        self._dma = Dma(self)
        self.cores = [
            Core(self._memory, number, self._controller.find, self._who) for number in range(cores)
        ]
        for core in self.cores:
            core.caches = caches
        self._running = self.cores[0]
        self._awake: list[Core] = []  # the cores that take turns
        self._turns = Turns(turn_cycles, seed, self._has_turn)
        self._horizon = 0  # up to when that core runs if nothing is added to the agenda, in ps
        self.counters = Counters()
        self.apics: LocalApics | None = None  # set by an InterruptController
        self.has_timeline = False
        # Each gets a direction, an address and a size when a device's DMA is at memory, and
        # ("MSI", a vector, the core's number) when its interrupt is at the processor. Interrupts
        # that no device's message brings are "I/O APIC", "IPI" and "APIC timer".
        self.memory_observers: list[Callable[[str, int, int], None]] = []
        self.observers: list[Callable[[Transaction], None]] = []
        self._accesses = Accesses(self)

    def __repr__(self) -> str:
        ghz = float(1000 / self.cycle_ps)
        return f"<computer {self.name!r}: {len(self.cores)} cores of {ghz:g} GHz at {self.now} ps>"

    def _who(self, core: int) -> str:
        """One of its cores, at the start of an error; empty if there is no other core."""
        if self.machines is not None and len(self.machines.computers) > 1:
            return f"computer {self.name!r}, core {core}: "
        return f"core {core}: " if len(self.cores) > 1 else ""

    # ---- memory controller ----

    @property
    def table(self) -> list[Range]:
        """All ranges by address."""
        return self._controller.table

    @property
    def devices(self) -> list[Device]:
        """What is mapped beside memory, by address."""
        return [one.device for one in self.table if isinstance(one.device, Device)]

    @property
    def clock(self) -> Agenda:
        """The agenda, which computers of one ``Machines`` share."""
        return self._agenda

    @property
    def cycle_ps(self) -> Fraction:
        """The length of a cycle of its cores, in ps."""
        return Fraction(*self._per_cycle)

    @property
    def memory(self) -> PhysicalMemory:
        """The physical address space; ``print`` shows its table of ranges."""
        return self._memory

    def map(
        self,
        device: Ram | Device,
        base: int,
        *,
        pcie: Pcie | None = None,
        pci: PciBus | PciSlot | None = None,
        iommu: Iommu | None = None,
    ) -> None:
        """Gives a device or memory the range from ``base`` on; HostError if another has it.

        A device with ``pcie`` is at the end of a link, over which loads, stores, DMA and interrupts
        go, and one with ``pci`` on a bus that it shares with others; one without either answers at
        once. ``iommu`` translates the addresses of the DMA that comes over links; several devices
        may share one.
        """
        new = self._controller.free_range(device, base)
        if isinstance(device, Ram):
            if (pcie, pci, iommu) != (None, None, None):
                raise HostError(f"{device!r} is on no bus: pcie, pci and iommu are for devices")
        else:
            self._plug(device, base, pcie, pci, iommu)
        self._controller.add(new)

    def _plug(
        self,
        device: Device,
        base: int,
        pcie: Pcie | None,
        pci: PciBus | PciSlot | None,
        iommu: Iommu | None,
    ) -> None:
        if device.computer is not None:
            raise HostError(f"{device!r} is mapped already")
        if iommu is not None and pcie is None:
            raise HostError("an IOMMU translates what comes over a PCIe link: give pcie, too")
        if pcie is not None and pci is not None:
            raise HostError(f"{device!r} is at a PCIe link or on a PCI bus: give pcie or pci")
        if pcie is None and pci is None:
            device.bus = None
            check_fault(device, device.bus_fault)
        place = pci.slot() if isinstance(pci, PciBus) else pci
        if place is not None:
            place.bus.connect(self, device, place)
        device.computer, device.base, device.was_unmapped = self, base, False
        device.slot = None if pcie is None else Slot(pcie, type(device).__name__)
        device.pci, device.bus = place, device.slot or place
        device.iommu = iommu
        self._memory.add_window(base, device.size, *self._accesses.window(device, base))

    def unmap(self, base: int) -> None:
        """Takes the range that begins at ``base`` away.

        A device may do so while a core accesses it: the range is gone for the rest of the
        instruction, too. A device's DMA under way ends, with what has arrived in memory, and what
        it has asked to be called is not called while it is unmapped.
        """
        device = self._controller.remove(base).device
        if isinstance(device, Device):
            device.drop_dma()
            device.was_unmapped = True
            if device.pci is not None:
                device.pci.disconnect()
            device.computer = device.base = None

    def find(self, address: int) -> Range | None:
        """The range that an address belongs to."""
        return self._controller.find(address)

    def read(self, address: int, size: int) -> bytes:
        """Bytes of memory, as a debugger reads them; HostError if there is none."""
        return self._controller.read(address, size)

    def write(self, address: int, data: bytes) -> None:
        """Writes memory."""
        self._controller.write(address, data)

    def load(self, program: Program, core: int = 0) -> None:
        """Puts a program into memory and lets a core begin with its first instruction."""
        begins = self._core(core)
        if not program.code:
            raise HostError("the program has no instruction: it is empty, or has only comments")
        self.write(program.origin, program.code)
        begins.begin(program)

    def _core(self, number: int) -> Core:
        if not 0 <= number < len(self.cores):
            raise HostError(f"there is no core {number}: there are 0 to {len(self.cores) - 1}")
        return self.cores[number]

    # ---- accesses of cores to devices ----

    def store(self, address: int, data: bytes) -> None:
        """A store to a device at this time, as one instruction of a core makes it: posted.

        Programs in Python use it; ``data`` has up to 64 bytes.
        """
        found = self.find(address)
        if found is None or not isinstance(found.device, Device):
            raise HostError(f"no device answers a store at {address:#x}")
        if not 0 < len(data) <= 64:
            raise HostError(f"a store has 1 to 64 bytes, not {len(data)} at {address:#x}")
        if address + len(data) > found.end:
            raise HostError(
                f"a store of {len(data)} bytes at {address:#x} goes beyond the end of "
                f"{found.device!r}, {found.end:#x}: no more than {found.end - address} fit"
            )
        value = int.from_bytes(data, "little")
        self._accesses.store(found.device, found.base, address - found.base, len(data), value)

    def stop_for(self, time: int) -> None:
        """Lets the core that runs come back, if something at ``time`` has its turn before."""
        if time < self._horizon or len(self.cores) > 1 or self.machines is not None:
            self._running.state.pause()

    def hold_core(self, until: int) -> None:
        """The core that runs waits until a time."""
        state, cycle = self._running.state, self._cycle_of(until)
        if cycle > state.cycles:
            state.cycles = cycle

    def shut_down_core(self) -> None:
        """The core that runs does nothing more, until a program is loaded for it."""
        self._running.shut_down()

    # ---- what devices do ----

    def at(self, time: int, call: Callable[[], None]) -> Event:
        """Calls at a time, in ps; the event can be cancelled. HostError for a time below 0. One
        that is past, as a core that runs ahead may see it, is now."""
        if is_whole(time) and time < 0:
            raise HostError(f"an event has a time from 0 ps on, and not {time}")
        now = self._agenda.now
        event = self._agenda.add(now if is_whole(time) and time < now else time, call)
        self.stop_for(time)
        return event

    def interrupt_from(
        self, device: Device, vector: int, core: int, message: InterruptMessage | None = None
    ) -> None:
        """Delivers a device's interrupt to a core, over the device's link.

        ``message`` is that of a device with MSI-X, for local APICs.
        """
        if message is None:
            self._check_interrupt(device, vector, core)
        self.counters.interrupts_sent += 1

        def arrive() -> None:
            if self.apics is not None:
                self.apics.deliver(message or InterruptMessage(core, vector))
                return
            self.show_memory("MSI", vector, core)
            self.heed_interrupt()
            if not self.cores[core].state.interrupt(vector):
                self.counters.interrupts_merged += 1

        def arrive_behind_writes(slot: Slot) -> None:
            settled = self._dma.settled_at(slot)
            if settled > self.now:
                self.at(settled, arrive)
            else:
                arrive()

        if device.slot is not None:
            slot = device.slot
            self.at(slot.message(self.now), lambda: arrive_behind_writes(slot))
        elif device.pci is not None and message is not None:  # a write as any other
            place = message_address(message.destination)
            device.pci.carry_to_memory(self.now, 4, place, self.at, arrive)
        else:
            arrive()

    def _check_interrupt(self, device: Device, vector: int, core: int) -> None:
        if not 0 <= vector <= 255:
            raise HostError(f"{device!r} has sent interrupt {vector}: vectors are 0 to 255")
        if not 0 <= core < len(self.cores):
            raise HostError(
                f"{device!r} has sent interrupt {vector} to core {core}: there are 0 to "
                f"{len(self.cores) - 1}"
            )

    def heed_interrupt(self) -> None:
        """An interrupt comes to a core now: the run looks again which core goes on."""
        if len(self.cores) > 1:  # an interrupt wakes a core now, and not when it fell asleep
            self.idle_until(self.now)
        self._running.state.pause()

    def dma_write(
        self,
        device: Device,
        address: int,
        data: bytes,
        then: Callable[[], None] | None,
        who: str | None = None,
    ) -> None:
        """Writes to memory for a device; AccessError names it, or ``who`` wrote for it, if there
        is no memory."""
        self._dma.write(device, address, data, then, who)

    def dma_is_under_way(self, page: int) -> bool:
        """Whether a device reads or writes the page of 4096 bytes at an address now."""
        return self._dma.is_under_way(page)

    def dma_read(
        self, device: Device, address: int, size: int, then: Callable[[bytes], None]
    ) -> None:
        """Reads memory for a device."""
        self._dma.read(device, address, size, then)

    def show_memory(self, kind: str, address: int, size: int) -> None:
        """Tells ``memory_observers`` of what a device did to memory or processor."""
        for observe in self.memory_observers:
            observe(kind, address, size)

    # ---- time ----

    def _time_of(self, cycle: int) -> int:
        return cycle * self._per_cycle[0] // self._per_cycle[1]

    def _cycle_of(self, time: int) -> int:
        """The first cycle that is not before ``time``."""
        return -(-time * self._per_cycle[1] // self._per_cycle[0])

    @property
    def now(self) -> int:
        """The time, in ps: of the event that runs, or of the core that runs. Between runs it is
        that of the latest core, so that nothing that is added then is in the past of a core."""
        if self._agenda.runs:
            return self._agenda.now
        cycles = self._running.state.cycles
        if not self._agenda.is_run and len(self.cores) > 1:
            cycles = max(core.state.cycles for core in self.cores)
        agenda, time = self._agenda.now, self._time_of(cycles)
        return time if time > agenda else agenda

    def run(self, *, instructions: int = 1 << 62, until: int = NEVER - 1) -> Stop:
        """Runs until all cores have halted and no event is left, a breakpoint, a fault, the time
        ``until`` in ps, or so many instructions. Says which it was.

        Without a limit a program with an endless loop, and a timer that never stops, run for ever:
        ``run(instructions=1_000_000)`` or ``run(until=computer.now + 10**9)`` (a millisecond) end,
        and ``where`` then says which instruction is next. Ctrl-C ends a run, too: its
        ``KeyboardInterrupt`` has a note with the same, and a further run goes on there.
        A fault without a handler raises ``ProcessorError`` with its address and instruction. A
        computer of ``Machines`` runs with the others.
        """
        if self.machines is not None:
            return self.machines.run(instructions=instructions, until=until)
        left, until = checked_limits(instructions, until)
        with self._agenda.run_by(self.name), names_the_place(self):
            return self._run(left, until)

    def _run(self, left: int, until: int) -> Stop:
        while True:
            core = self._next_core()
            self._running = core
            horizon = self._horizon = min(self._agenda.next_at, until + 1)
            time = self._time_of(core.state.cycles)
            if core.sleeps or time >= horizon:
                if self._agenda.next_at == NEVER and core.sleeps:
                    self.idle_until_latest()
                    return halted(self.cores)
                # Nothing is between the events up to the time of a lone core that is awake: in one
                # go they cost 1.3 us less each (AMD EPYC, Python 3.11).
                alone = len(self.cores) == 1 and not core.sleeps
                self._pass_time(min(time if alone else horizon, until))
                if horizon > until:
                    return Stop.TIME
                continue
            before = self.instructions
            stop = self.run_cores(core, left, horizon)
            left -= self.instructions - before
            if stop is Stop.MARK or left <= 0:
                return stop

    @property
    def costs(self) -> UsedCosts:
        """What its runs so far have used of the list of costs; ``print(computer.costs)``."""
        from verbena.host.used_costs import costs_of

        return costs_of(self)

    def where(self) -> str:
        """Where each core is, with its instruction: at a limit, what a loop without end does."""
        return "; ".join(core.where for core in self.cores)

    def _next_core(self) -> Core:
        """The core that is furthest behind, of those that are awake if any is."""
        if len(self.cores) == 1:
            return self.cores[0]
        return min(self.cores, key=lambda one: (one.sleeps, one.state.cycles))

    def _pass_time(self, to: int) -> None:
        """Runs the events up to ``to``; halted cores are idle until then."""
        self.idle_until(to)
        self._agenda.run_due(to)

    def idle_until(self, to: int) -> None:
        """Lets halted cores be idle up to ``to``, in ps."""
        for core in self.cores:
            if core.sleeps:
                idle = self._cycle_of(to) - core.state.cycles
                if idle > 0:
                    self.counters.idle_ps += self._time_of(idle)
                    core.show("idle", core.state.cycles, core.state.cycles + idle)
                    core.state.cycles += idle

    def idle_until_latest(self) -> None:
        """Lets halted cores be idle up to the latest core, at the end of a run."""
        self.idle_until(max(map(self.time_of, self.cores)))

    def time_at(self, cycle: int) -> int:
        """The time of a cycle of the cores' clock, in ps."""
        return self._time_of(cycle)

    @property
    def running(self) -> int:
        """The number of the core that runs or ran last."""
        return self._running.number

    @property
    def running_core(self) -> Core:
        """The core that runs or ran last."""
        return self._running

    def timeline(self) -> Timeline:
        """Follows the computer from now on; of several that share a clock, ``Machines`` has it."""
        return Timeline([self])

    def time_of(self, core: Core) -> int:
        """The time that a core has reached, in ps."""
        return self._time_of(core.state.cycles)

    @property
    def instructions(self) -> int:
        """The number of instructions that its cores have run."""
        return sum(core.state.instructions for core in self.cores)

    def run_cores(self, first: Core, most: int, until: int) -> Stop:
        """Runs the cores that are awake for at most ``most`` instructions and up to ``until``, in
        ps, or less; ``first`` is the one that is furthest behind.

        It ends early where Python has something to do, or signals to look for.
        """
        self._running = first
        begin, end = first.state.cycles, self._cycle_of(until)
        self._awake = [] if len(self.cores) == 1 else [one for one in self.cores if not one.sleeps]
        if len(self._awake) < 2:
            stop = first.run(most, min(end, begin + WITHOUT_SIGNALS))
        else:
            stop = self._take_turns(most, min(end, begin + TURNS_WITHOUT_SIGNALS))
        if stop is Stop.MARK and not self._running.breaks_here():
            return Stop.LIMIT
        return stop

    def _has_turn(self, number: int) -> None:
        """The core whose device access, or whose end of the run, comes next."""
        self._running = self._awake[number]

    def _take_turns(self, most: int, until: int) -> Stop:
        starts = [core.state.cycles for core in self._awake]
        try:
            states = [core.state for core in self._awake]
            stop, _ = self._turns.run(states, min(most, (1 << 63) - 1), min(until, (1 << 64) - 1))
        except Exception as error:  # of what an instruction has reached
            self._running.locate(error)
            raise
        for core, start in zip(self._awake, starts, strict=True):
            if core.observers:
                core.show("program", start, core.state.cycles)
        return self._running.checked(Stop(stop))

    def steps(self, core: int = 0) -> Iterator[Step]:
        """Runs one instruction of a core at a time, and says of each what it did.

        Devices go on meanwhile. The other cores stand still: they run no instruction, and their
        clocks stay unless they have halted. The steps end when the core has halted and no event is
        left, also if another core would wake it. A ``run`` after that lets the others catch up, and
        ``zip(computer.steps(0), computer.steps(1))`` steps two cores in turn.
        """
        one = self._core(core)
        while True:
            while one.sleeps or self._agenda.next_at <= self._time_of(one.state.cycles):
                if self._agenda.next_at == NEVER:
                    return
                self._pass_time(self._agenda.next_at)
            seen: list[Transaction] = []
            self.observers.append(seen.append)
            self._running = one
            try:
                with self._agenda.run_by(self.name):
                    vector = one.take_interrupt()
                    start, address, before = self.now, one.rip, one.registers.all()
                    text = one.text(address)
                    one.breaks_here()  # for what is called at the instruction
                    if one.run(1, (1 << 64) - 1) is Stop.MARK:
                        one.run(1, (1 << 64) - 1)  # a run up to a time has ended at a breakpoint
            finally:
                self.observers.remove(seen.append)
            after = one.registers.all()
            changed = {name: value for name, value in after.items() if before[name] != value}
            yield Step(start, address, text, changed, seen, vector)
