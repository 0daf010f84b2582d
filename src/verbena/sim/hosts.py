# SPDX-License-Identifier: Apache-2.0
"""The hosts of a world as programs see them: by name, each with its adapters.

``sim.run`` makes the ``Hosts``. Each host of a World has one port, so a ``Host`` with several ports
consists of several hosts of the world. An adapter is attached to them when a program first asks for
its devices. One thread uses a world and its hosts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from random import Random
from typing import TYPE_CHECKING

from verbena.verbs import Context, Device
from verbena.verbs._verbs import Library, attach, attached
from verbena.verbs.here import Place, place
from verbena.verbs.library import load

from ._world import Attachment, Attachments, World, inside_of
from .arguments import pkey_tables, require, unknown_name, whole_number
from .inside import checked_charge

if TYPE_CHECKING:
    from verbena.cm import ConnectionManagerDevice
    from verbena.manage.cm import CmSettings

    from .connections import ConnectionManagers
    from .managed import ManagedWorld

__all__ = ["Host", "Hosts", "host_here"]

NETWORK = int(IPv4Address("10.0.0.0"))  # host n of the world has the address n + 1 in it
MOST_PORTS = 2  # of one adapter
PKeys = Sequence[int] | Sequence[Sequence[int]]


@dataclass(eq=False)
class Host(Place):
    """A host and its adapters; ``Hosts`` makes it. ``ports`` are numbers of hosts of the world."""

    name: str
    number: int
    ports: tuple[int, ...]
    attachments: Attachments
    random: Random
    pkeys: tuple[tuple[int, ...], ...] = ()
    attachments_made: list[Attachment] = field(default_factory=list)
    _devices: list[Device] = field(default_factory=list)
    hosts: Hosts | None = None

    @property
    def address(self) -> str:
        """The IPv4 address of the first port, which is also in the GID that connections use."""
        return self.addresses[0]

    @property
    def addresses(self) -> list[str]:
        """The IPv4 address of each port."""
        return [str(IPv4Address(NETWORK + port + 1)) for port in self.ports]

    def devices(self) -> list[Device]:
        """Return the host's devices, and attach its adapters at the first call.

        A host with at most two ports has one adapter with all of them, whose device has the host's
        name. A host with more ports has one adapter for each port; the names of their devices end
        with -1, -2 and so on.
        """
        if not self._devices:
            one = len(self.ports) <= MOST_PORTS
            groups = [self.ports] if one else [(port,) for port in self.ports]
            left = list(self.pkeys)
            for number, ports in enumerate(groups, 1):
                name = self.name if one else f"{self.name}-{number}"
                pkeys, left = left[: len(ports)], left[len(ports) :]
                self._attach(name, ports, pkeys)
        return list(self._devices)

    def _attach(self, name: str, ports: Sequence[int], pkeys: Sequence[Sequence[int]]) -> None:
        attachment = self.attachments.at(*ports, pkeys=pkeys)
        self.attachments_made.append(attachment)
        self._devices.append(attach(_library(), attachment.address, name, attachment))

    def open_connection_manager(self) -> ConnectionManagerDevice:
        """Open a device for ``verbena.cm``, whose messages cross the simulated fabric."""
        assert self.hosts is not None
        return self.hosts.connection_managers().of(self).open()

    def charge(
        self, name: str, *, us: float | None = None, cycles: int | None = None, core: int = 0
    ) -> int | None:
        """Let a core of the host's inside work, as ``verbena.sim.charge`` says. Returns the time of
        the end in ps; None: the host has no inside. Raises ValueError and TypeError."""
        assert self.hosts is not None
        checked_charge(name, us, cycles)
        if not self.ports:  # it is of an Internet, whose hosts have no adapters
            return None
        inside = inside_of(self.hosts.world, self.ports[0])
        if inside is None:
            return None
        return self.attachments.now + inside.charge(name, us=us, cycles=cycles, core=core)

    def registered(self, length: int, pinned: bool) -> None:
        """Let the first core of the host's inside work for a region that a program registered."""
        assert self.hosts is not None
        inside = inside_of(self.hosts.world, self.ports[0])
        if inside is not None:
            inside.register(length, pinned)

    def random_bytes(self, count: int) -> bytes:
        return self.random.randbytes(count)

    @contextmanager
    def here(self) -> Iterator[Host]:
        """Run a block of code on this host: ``verbs.open_device()`` then opens the host's
        adapter."""
        before = place.set(self)
        try:
            yield self
        finally:
            place.reset(before)


def _library() -> Library:
    """Return Verbena's library, also where VERBENA_LIBRARY has the system's for real devices."""
    return load("packaged" if os.environ.get("VERBENA_LIBRARY") == "system" else None)


class Hosts:
    """The hosts of ``world`` by name. ``names`` are in the order of the hosts; by default h0, h1
    and so on.

    ``ports``: for each name the hosts of the world that are its ports; by default each host is one.
    ``pkeys``: by name, the P_Key table of all ports of a host, or a list with a table for each
    port.
    ``seed``: of the random numbers that adapters draw. Only one thread may use a world and its
    hosts. Without an event loop, a program that waits or polls in vain lets the world's time pass.

    Raises TypeError for arguments of other types, and ValueError for names that are not unique,
    hosts that do not exist, and P_Keys that no port can have.
    """

    def __init__(
        self,
        world: World,
        names: Sequence[str] | None = None,
        seed: int = 0,
        ports: Sequence[Sequence[int]] | None = None,
        pkeys: Mapping[str, PKeys] | None = None,
    ) -> None:
        require("world", world, World, "a World")
        chosen = _names(names, world.hosts)
        groups = _ports(ports, world.hosts)
        different = len(set(chosen))
        if len(chosen) != len(groups) or different != len(chosen):
            raise ValueError(
                f"the world has {len(groups)} hosts, and there are {different} different names"
            )
        if pkeys is not None:
            require("pkeys", pkeys, Mapping, "a dictionary, by host, as {'h0': [0xffff, 0x8001]}")
        self.world = world
        self.attachments = Attachments(world)
        self._hosts = {
            name: Host(name, number, tuple(own), self.attachments, Random(f"{seed}/{number}"))
            for number, (name, own) in enumerate(zip(chosen, groups, strict=True))
        }
        self._addresses = {one: host for host in self for one in host.addresses}
        self.managed: ManagedWorld | None = None
        self._managers: ConnectionManagers | None = None
        for host in self:
            host.hosts = self
        for name, tables in (pkeys or {}).items():
            self[name].pkeys = pkey_tables(name, tables, len(self[name].ports))

    def __getitem__(self, name: str) -> Host:
        if not isinstance(name, str) or name not in self._hosts:
            raise ValueError(unknown_name("host", name, self._hosts))
        return self._hosts[name]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts.values())

    def connection_managers(
        self, settings: CmSettings | None = None, processing: int | None = None
    ) -> ConnectionManagers:
        """Return the connection managers of the hosts, which are started at the first call.

        ``settings`` are their times and numbers; ``processing``: the ps that one takes for each
        message (5 us). Paths of InfiniBand are asked of subnet administration if ``managed`` is
        set. Raises ValueError if they are started already and have other settings.
        """
        from .connections import PROCESSING, ConnectionManagers

        if self._managers is None:
            time = PROCESSING if processing is None else processing
            self._managers = ConnectionManagers(self, settings, time)
        elif settings is not None or processing is not None:
            raise ValueError("the connection managers of these hosts have been started already")
        return self._managers

    def contexts(self) -> list[Context]:
        """Return the contexts that programs have open on these hosts."""
        return attached(one for host in self for one in host.attachments_made)

    def find(self, name: str) -> Host | None:
        """Return the host with this name or IPv4 address, or None."""
        known = isinstance(name, str)
        return (self._hosts.get(name) or self._addresses.get(name)) if known else None


def host_here() -> Host | None:
    """Return the simulated host on which the calling code runs, or None."""
    here = place.get()
    return here if isinstance(here, Host) else None


def _names(given: object, hosts: int) -> list[str]:
    """Return the names of a world's hosts: h0, h1 and so on, if none are given. Raises
    TypeError."""
    if given is None:
        return [f"h{number}" for number in range(hosts)]
    require("names", given, (list, tuple), "a list of the hosts' names")
    assert isinstance(given, list | tuple)
    for name in given:
        require("a name of a host", name, str, "a string")
    return list(given)


def _ports(given: object, hosts: int) -> list[tuple[int, ...]]:
    """Return for each name the hosts of the world that are its ports. Raises TypeError,
    ValueError."""
    if given is None:
        return [(number,) for number in range(hosts)]
    wanted = "a list with the world's hosts that are its ports, for each name"
    require("ports", given, (list, tuple), wanted)
    assert isinstance(given, list | tuple)
    for own in given:
        require("an entry of ports", own, (list, tuple), "a list of hosts of the world")
    return [tuple(whole_number("a port", each, 0, hosts - 1) for each in own) for own in given]
