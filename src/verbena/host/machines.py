# SPDX-License-Identifier: Apache-2.0
"""Several computers on one clock, which act on each other through links that have a delay.

    machines = Machines(lookahead_ns=500)
    left, right = machines.computer("left"), machines.computer("right", ghz=2.5)
    ...                                     # memory, devices, programs, a Wire between them
    machines.run()

The core that is furthest behind runs first, and no further than ``lookahead_ns`` beyond the next
one of another computer: what one computer does reaches another no sooner, so that the result is
that of running all instructions in order of time. Equal times go by the order of the computers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verbena._arguments import checked_class
from verbena.host.clock import NEVER, Agenda
from verbena.host.computer import Computer, checked_limits, halted, names_the_place
from verbena.host.core import Core, Stop
from verbena.host.errors import HostError, HostTypeError
from verbena.host.timeline import Timeline

if TYPE_CHECKING:
    from verbena.host.used_costs import UsedCosts


@checked_class(HostTypeError)
class Machines:
    """``lookahead_ns`` is the smallest delay of a link between two of the computers."""

    def __init__(self, *, lookahead_ns: float = 100.0) -> None:
        if lookahead_ns < 0:
            raise HostError("a lookahead is at least 0 ns")
        self.clock = Agenda()
        self.computers: list[Computer] = []
        self.lookahead_ps = round(lookahead_ns * 1000)

    def computer(self, name: str, **settings: Any) -> Computer:
        """Makes a computer with the settings of ``Computer``; HostError if the name is taken."""
        if any(one.name == name for one in self.computers):
            raise HostError(f"there is a computer {name!r} already")
        made = Computer(name=name, clock=self.clock, **settings)
        made.machines = self
        self.computers.append(made)
        return made

    def timeline(self) -> Timeline:
        """Follows all computers and the cables between them from now on."""
        return Timeline(self.computers)

    @property
    def now(self) -> int:
        """The time of the latest computer, in ps."""
        return max((one.now for one in self.computers), default=self.clock.now)

    @property
    def costs(self) -> UsedCosts:
        """What the runs of all computers so far have used of the list of costs."""
        from verbena.host.used_costs import costs_of

        return costs_of(*self.computers)

    def where(self) -> str:
        """Where each core of each computer is, with its instruction."""
        return "; ".join(f"{one.name}: {one.where()}" for one in self.computers)

    def run(self, *, instructions: int = 1 << 62, until: int = NEVER - 1) -> Stop:
        """Runs until all cores have halted and no event is left, or as ``Computer.run`` says.

        ``instructions`` are those of one core, ``until`` is in ps.
        """
        instructions, until = checked_limits(instructions, until)
        names = ", ".join(one.name for one in self.computers)
        with self.clock.run_by(names), names_the_place(self):
            return self._run_all(instructions, until)

    def _run_all(self, instructions: int, until: int) -> Stop:
        first: dict[Core, int] = {}
        while True:
            horizon = min(self.clock.next_at, until + 1)
            awake = self._awake()
            if not awake or awake[0][0] >= horizon:
                if self.clock.next_at == NEVER and not awake:
                    for computer in self.computers:
                        computer.idle_until_latest()
                    return halted(core for one in self.computers for core in one.cores)
                self._pass_time(min(horizon, until))
                if horizon > until:
                    return Stop.TIME
                continue
            time, place, core = awake[0]
            others = [other for other, at, _ in awake if at != place]
            limit = min(horizon, max(others[0] + self.lookahead_ps if others else NEVER, time + 1))
            cores = [one for _, at, one in awake if at == place]
            for one in cores:
                first.setdefault(one, one.state.instructions)
            left = [instructions - (one.state.instructions - first[one]) for one in cores]
            stop = self.computers[place].run_cores(core, min(left), limit)
            done = any(one.state.instructions - first[one] >= instructions for one in cores)
            if stop is Stop.MARK or done:
                return stop

    def _pass_time(self, to: int) -> None:
        """Runs the events up to ``to``; halted cores are idle until then."""
        for computer in self.computers:
            computer.idle_until(to)
        self.clock.run_due(to)

    def _awake(self) -> list[tuple[int, int, Core]]:
        """(time, place of its computer, core) of all cores that can run, the earliest first."""
        found = [
            (computer.time_of(core), place, core)
            for place, computer in enumerate(self.computers)
            for core in computer.cores
            if not core.sleeps
        ]
        return sorted(found, key=lambda one: one[:2])
