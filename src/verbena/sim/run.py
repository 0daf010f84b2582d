# SPDX-License-Identifier: Apache-2.0
"""Programs on simulated hosts: ``verbena.sim.run({"h0": server, "h5": client}, fabric)``.

The programs are ordinary asyncio coroutines that use ``verbena.verbs``. They run in one thread on
``loop.Loop``, whose clock is the world's. No other event loop may run in that thread.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from ._world import World
from .arguments import check_programs, require, run_settings, unknown_name
from .build import build, host_ports
from .errors import Deadlock, Interrupted
from .hosts import Host, Hosts, PKeys
from .lacking import running_loop
from .loop import PS, Loop

if TYPE_CHECKING:
    from verbena.fabrics import Fabric, Routes
    from verbena.host.used_costs import UsedCosts
    from verbena.internet import Internet

    from .managed import ManagedWorld

__all__ = ["Program", "Result", "close_loop", "coroutine_of", "hosts_of", "run"]

WORLD = (  # the keywords of World that run passes on
    *("framing", "mtu", "timeout", "retry_count", "rd_atomic", "window", "ack_bytes", "burst"),
    *("congestion", "notice_level", "doorbell", "bus_rate", "receive_latency", "tcp", "hop_limit"),
    *("recovery", "sockets"),
)
Program = Callable[[], Coroutine[Any, Any, Any]] | Coroutine[Any, Any, Any]


@dataclass
class Result:
    """What a run left. ``world`` has what links, flows and adapters measured; it is the Internet
    if programs ran on one.

    ``returned`` has what each host's program returned, and ``finished`` when it did, in virtual
    seconds. Programs that were cancelled are in neither.
    """

    world: World
    hosts: Hosts
    returned: dict[str, Any] = field(default_factory=dict)
    finished: dict[str, float] = field(default_factory=dict)

    @property
    def now(self) -> float:
        """The virtual time in seconds at the end of the run."""
        return self.hosts.attachments.now / PS

    @property
    def costs(self) -> UsedCosts:
        """What the insides of the hosts have used of the list of costs; ``print(result.costs)``."""
        from verbena.host.used_costs import UsedCosts

        from .used_costs import world_costs

        return world_costs(self.world) if isinstance(self.world, World) else UsedCosts()


def run(
    programs: Mapping[str, Program],
    fabric: World | ManagedWorld | Fabric | Routes | Internet,
    *,
    background: Collection[str] = (),
    until: float | None = None,
    control_delay: float = 10e-6,
    switch: Mapping[str, Any] | None = None,
    pkeys: Mapping[str, PKeys] | None = None,
    adapters: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    **world: Any,
) -> Result:
    """Run asyncio programs on hosts of a fabric in virtual time, until all of them have returned.

    ``programs``: for each host's name a coroutine function without arguments, or a coroutine. Its
    ``verbena.verbs`` find the adapter of that host, and the clock of its event loop is the world's.
    ``fabric``: a World, whose hosts are named h0, h1 and so on; a ManagedWorld, whose hosts have
    their fabric's names; or a fabric of ``verbena.fabrics``, with or without routes. For such a
    fabric, ``switch`` has the keywords of ``World.add_switch`` for all switches, and ``world``
    those of the World. It may also be an Internet of ``verbena.internet``: its nodes are the hosts,
    and streams and datagrams are its TCP and UDP; there are no adapters.
    ``framing``: one of the World's keywords. It may also be a list with one entry for each port of
    a host: a port with "infiniband" has LIDs, and any other is an Ethernet port.
    ``pkeys``: by host, the P_Key table of all its ports, or a list with a table for each port.
    ``adapters``: by host, what its adapter has in place of the World's ``doorbell``, ``bus_rate``,
    ``receive_latency``, ``congestion`` or ``notice_level``.
    ``background``: hosts whose programs are cancelled once all others have returned.
    ``until``: virtual seconds after which all programs are cancelled, at most 9000000; None for no
    limit.
    ``control_delay``: seconds that a message over ``asyncio.open_connection`` takes.
    ``seed``: a whole number from 0; runs with one seed are equal. A World that is given has its own
    seed, and this one is only for the random numbers that adapters draw.

    Raises an exception of a program, after the other programs were cancelled; Deadlock, which names
    the tasks that wait, if no event is left; Interrupted after Ctrl-C; TypeError and ValueError for
    an argument that is not allowed, such as a host that does not exist; RuntimeError if an event
    loop runs already, as in a notebook, where ``await asyncio.to_thread(sim.run, programs,
    fabric)`` works.
    """
    check_programs(programs)
    _check_keywords(world)
    given = run_settings(until=until, control_delay=control_delay, background=background, seed=seed)
    if running_loop() is not None:
        raise RuntimeError(
            "sim.run has an event loop of its own, and one runs here already: in a notebook,"
            " await asyncio.to_thread(sim.run, programs, fabric)"
        )
    hosts = hosts_of(fabric, switch, adapters, seed, pkeys, world)
    plan = {hosts[name]: program for name, program in programs.items()}
    for name in given.background:
        if name not in programs:
            text = unknown_name("program on host", name, programs)
            raise ValueError(f"background: {text}")
    if programs and not {*programs} - {*given.background}:
        raise ValueError(
            "background names every host that has a program, so that no program is waited for:"
            " leave out those that end by themselves"
        )
    result = Result(hosts.world, hosts)
    loop = Loop(hosts, given.control_delay)
    try:
        _run(loop, _main(plan, given.background, given.until, result), result)
    finally:
        close_loop(loop)
    return result


def _check_keywords(options: Mapping[str, Any]) -> None:
    """Raise TypeError for a keyword that neither ``run`` nor World has; it names the nearest."""
    for name in options:
        if name not in WORLD:
            own = [each for each in inspect.signature(run).parameters if each != "world"]
            near = get_close_matches(name, [*own, *WORLD], 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join((*own, *WORLD))}"
            raise TypeError(f"sim.run has no keyword {name!r}: {hint}")


def hosts_of(
    fabric: World | ManagedWorld | Fabric | Routes | Internet,
    switch: Mapping[str, Any] | None,
    adapters: Mapping[str, Mapping[str, Any]] | None,
    seed: int,
    pkeys: Mapping[str, PKeys] | None,
    options: dict[str, Any],
) -> Hosts:
    """Return the hosts of the fabric that ``run`` was given. Raises ValueError and TypeError."""
    from verbena.internet import Internet

    from .internet_hosts import InternetHosts
    from .managed import ManagedWorld

    if isinstance(fabric, World | ManagedWorld | Internet):
        given = {"switch": switch, "adapters": adapters}
        if late := [*(name for name, value in given.items() if value is not None), *options]:
            raise ValueError(
                f"the fabric is {_kind(fabric)}, whose settings were given when it was made: leave "
                f"out {', '.join(late)}"
            )
        if isinstance(fabric, Internet):
            if pkeys is not None:
                raise ValueError("hosts of an Internet have no P_Keys: leave out pkeys")
            return InternetHosts(fabric, seed)
        if isinstance(fabric, ManagedWorld):
            return managed_hosts(fabric, seed, pkeys)
        return Hosts(fabric, seed=seed, pkeys=pkeys)
    from verbena import fabrics

    wanted = "a World, or a fabric of verbena.fabrics, with or without routes, or an Internet"
    require("fabric", fabric, (fabrics.Fabric, fabrics.Routes), wanted)
    routes = fabrics.route(fabric) if isinstance(fabric, fabrics.Fabric) else fabric
    framing = None
    if not isinstance(options.get("framing"), str | None):
        framing = options.pop("framing")
    world = World(seed, **options)
    build(world, routes, switch, framing=framing, adapters=adapters)
    tables = routes.tables
    return Hosts(world, tables.names[: tables.host_count], seed, host_ports(tables), pkeys)


def _kind(fabric: World | ManagedWorld | Internet) -> str:
    return "an Internet" if type(fabric).__name__ == "Internet" else "a World"


def managed_hosts(managed: ManagedWorld, seed: int, pkeys: Mapping[str, PKeys] | None) -> Hosts:
    """Return the hosts of a managed world, whose connections ask its subnet administration."""
    tables = managed.fabric.tables()
    names = tables.names[: tables.host_count]
    hosts = Hosts(managed.world, names, seed, host_ports(tables), pkeys)
    hosts.managed = managed
    return hosts


def _run(loop: Loop, main: Coroutine[Any, Any, None], result: Result) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(main)
    except KeyboardInterrupt:
        raise Interrupted(result, loop.time()) from None


async def _main(
    plan: Mapping[Host, Program], background: Collection[str], until: float | None, result: Result
) -> None:
    loop = asyncio.get_running_loop()
    tasks = {_start(loop, host, program, result): host for host, program in plan.items()}
    awaited = {task for task, host in tasks.items() if host.name not in background}
    deadline = None if until is None else until - loop.time()
    try:
        await _until_done(set(tasks), awaited, deadline)
    finally:
        await _cancel(list(tasks))


async def _until_done(
    tasks: set[asyncio.Task[None]], awaited: set[asyncio.Task[None]], timeout: float | None
) -> None:
    """Return when all of ``awaited`` are done or the time is over. Raises what any of ``tasks``
    raises."""
    loop = asyncio.get_running_loop()
    deadline = None if timeout is None else loop.time() + max(timeout, 0)
    left = set(tasks)
    while left & awaited:
        rest = None if deadline is None else deadline - loop.time()
        done, left = await asyncio.wait(left, timeout=rest, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if not done:
            return


def _start(
    loop: asyncio.AbstractEventLoop, host: Host, program: Program, result: Result
) -> asyncio.Task[None]:
    with host.here():
        coroutine = coroutine_of(host.name, program)
        return loop.create_task(_program(host, coroutine, result), name=host.name)


def coroutine_of(name: str, program: Program) -> Coroutine[Any, Any, Any]:
    """Return the coroutine of a host's program. Raises TypeError if it is or returns none."""
    coroutine = _called(name, program) if callable(program) else program
    if not inspect.iscoroutine(coroutine):
        raise TypeError(
            f"the program of {name} returned {coroutine!r}, and no coroutine: is it "
            "written with async def?"
        )
    return coroutine


def _called(name: str, program: Callable[[], Any]) -> Any:
    """Return what the program's function returns. Raises TypeError if it needs arguments."""
    with suppress(ValueError):  # a function of C may have no signature
        try:
            inspect.signature(program).bind()
        except TypeError as error:
            raise TypeError(
                f"the program of {name} is called without arguments ({error}): bind them with "
                "functools.partial"
            ) from None
    return program()


async def _program(host: Host, program: Awaitable[Any], result: Result) -> None:
    try:
        returned = await program
    except Exception as error:
        error.add_note(f"in the program of host {host.name}")
        raise
    result.returned[host.name] = returned
    result.finished[host.name] = asyncio.get_running_loop().time()


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    left = [task for task in tasks if not task.done()]
    for task in left:
        task.cancel()
    if left:
        await asyncio.gather(*left, return_exceptions=True)


def close_loop(loop: Loop) -> None:
    """Cancel what programs left running. It ends in no virtual time if it can."""
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    for task in tasks:
        task.cancel()
    try:
        with suppress(Deadlock):  # a program waits while it is cancelled: it is abandoned
            if tasks:
                loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.network.end()
        loop.close()
