# SPDX-License-Identifier: Apache-2.0
"""The nodes of a ``verbena.internet`` as hosts on which ``sim.run`` runs programs.

``loop.Loop`` uses an ``InternetHosts`` as it uses the ``Hosts`` of a World: its clock is the
internet's agenda, and ``internet_sockets.py`` is its network. Such hosts have no RDMA adapters.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableSequence
from ipaddress import IPv4Address
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn, cast

from verbena.host.clock import NEVER
from verbena.internet import AddressError, Internet, Node
from verbena.verbs import Context, Device

from .arguments import unknown_name
from .callbacks import PS
from .errors import NotSimulated
from .hosts import Host, Hosts

if TYPE_CHECKING:
    from verbena.cm import ConnectionManagerDevice

    from ._world import Attachments, World

__all__ = ["InternetHost", "InternetHosts"]

QUIET_PS = 3600 * PS
"""After so much virtual time without news for a program nothing more is expected: TCP gives up
after a quarter of an hour, and routing protocols send for ever."""


class AgendaClock:
    """What the loop needs of ``Attachments``: the time, and to let it pass until there is news."""

    def __init__(self, net: Internet) -> None:
        self._agenda = net.agenda
        self._woken = False
        self._woken_at = net.agenda.now

    @property
    def now(self) -> int:
        """The virtual time in ps."""
        return self._agenda.now

    def wake(self) -> None:
        """A callback has been scheduled for a program."""
        self._woken = True

    def gather(self, ready: MutableSequence[Any], until: int | None = None) -> str:
        """Run events until a program has something to do, or until a time in ps.

        Returns why it ended: "readable", "time", "done" (no event is left) or "quiet".
        """
        agenda = self._agenda
        limit = self._woken_at + QUIET_PS if until is None else until
        while not ready and not self._woken and agenda.next_at <= limit:
            agenda.run_due(agenda.next_at)
        if ready or self._woken:
            self._woken, self._woken_at = False, agenda.now
            return "readable"
        if until is None:
            return "done" if agenda.next_at == NEVER else "quiet"
        agenda.run_due(max(until, agenda.now))
        self._woken_at = agenda.now
        return "time"

    def set_looped(self, looped: bool) -> None:
        """Nothing else drives the agenda while a loop does."""

    def watched(self) -> list[int]:
        return []

    def watch(self, number: int, reader: object) -> NoReturn:
        """Raises KeyError: there are no descriptors."""
        raise KeyError(number)

    def unwatch(self, number: int) -> None:
        return None


class InternetHost(Host):
    """A node of an internet, which may be a router."""

    node: Node

    @property
    def address(self) -> str:
        """That of the first interface. Raises OSError for a node without one."""
        try:
            return str(self.node.address)
        except AddressError as error:
            raise OSError(str(error)) from None

    @property
    def addresses(self) -> list[str]:
        return [str(one) for one in sorted(self.node.addresses)]

    def devices(self) -> list[Device]:
        """A host of an internet has no adapter for RDMA."""
        return []

    def open_connection_manager(self) -> ConnectionManagerDevice:
        """Raises NotSimulated."""
        raise NotSimulated(
            f"{self.name} is a host of an internet, which has no RDMA adapters: use a fabric of "
            "verbena.fabrics"
        )


class InternetHosts(Hosts):
    """All nodes of an internet by name. ``seed`` is of the random numbers that programs draw."""

    def __init__(self, net: Internet, seed: int = 0) -> None:
        self.internet = net
        self.world = cast("World", net)
        self.clock = AgendaClock(net)
        self.attachments = cast("Attachments", self.clock)
        self.managed = None
        self._all: dict[str, InternetHost] = {}
        for number, (name, node) in enumerate(net.nodes.items()):
            random = Random(f"{seed}/{number}")
            made = InternetHost(name, number, (), self.attachments, random, hosts=self)
            made.node = node
            self._all[name] = made

    def __getitem__(self, name: str) -> InternetHost:
        if name not in self._all:
            raise ValueError(unknown_name("host", name, self._all))
        return self._all[name]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._all.values())

    def contexts(self) -> list[Context]:
        return []

    def find(self, name: str) -> Host | None:
        """Return the node with this name, or with this address at one of its interfaces."""
        if name in self._all:
            return self._all[name]
        try:
            owner = self.internet.name_of(IPv4Address(name))
        except ValueError:
            return None
        return self._all.get(owner)
