# SPDX-License-Identifier: Apache-2.0
"""The hosts of a world as programs find them: by name, each with one adapter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from random import Random

from verbena.verbs import Context, Device
from verbena.verbs._verbs import attach, attached
from verbena.verbs.here import Place, place
from verbena.verbs.library import load

from ._world import Attachment, Attachments, World

__all__ = ["Host", "Hosts", "host_here"]

NETWORK = int(IPv4Address("10.0.0.0"))  # a host's address in it is its number, from 1


@dataclass(eq=False)
class Host(Place):
    """A host with its adapter; ``Hosts`` makes it."""

    name: str
    number: int
    attachments: Attachments
    random: Random
    attachments_made: list[Attachment] = field(default_factory=list)
    _devices: list[Device] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Its IPv4 address, which is in the GID that connections take."""
        return str(IPv4Address(NETWORK + self.number + 1))

    def devices(self) -> list[Device]:
        """Its adapter, whose device has the host's name."""
        if not self._devices:
            attachment = self.attachments.at(self.number)
            self.attachments_made.append(attachment)
            self._devices.append(attach(load(), attachment.address, self.name, attachment))
        return list(self._devices)

    def random_bytes(self, count: int) -> bytes:
        return self.random.randbytes(count)

    @contextmanager
    def here(self) -> Iterator[Host]:
        """Within it the program runs on this host: ``verbs.open_device()`` is its adapter."""
        before = place.set(self)
        try:
            yield self
        finally:
            place.reset(before)


class Hosts:
    """The hosts of ``world``, by name: ``names`` in their order, or h0, h1…

    One thread uses a world and what is on it. Without a loop, whoever waits or polls in vain lets
    the world's time pass.
    """

    def __init__(self, world: World, names: Sequence[str] | None = None, seed: int = 0) -> None:
        chosen = names if names is not None else [f"h{n}" for n in range(world.hosts)]
        different = len(set(chosen))
        if len(chosen) != world.hosts or different != len(chosen):
            raise ValueError(
                f"the world has {world.hosts} hosts, and there are {different} different names"
            )
        self.world = world
        self.attachments = Attachments(world)
        self._hosts = {
            name: Host(name, number, self.attachments, Random(f"{seed}/{number}"))
            for number, name in enumerate(chosen)
        }
        self._addresses = {host.address: host for host in self._hosts.values()}

    def __getitem__(self, name: str) -> Host:
        try:
            return self._hosts[name]
        except KeyError:
            raise ValueError(f"there is no host {name!r}: {_some(list(self._hosts))}") from None

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts.values())

    def contexts(self) -> list[Context]:
        """What programs have open on these hosts."""
        return attached(one for host in self for one in host.attachments_made)

    def find(self, name: str) -> Host | None:
        """The host of this name or IPv4 address."""
        return self._hosts.get(name) or self._addresses.get(name)


def host_here() -> Host | None:
    """The simulated host on which the caller runs."""
    here = place.get()
    return here if isinstance(here, Host) else None


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:8])
    return f"{shown}, and {len(names) - 8} more" if len(names) > 8 else shown or "it has none"
