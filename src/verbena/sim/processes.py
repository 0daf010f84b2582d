# SPDX-License-Identifier: Apache-2.0
"""Programs of simulated hosts in processes of their own: ``run_processes``, and ``Processes``,
which gives the processes their turns.

The world is in this process. A program's process has the packet engines of its host's adapters; the
two share a segment of memory (``_world.Crossing``). One process runs at a time, and time passes
while all wait. ``remote.run`` is what such a process calls.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, Self

from ._world import NOTHING_LEFT, Crossing, World, inside_of
from .arguments import run_settings
from .callbacks import PS, ps_of
from .errors import Deadlock, NotSimulated, ProgramEnded
from .far_connections import ProgramDevices
from .hosts import MOST_PORTS, Host, Hosts, PKeys
from .letters import VARIABLE, Kind, Letter
from .run import Result, hosts_of
from .waits import deadlock_head

if TYPE_CHECKING:
    from verbena.fabrics import Fabric, Routes

__all__ = ["Processes", "run_processes"]

_ASKING = (Kind.ASK, Kind.CHARGE, Kind.REGISTERED)  # a program waits for the answer

PATIENCE_S = 10  # for the end of a process after that of its program


def run_processes(
    commands: Mapping[str, Sequence[str]],
    fabric: World | Fabric | Routes,
    *,
    control_delay: float = 10e-6,
    switch: Mapping[str, Any] | None = None,
    pkeys: Mapping[str, PKeys] | None = None,
    adapters: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    **world: Any,
) -> Result:
    """Run a program in a process of its own on each of these hosts, until all have returned.

    ``commands``: for each host's name a command, whose process calls ``sim.remote.run``. The other
    arguments are those of ``sim.run``, and so is the result.

    Raises ProgramEnded if a process ends before its program has returned, and Deadlock, which names
    what waits in each program, if nothing is left to happen; the processes are killed then. Raises
    NotSimulated for ``sockets="tcp"``.
    """
    given = run_settings(until=None, control_delay=control_delay, background=(), seed=seed)
    hosts = hosts_of(fabric, switch, adapters, seed, pkeys, world)
    if hasattr(hosts, "internet"):
        raise NotSimulated("run_processes: programs on an Internet are run by sim.run")
    if hosts.world.sockets != "control":
        raise NotSimulated(
            'run_processes: sockets="tcp" are for programs in the process of the world: '
            "call sim.run, or leave out sockets"
        )
    with Processes(hosts, given.control_delay, seed) as processes:
        for name, command in commands.items():
            processes.start(name, command)
        return processes.run()


@dataclass(eq=False)
class _Program:
    """A program's process.

    ``until``: when it wants its next turn, in ps. ``stuck``: what of it waits in a deadlock.
    """

    host: Host
    crossing: Crossing
    lifeline: socket.socket
    process: subprocess.Popen[bytes]
    until: int | None = 0
    letters: list[Letter] = field(default_factory=list)
    returned: bool = False
    ended: bool = False
    stuck: str | None = None
    devices: ProgramDevices | None = None  # of verbena.cm; None: it has opened none


class Processes:
    """The processes of a world's programs. Use it in a ``with`` block, which ends them."""

    def __init__(self, hosts: Hosts, control_delay: float = 10e-6, seed: int = 0) -> None:
        self.hosts = hosts
        self.result = Result(hosts.world, hosts)
        self._delay = control_delay
        self._seed = seed
        self._programs: dict[int, _Program] = {}  # by the number of the host
        self._by_port: dict[int, _Program] = {}  # by the number of a host of the world
        self._letters: list[tuple[int, int, Letter]] = []  # a heap, by time
        self._numbers = count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for program in self._programs.values():
            program.process.kill()
            program.process.wait()
            program.lifeline.close()

    def start(self, name: str, command: Sequence[str]) -> None:
        """Start the process of a host's program. It waits for ``run``."""
        host = self.hosts[name]
        if host.number in self._programs:
            raise ValueError(f"{name} has a program already")
        one = len(host.ports) <= MOST_PORTS
        own, other = socket.socketpair()
        with other:
            ports = [host.ports] if one else [(port,) for port in host.ports]
            crossing = Crossing(self.hosts.attachments, ports, host.pkeys, own.fileno())
            passed = (crossing.fd, other.fileno())
            variables = {**os.environ, VARIABLE: f"{passed[0]},{passed[1]}"}
            process = subprocess.Popen(list(command), pass_fds=passed, env=variables)
        made = _Program(host, crossing, own, process)
        self._programs[host.number] = made
        self._by_port |= dict.fromkeys(host.ports, made)
        made.letters.append(Letter(0, Kind.BEGIN, text=json.dumps(self._begin(host)).encode()))

    def _begin(self, host: Host) -> dict[str, Any]:
        ports = {one.name: one.ports for one in self.hosts}
        return {
            "host": host.name,
            "ports": ports,
            "control_delay": self._delay,
            "seed": self._seed,
            "has_inside": inside_of(self.hosts.world, host.ports[0]) is not None,
        }

    def run(self) -> Result:
        """Give the processes their turns until all programs have returned."""
        ends = select.poll()
        for program in self._programs.values():
            ends.register(program.lifeline, select.POLLRDHUP)
        ready = list(self._programs.values())
        while True:
            for program in ready:
                self._turn(program, 1)
            if all(program.ended for program in self._programs.values()):
                self._await_ends()
                return self.result
            if ends.poll(0):
                self._look(ends)
            ready = self._wait()

    def _wait(self) -> list[_Program]:
        """Let time pass, and return the programs that have something to do."""
        now = self.hosts.attachments.now
        due = [self._programs[letter.target] for letter in self._take_letters(now)]
        left = [program for program in self._programs.values() if not program.ended]
        due += [one for one in left if one.until is not None and one.until <= now]
        if due:
            return list(dict.fromkeys(due))
        times = [one.until for one in left if one.until is not None]
        times += [self._letters[0][0]] if self._letters else []
        try:
            why, numbers = self.hosts.attachments.pass_time(min(times, default=None))
        except BrokenPipeError:
            raise self._ended() from None
        if why in ("done", "deadlock") and not times and not numbers:
            self._ask_what_waits(left, why)
        found = [self._by_port[number] for number in numbers]
        return [one for one in dict.fromkeys(found) if not one.ended]

    def _ask_what_waits(self, left: Sequence[_Program], why: str) -> None:
        """Tell programs that nothing is left to happen. Raises Deadlock with what they wait for."""
        for program in left:
            if not program.returned:
                self._turn(program, NOTHING_LEFT)
        stuck = [each for each in left if each.stuck is not None]
        if not stuck:
            return
        lines = [deadlock_head(self.hosts.attachments.now / PS, self.hosts, why)]
        raise Deadlock("\n".join([*lines, *(each.stuck or "" for each in stuck)]))

    def _turn(self, program: _Program, why: int) -> None:
        while program.letters and program.crossing.write(program.letters[0].pack()):
            del program.letters[0]
        try:
            said = program.crossing.run(why)
        except BrokenPipeError:
            raise self._ended() from None
        if said is None:
            program.ended = True
            if program.devices is not None:
                program.devices.close()
            if not program.returned:
                raise self._error([program])
            return
        letters, program.until = said
        if program.letters:
            program.until = self.hosts.attachments.now
        asked = False
        for packed in letters:
            letter = Letter.read(packed)
            asked |= letter.kind in _ASKING
            if letter.kind == Kind.ASK:
                program.letters.insert(0, self._answer(program, letter.text))
            elif letter.kind == Kind.CHARGE:
                program.letters.insert(0, self._charged(program, letter.text))
            elif letter.kind == Kind.REGISTERED:
                program.letters.insert(0, self._registered(program, letter.text))
            else:
                self._post(letter)
        if asked:
            self._turn(program, 1)

    def _answer(self, program: _Program, asked: bytes) -> Letter:
        """Carry out a call of a device of verbena.cm."""
        number, now = program.host.number, self.hosts.attachments.now
        if program.devices is None:

            def tell(device: int) -> None:
                due = self.hosts.attachments.now
                self._post(Letter(due, Kind.EVENTS, target=number, own=device))

            program.devices = ProgramDevices(
                lambda: self.hosts.connection_managers().of(program.host), tell
            )
        return Letter(now, Kind.ANSWER, target=number, text=program.devices.answer(asked))

    def _charged(self, program: _Program, asked: bytes) -> Letter:
        """Let a core of the host's inside work for a program."""
        try:
            answer: int | list[str] | None = program.host.charge(**json.loads(asked))
        except (TypeError, ValueError) as error:
            answer = [type(error).__name__, str(error)]
        number, now = program.host.number, self.hosts.attachments.now
        return Letter(now, Kind.ANSWER, target=number, text=json.dumps(answer).encode())

    def _registered(self, program: _Program, told: bytes) -> Letter:
        """Let the first core of the host's inside work for memory that a program registered."""
        program.host.registered(**json.loads(told))
        return Letter(self.hosts.attachments.now, Kind.ANSWER, target=program.host.number)

    def _post(self, letter: Letter) -> None:
        if letter.kind == Kind.RETURNED:
            self._note(self._programs[letter.source], letter)
        elif letter.kind == Kind.STUCK:
            self._programs[letter.source].stuck = letter.text.decode(errors="replace")
        elif letter.target in self._programs:
            heappush(self._letters, (letter.due, next(self._numbers), letter))
        elif letter.kind == Kind.OPEN:  # nobody listens on a host without a program
            due = ps_of(letter.due / PS + self._delay)
            assert due is not None
            refused = Letter(due, Kind.REFUSED, letter.target, letter.source, peer=letter.own)
            heappush(self._letters, (due, next(self._numbers), refused))

    def _take_letters(self, now: int) -> list[Letter]:
        """Give the letters that are due to their programs, and return them."""
        taken = []
        while self._letters and self._letters[0][0] <= now:
            letter = heappop(self._letters)[2]
            if not self._programs[letter.target].ended:
                self._programs[letter.target].letters.append(letter)
                taken.append(letter)
        return taken

    def _note(self, program: _Program, letter: Letter) -> None:
        """Note that a program has returned, and tell all when they have."""
        program.returned = True
        name = program.host.name
        self.result.returned[name] = pickle.loads(letter.text)
        self.result.finished[name] = letter.due / PS
        if all(one.returned for one in self._programs.values()):
            for number in self._programs:
                self._post(Letter(letter.due, Kind.OVER, target=number))

    def _look(self, ends: select.poll) -> None:
        for fd, _ in ends.poll(0):
            program = next(one for one in self._programs.values() if one.lifeline.fileno() == fd)
            if not program.ended:
                raise self._ended()
            ends.unregister(fd)

    def _await_ends(self) -> None:
        """Wait for the ends of the processes. Raises ProgramEnded if one fails."""
        for program in self._programs.values():
            if program.process.wait(PATIENCE_S):
                raise ProgramEnded(
                    f"the process of {program.host.name} {_how(program.process)} after its program"
                    " had returned"
                )

    def _ended(self) -> ProgramEnded:
        """Return the error that names the processes whose lifelines are broken."""
        return self._error(
            [
                one
                for one in self._programs.values()
                if not one.ended and one.lifeline in select.select([one.lifeline], [], [], 0)[0]
            ]
        )

    def _error(self, ended: Sequence[_Program]) -> ProgramEnded:
        said = [f"the process of {one.host.name} {_how(one.process)}" for one in ended]
        now = self.hosts.attachments.now / PS
        return ProgramEnded(f"at {now:.9f} s {'; '.join(said)} before its program had returned")


def _how(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        return "closed its lifeline"
    return f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
