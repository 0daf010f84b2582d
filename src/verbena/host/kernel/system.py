# SPDX-License-Identifier: Apache-2.0
"""A computer with the usual devices and a kernel: what lessons and tests begin with.

    system = System()
    system.run("mov eax, SYS_EXIT\\n mov edi, 7\\n syscall")

``run_systems`` lets several of one ``Machines`` run together.
"""

from __future__ import annotations

from verbena._arguments import checked_arguments, checked_class
from verbena.host.assembler import Program
from verbena.host.computer import Computer
from verbena.host.consoles import Display, Timer
from verbena.host.core import Stop
from verbena.host.cost_list import ListedCost, listed_cost, used_costs
from verbena.host.devices import Keyboard, Mouse, Ram
from verbena.host.disk import Disk
from verbena.host.errors import HostError, HostTypeError
from verbena.host.hca.device import Hca
from verbena.host.interrupt_controller import InterruptController
from verbena.host.kernel.kernel import Kernel
from verbena.host.kernel.process import Process
from verbena.host.machines import Machines
from verbena.host.nic import EthernetAdapter
from verbena.host.pcie import Pcie
from verbena.host.used_costs import UsedCost, UsedCosts

TIMER, KEYBOARD, DISPLAY = 0x1000_0000, 0x1000_1000, 0x1000_2000  # where the devices are
MOUSE = 0x1000_4000
DISK, ADAPTER = 0x1010_0000, 0x1020_0000
TIMER_LINE, KEYBOARD_LINE = 2, 1  # of an I/O APIC, as on usual boards
_FROM_OUTSIDE = ("a key", "a datagram")


@checked_class(HostTypeError)
class System:
    """Memory of ``memory`` bytes, a timer, keyboard, mouse, display, perhaps a disk and an adapter.

    Disk and adapter are behind PCIe links like ``pcie``. With ``apic`` there is an
    ``InterruptController``, to whose lines 2 and 1 timer and keyboard are wired. ``machines`` gives
    the clock that several systems share. The other parameters are those of ``Computer`` and
    ``Kernel``.
    """

    def __init__(
        self,
        *,
        name: str = "system",
        ghz: float = 3.0,
        memory: int = 4 << 20,
        disk: Disk | bytes | None = None,
        adapter: bool = False,
        pcie: Pcie | None = None,
        machines: Machines | None = None,
        tick_us: float = 100.0,
        disk_by: str = "dma",
        host: int = 1,
        budget: int = 32,
        receive_buffer: int = 16,
        apic: bool = False,
    ) -> None:
        if machines is None:
            self.computer = Computer(name=name, ghz=ghz)
        else:
            self.computer = machines.computer(name, ghz=ghz)
        self.timer, self.keyboard, self.display = Timer(), Keyboard(), Display()
        self.mouse = Mouse()
        self.disk = Disk(disk) if isinstance(disk, bytes) else disk
        self.adapter = EthernetAdapter() if adapter else None
        link = Pcie() if pcie is None else pcie
        self.computer.map(Ram(memory), 0)
        self.computer.map(self.timer, TIMER)
        self.computer.map(self.keyboard, KEYBOARD)
        self.computer.map(self.display, DISPLAY)
        self.computer.map(self.mouse, MOUSE)
        if self.disk is not None:
            self.computer.map(self.disk, DISK, pcie=link)
        if self.adapter is not None:
            self.computer.map(self.adapter, ADAPTER, pcie=link)
        self.controller = InterruptController(self.computer) if apic else None
        if self.controller is not None:
            self.controller.io.connect(self.timer, TIMER_LINE)
            self.controller.io.connect(self.keyboard, KEYBOARD_LINE)
        self.kernel = Kernel(
            self.computer, tick_us=tick_us, disk_by=disk_by, host=host, budget=budget,
            receive_buffer=receive_buffer,
        )  # fmt: skip

    def start(
        self,
        program: Program | str,
        *,
        name: str = "",
        memory: int = 64 << 10,
        stack: int = 4096,
    ) -> Process:
        """A process that is ready, as ``Kernel.start`` makes it; it runs in the next run."""
        return self.kernel.start(program, name=name, memory=memory, stack=stack)

    def run(self, *programs: Program | str, limit_us: float = 100_000.0) -> list[Process]:
        """Starts programs and runs until all processes have ended, or wait for what does not come.

        HostError if after ``limit_us`` of the computer's time one still runs: it says which, and
        where. Returns the processes of these programs.
        """
        started = [self.start(one) for one in programs]
        run_systems(self, limit_us=limit_us)
        return started

    def advance(self, us: float) -> None:
        """Runs for so long of the computer's time, whatever the processes do then."""
        if us < 0:
            raise HostError(f"time goes on: {us} us are below 0")
        until = self.computer.now + round(us * 1e6)
        end = self.computer.at(until, lambda: None)  # time passes up to it where nothing happens
        self.computer.run(until=until)
        end.cancel()
        self.kernel.check()

    def used_costs(self) -> list[ListedCost]:
        """The rows of ``verbena.host.cost_list`` that the runs so far have used: the kernel and
        programs as machine code, and what cores were charged beside it."""
        return [listed_cost("kernel"), *used_costs(self.computer)]

    @property
    def costs(self) -> UsedCosts:
        """The same with how often, or how many cycles: those of the program are all processes' in
        ring 3, those of the kernel the other busy ones that were not charged."""
        computer, used = self.computer, self.computer.costs
        busy = sum(core.state.cycles for core in computer.cores)
        busy -= round(computer.counters.idle_ps / computer.cycle_ps)
        user = sum(one.cycles.user for one in self.kernel.processes)
        charged = sum(core.ledger.total for core in computer.cores)
        kernel = UsedCost(listed_cost("kernel"), max(0, busy - user - charged), "cycles")
        program = UsedCost(listed_cost("program"), user, "cycles")
        return UsedCosts([kernel, program, *(one for one in used if one.name != "program")])


@checked_arguments(HostTypeError)
def run_systems(*systems: System, limit_us: float = 100_000.0) -> None:
    """Runs systems of one ``Machines``, or one alone, as ``System.run`` does."""
    if not systems or any(one.computer.clock is not systems[0].computer.clock for one in systems):
        raise HostError("systems that run together have one clock: give them one Machines")
    if limit_us <= 0:
        raise HostError(f"a limit is above 0 us, not {limit_us}")
    _check_network(systems)
    computer = systems[0].computer
    stop = computer.run(until=max(one.computer.now for one in systems) + round(limit_us * 1e6))
    for one in systems:
        one.kernel.check()
    still = [process for one in systems for process in one.kernel.processes if _runs(process)]
    if stop is Stop.TIME and still:
        texts = [f"{one.title} at {one.address:#x}: {one.text(one.address)}" for one in still]
        raise HostError(
            f"after {limit_us:,.0f} us there still runs {'; '.join(texts)} (a loop without end? "
            f"Otherwise raise limit_us){_refusal(systems)}"
        )


def _refusal(systems: tuple[System, ...]) -> str:
    """What an RDMA adapter did not do at last, for which a process may wait; "" if nothing."""
    devices = [device for one in systems for device in one.computer.devices]
    last = [one.refusals[-1] for one in devices if isinstance(one, Hca) and one.refusals]
    return f"; an adapter's last refusal: {max(last, key=lambda one: one.at)}" if last else ""


def _check_network(systems: tuple[System, ...]) -> None:
    """HostError for systems that could not reach each other, and would not notice."""
    owners: dict[int, str] = {}
    for one in systems:
        name, host = one.computer.name, one.kernel.host
        if one.adapter is None:
            continue
        if host in owners:
            raise HostError(
                f"{owners[host]} and {name} are both host {host}, so that neither would get what "
                f"is for the other: give each a number of its own, System(host={host + 1})"
            )
        owners[host] = name
        if one.adapter.cable is None:
            raise HostError(
                f"the adapter of {name} has no cable, so that its frames would be lost: make "
                "Cable(left.adapter, right.adapter), or leave the adapter out"
            )


def _runs(process: Process) -> bool:
    """Not if it has ended, or waits for a key or a datagram."""
    return not process.has_ended and not (process.waits_for or "").startswith(_FROM_OUTSIDE)
