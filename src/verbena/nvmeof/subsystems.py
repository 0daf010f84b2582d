# SPDX-License-Identifier: Apache-2.0
"""What a target has: subsystems with their namespaces, and which hosts may use them.

Transports and controllers look here. Identifiers come from the names, so that they are the same
after the target was started again, and hosts know the disk.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from .errors import FormatError
from .fabrics import DISCOVERY_NQN, LAST_CONTROLLER, check_nqn, is_nqn
from .numbers import byte_count, whole
from .replies import Failure, status_of_error
from .reservation_files import ReservationFile
from .reservations import Reservations
from .status import Status
from .stores import Store, check_store
from .stragglers import Stragglers

__all__ = ["Namespace", "Subsystem", "TargetModel"]

_log = logging.getLogger("verbena.nvmeof")
_MOST_NAMESPACES = 1024
_MOST_NSID = (1 << 32) - 1
_IDENTIFIERS = uuid.UUID("6f9f4a4e-0c1d-5d0a-9c3c-3b6f7de1a2b4")


class Namespace:
    """A disk of a subsystem: a store with a size of blocks.

    With a file of reservations, hosts may ask that these persist when the target ends. A store that
    is read only has those of the file at first, and changes it never: several targets may serve it.
    Raises ValueError, ReservationFileError.
    """

    def __init__(
        self,
        nsid: int,
        store: Store,
        block_size: int,
        name: str,
        reservation_file: ReservationFile | None = None,
    ) -> None:
        check_store(store)
        block_size, size = byte_count("block_size", block_size), byte_count("size", store.size)
        if block_size not in (512, 4096):
            raise ValueError(f"blocks have 512 or 4096 bytes, and not {block_size}")
        if size < block_size:
            raise ValueError(f"{size} bytes are less than a block of {block_size}")
        self.nsid = nsid
        self.store = store
        self.shift = block_size.bit_length() - 1
        self.blocks = size >> self.shift
        self.uuid = uuid.uuid5(_IDENTIFIERS, name).bytes
        self.nguid = uuid.uuid5(_IDENTIFIERS, f"{name} nguid").bytes
        self._reservation_file = None if store.is_read_only else reservation_file
        self.reservations = Reservations() if reservation_file is None else reservation_file.load()
        if self._reservation_file is None:
            self.reservations.can_persist = self.reservations.persists = False
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[None]] = set()
        self.reads = self.writes = self.read_bytes = self.written_bytes = 0

    @property
    def block_size(self) -> int:
        """The bytes of a block."""
        return 1 << self.shift

    def change_reservations(self, change: Callable[[Reservations], None]) -> Awaitable[None] | None:
        """Make a change, which may raise Failure; it has no effect then.

        Returns None if it was made, and an awaitable where it is saved first, which raises Failure,
        also if it cannot be saved. A change whose awaitable is cancelled is made all the
        same, so that the file and the target agree.
        """
        if self._reservation_file is None:
            changed = self.reservations.copy()
            change(changed)
            self.reservations = changed
            return None
        task = asyncio.ensure_future(self._change_in_turn(change))
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return asyncio.shield(task)

    async def _change_in_turn(self, change: Callable[[Reservations], None]) -> None:
        assert self._reservation_file is not None
        async with self._changing:
            changed = self.reservations.copy()
            change(changed)
            if changed == self.reservations:
                return
            if changed.persists or self.reservations.persists:
                await self._save(self._reservation_file, changed)
            self.reservations = changed

    async def _save(self, file: ReservationFile, changed: Reservations) -> None:
        """Save reservations. Raises Failure: CAPACITY where there is no room. What else is wrong
        with the file is not the host's matter, and the target says it."""
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, file.save, changed)
        except OSError as error:
            about = "reservations of namespace %d cannot be saved in %s: %s"
            _log.error(about, self.nsid, file.path, error.strerror or error)
            is_full = status_of_error(error, is_write=True) is Status.CAPACITY
            raise Failure(Status.CAPACITY if is_full else Status.INTERNAL_ERROR) from error


class Subsystem:
    """Namespaces under one name; ``hosts`` are the NQNs that may use it, None: every host."""

    def __init__(
        self, nqn: str, hosts: Iterable[str] | None = None, serial: str | None = None
    ) -> None:
        check_nqn(nqn, "a subsystem")
        if not is_nqn(nqn) or nqn == DISCOVERY_NQN:
            raise FormatError(f"{nqn!r} is no name of a subsystem: nqn.2026-01.org.example:name is")
        self.nqn = nqn
        self.serial = serial or uuid.uuid5(_IDENTIFIERS, nqn).hex[:20].upper()
        self.hosts: set[str] | None = None if hosts is None else set(hosts)
        for host in self.hosts or ():
            check_nqn(host, "a host")
            if not is_nqn(host):
                raise FormatError(
                    f"{host!r} is no NQN of a host: nqn.2014-08.org.nvmexpress:uuid:… is, which"
                    " Linux has in /etc/nvme/hostnqn"
                )
        self.namespaces: dict[int, Namespace] = {}
        self.controllers: dict[int, Any] = {}  # by cntlid
        self.on_change: Callable[[], None] = lambda: None
        self._last_controller = 0

    def add(
        self,
        store: Store,
        block_size: int = 512,
        nsid: int | None = None,
        name: str | None = None,
        reservation_file: ReservationFile | None = None,
    ) -> Namespace:
        """Add a namespace; connected hosts are told. ``name`` is what its identifiers come from.

        Reservations can outlive the target with a ``reservation_file``. Raises ValueError,
        ReservationFileError, and TypeError for what is no Store.
        """
        for each in self.namespaces.values():
            if each.store is store:
                raise ValueError(f"{store!r} is namespace {each.nsid} already, and is served once")
        number = next(n for n in range(1, _MOST_NAMESPACES + 2) if n not in self.namespaces)
        number = number if nsid is None else whole("nsid", nsid, 0, _MOST_NSID)
        if not 1 <= number <= _MOST_NAMESPACES or number in self.namespaces:
            raise ValueError(f"{number} is no free number of a namespace (1 to {_MOST_NAMESPACES})")
        made = Namespace(
            number, store, block_size, name or f"{self.nqn}/{number}", reservation_file
        )
        self.namespaces[number] = made
        self._tell(number)
        return made

    def remove(self, nsid: int) -> Namespace:
        """Remove a namespace, and return it; connected hosts are told. Its store stays open."""
        nsid = whole("nsid", nsid, 0, _MOST_NSID)
        found = self.namespaces.pop(nsid)
        self._tell(nsid)
        return found

    def resized(self, nsid: int) -> None:
        """Take the store's size again, and tell hosts."""
        nsid = whole("nsid", nsid, 0, _MOST_NSID)
        namespace = self.namespaces[nsid]
        namespace.blocks = byte_count("size", namespace.store.size) >> namespace.shift
        self._tell(nsid)

    def _tell(self, nsid: int) -> None:
        for controller in list(self.controllers.values()):
            controller.namespace_changed(nsid)

    def allows(self, host_nqn: str) -> bool:
        """Whether a host may use it."""
        return self.hosts is None or host_nqn in self.hosts

    def allow(self, host_nqn: str) -> None:
        """Let a host use it. Raises TypeError."""
        check_nqn(host_nqn, "a host")
        if self.hosts is None:
            self.hosts = set()
        self.hosts.add(host_nqn)
        self.on_change()

    def new_controller_id(self) -> int | None:
        """Return a number that no controller has, or None."""
        for step in range(LAST_CONTROLLER):
            number = (self._last_controller + step) % LAST_CONTROLLER + 1
            if number not in self.controllers:
                self._last_controller = number
                return number
        return None


class TargetModel:
    """The subsystems of a target, and the discovery subsystem."""

    def __init__(self) -> None:
        self.subsystems: dict[str, Subsystem] = {}
        self.discovery = DiscoverySubsystem()
        self.stragglers = Stragglers()
        self.generation = 1

    def add(self, subsystem: Subsystem) -> None:
        """Add a subsystem. Raises ValueError if there is one of that name."""
        if subsystem.nqn in self.subsystems:
            raise ValueError(f"there is a subsystem {subsystem.nqn} already")
        self.subsystems[subsystem.nqn] = subsystem
        subsystem.on_change = self.changed
        self.changed()

    def remove(self, nqn: str) -> Subsystem:
        """Remove a subsystem, and return it. Its controllers are the caller's to end."""
        found = self.subsystems.pop(nqn)
        self.changed()
        return found

    def changed(self) -> None:
        """The discovery log has changed: tell hosts."""
        self.generation += 1
        for controller in list(self.discovery.controllers.values()):
            controller.discovery_changed()

    def find(self, nqn: str) -> Subsystem | None:
        """Return a subsystem by its name, or None."""
        return self.discovery if nqn == DISCOVERY_NQN else self.subsystems.get(nqn)


class DiscoverySubsystem(Subsystem):
    """The subsystem whose controllers have the discovery log."""

    def __init__(self) -> None:
        super().__init__("nqn.2026-01.verbena:discovery")
        self.nqn = DISCOVERY_NQN
