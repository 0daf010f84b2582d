# SPDX-License-Identifier: Apache-2.0
"""Reservations of a namespace: which hosts are registered, and which of them hold it.

A host is its host identifier, whatever connections it has. ``ALLOWED`` is the table of what others
than the holder may do. Registrations last as long as the process of the target, and longer with
``persists`` (Persist Through Power Loss, NVMe base 1.4, section 8.8): ``reservation_files`` saves
them then.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from enum import IntEnum

from .commands import IoOpcode
from .replies import Failure
from .status import Status

__all__ = [
    "MOST_REGISTRANTS",
    "AcquireAction",
    "PersistenceChange",
    "RegisterAction",
    "ReservationType",
    "Reservations",
    "is_holder",
    "keys_of",
    "report_length",
    "why_conflict",
]

MOST_REGISTRANTS = 4096  # so that a whole report, 64 bytes for each, fits into one command


class PersistenceChange(IntEnum):
    """CPTPL of Reservation Register; 1 is reserved."""

    NONE = 0
    CLEAR = 2
    PERSIST = 3


class RegisterAction(IntEnum):
    """RREGA, the action of Reservation Register."""

    REGISTER = 0
    UNREGISTER = 1
    REPLACE = 2


class ReservationType(IntEnum):
    """RTYPE."""

    NONE = 0
    WRITE_EXCLUSIVE = 1
    EXCLUSIVE_ACCESS = 2
    WRITE_EXCLUSIVE_REGISTRANTS = 3
    EXCLUSIVE_ACCESS_REGISTRANTS = 4
    WRITE_EXCLUSIVE_ALL = 5
    EXCLUSIVE_ACCESS_ALL = 6


class AcquireAction(IntEnum):
    """RACQA of Reservation Acquire."""

    ACQUIRE = 0
    PREEMPT = 1
    PREEMPT_AND_ABORT = 2


_R = ReservationType
_READ, _WRITE = "read", "write"
_BOTH: frozenset[str] = frozenset({_READ, _WRITE})
# Of each type: what registrants that do not hold it may do, and what all others may do.
ALLOWED: dict[ReservationType, tuple[frozenset[str], frozenset[str]]] = {
    _R.NONE: (_BOTH, _BOTH),
    _R.WRITE_EXCLUSIVE: (frozenset({_READ}), frozenset({_READ})),
    _R.EXCLUSIVE_ACCESS: (frozenset(), frozenset()),
    _R.WRITE_EXCLUSIVE_REGISTRANTS: (_BOTH, frozenset({_READ})),
    _R.EXCLUSIVE_ACCESS_REGISTRANTS: (_BOTH, frozenset()),
    _R.WRITE_EXCLUSIVE_ALL: (_BOTH, frozenset({_READ})),
    _R.EXCLUSIVE_ACCESS_ALL: (_BOTH, frozenset()),
}
_HELD_BY_ALL = (_R.WRITE_EXCLUSIVE_ALL, _R.EXCLUSIVE_ACCESS_ALL)


@dataclass
class Reservations:
    """The state of one namespace; ``can_persist`` says whether there is a place to save it."""

    can_persist: bool = False
    persists: bool = False  # the PTPL state
    keys: dict[bytes, int] = field(default_factory=dict)  # of the registered hosts
    holder: bytes | None = None
    kind: ReservationType = ReservationType.NONE
    generation: int = 0

    def copy(self) -> Reservations:
        """Return a copy, in which a change is tried before it takes effect."""
        return replace(self, keys=dict(self.keys))

    def check_consistency(self) -> None:
        """Raise ValueError unless the holder is what the kind says, and registered."""
        has_holder = not self.is_free and self.kind not in _HELD_BY_ALL
        if has_holder != (self.holder is not None):
            raise ValueError(f"{self.kind.name} and the holder contradict each other")
        if self.holder is not None and self.holder not in self.keys:
            raise ValueError("the holder is not registered")
        if not self.is_free and not self.keys:
            raise ValueError(f"{self.kind.name} without a registered host")

    @property
    def is_free(self) -> bool:
        """Whether every host may do everything."""
        return self.kind is ReservationType.NONE

    def holds(self, host: bytes) -> bool:
        """Whether a host holds the reservation."""
        if self.kind in _HELD_BY_ALL:
            return host in self.keys
        return not self.is_free and self.holder == host

    def check(self, host: bytes, is_write: bool) -> None:
        """Raise Failure if a host may not read, or write."""
        if self.is_free or self.holds(host):
            return
        registrants, others = ALLOWED[self.kind]
        if (_WRITE if is_write else _READ) not in (registrants if host in self.keys else others):
            raise Failure(Status.RESERVATION_CONFLICT)

    # ---- commands ----

    def register(self, host: bytes, word: int, data: bytes) -> None:
        """Reservation Register. Raises Failure.

        At most MOST_REGISTRANTS hosts are registered. A namespace that cannot persist takes CPTPL
        without effect, as its Reservation Report says: Linux asks for persistence with every
        registration, whatever the namespace can.
        """
        current, new = _two_keys(data)
        action, ignores_key, change = word & 7, bool(word & 8), word >> 30
        if change not in PersistenceChange.__members__.values():
            raise Failure(Status.INVALID_FIELD)
        if action == 0:
            if self.keys.get(host, new) != new:
                raise Failure(Status.RESERVATION_CONFLICT)
            if host not in self.keys and len(self.keys) >= MOST_REGISTRANTS:
                raise Failure(Status.INTERNAL_ERROR)
            self.keys[host] = new
        elif action in (1, 2):
            self._check_key(host, current, ignores_key)
            if action == 1:
                self._unregister(host)
            else:
                self.keys[host] = new
        else:
            raise Failure(Status.INVALID_FIELD)
        if change != PersistenceChange.NONE:
            self.persists = self.can_persist and change == PersistenceChange.PERSIST
        self.generation += 1

    def set_persistence(self, persists: bool) -> None:
        """Set the PTPL state, as the feature Reservation Persistence does. Raises Failure."""
        if persists and not self.can_persist:
            raise Failure(Status.INVALID_FIELD)
        self.persists = persists

    def acquire(self, host: bytes, word: int, data: bytes) -> None:
        """Reservation Acquire. Raises Failure.

        Preempt and Abort changes what Preempt does; the session waits for commands of the hosts
        that have lost their registration.
        """
        current, preempted = _two_keys(data)
        action, kind = word & 7, _kind(word)
        self._check_key(host, current, bool(word & 8))
        if action == AcquireAction.ACQUIRE:
            if self.is_free:
                self._take(host, kind)
            elif not self.holds(host) or self.kind is not kind:
                raise Failure(Status.RESERVATION_CONFLICT)
        elif action in (AcquireAction.PREEMPT, AcquireAction.PREEMPT_AND_ABORT):
            self._preempt(host, preempted, kind)
            self.generation += 1
        else:
            raise Failure(Status.INVALID_FIELD)

    def release(self, host: bytes, word: int, data: bytes) -> None:
        """Reservation Release. Raises Failure."""
        (current,) = struct.unpack_from("<Q", data)
        action = word & 7
        self._check_key(host, current, bool(word & 8))
        if action == 0:
            if self.holds(host):
                if _kind(word) is not self.kind:
                    raise Failure(Status.INVALID_FIELD)
                self._drop()
        elif action == 1:
            self.keys.clear()
            self._drop()
            self.generation += 1
        else:
            raise Failure(Status.INVALID_FIELD)

    def report(self, controllers: dict[bytes, int], is_extended: bool) -> bytes:
        """Return the data of Reservation Report; ``controllers`` has one of each host that is here.

        Raises Failure for a host identifier that the short form cannot hold; Linux asks for the
        extended one then.
        """
        head = struct.pack(
            "<IBH2xB", self.generation & 0xFFFFFFFF, self.kind, len(self.keys), self.persists
        )
        parts = [head.ljust(64 if is_extended else 24, b"\0")]
        for host, key in self.keys.items():
            cntlid = controllers.get(host, 0xFFFF)
            status = int(self.holds(host))
            if is_extended:
                parts.append(struct.pack("<HB5xQ16s32x", cntlid, status, key, host))
            else:
                parts.append(struct.pack("<HB5x8sQ", cntlid, status, host[:8], key))
        return b"".join(parts)

    # ---- what they are made of ----

    def _check_key(self, host: bytes, key: int, is_ignored: bool) -> None:
        if host not in self.keys or (not is_ignored and self.keys[host] != key):
            raise Failure(Status.RESERVATION_CONFLICT)

    def _take(self, host: bytes, kind: ReservationType) -> None:
        self.kind = kind
        self.holder = None if kind in _HELD_BY_ALL else host

    def _drop(self) -> None:
        self.kind, self.holder = ReservationType.NONE, None

    def _unregister(self, host: bytes) -> None:
        del self.keys[host]
        if self.holder == host or (self.kind in _HELD_BY_ALL and not self.keys):
            self._drop()

    def _preempt(self, host: bytes, key: int, kind: ReservationType) -> None:
        """Unregister the hosts with a key; take the reservation if that was the holder's."""
        takes = False
        if self.kind in _HELD_BY_ALL:
            takes = key == 0
            others = [each for each in self.keys if takes or self.keys[each] == key]
        else:
            if key == 0 and not self.is_free:
                raise Failure(Status.INVALID_FIELD)
            takes = self.holder is not None and self.keys.get(self.holder) == key
            others = [each for each in self.keys if self.keys[each] == key]
        if not others:
            raise Failure(Status.RESERVATION_CONFLICT)
        for each in others:
            if each != host:
                self._unregister(each)
        if takes:
            self._take(host, kind)


def report_length(report: bytes) -> int:
    """Return how long an extended Reservation Report is, of which there is at least the begin."""
    (count,) = struct.unpack_from("<H", report, 5)
    return 64 * (int(count) + 1)


def keys_of(report: bytes) -> dict[bytes, int]:
    """Return the registered hosts of an extended Reservation Report, and their keys."""
    ends = range(128, min(report_length(report), len(report)) + 1, 64)
    entries = [struct.unpack_from("<8xQ16s", report, end - 64) for end in ends]
    return {host: key for key, host in entries}


def is_holder(report: bytes, host: bytes) -> bool:
    """Return whether a host holds the reservation, by an extended Reservation Report."""
    ends = range(128, min(report_length(report), len(report)) + 1, 64)
    entries = (struct.unpack_from("<2xB13x16s", report, end - 64) for end in ends)
    return any(status & 1 and each == host for status, each in entries)


def why_conflict(
    opcode: int, keys: dict[bytes, int], host: bytes, key: int, preempted: int | None
) -> str | None:
    """Say why a command of a host conflicts, where hosts have registered ``keys``.

    ``key`` is what the command has given as the host's key, and ``preempted`` the key whose
    reservation it takes, if it does. Returns None where the status says it.
    """
    registered = keys.get(host)
    if registered is None:
        return "this host has not registered a key: disk.register(key) comes first"
    if opcode == IoOpcode.RESERVATION_REGISTER:
        return (
            f"this host has registered the key {registered}: give that as current=, and"
            " action=RegisterAction.REPLACE replaces it"
        )
    if registered != key:
        return f"this host has registered the key {registered}, and not {key}: give that one"
    if opcode == IoOpcode.RESERVATION_ACQUIRE and preempted is not None:
        return f"no host has registered the key {preempted}, which preempt= names"
    if opcode == IoOpcode.RESERVATION_ACQUIRE:
        return "another host has reserved the namespace: preempt=, its key, takes it from there"
    return None


def _two_keys(data: bytes) -> tuple[int, int]:
    first, second = struct.unpack_from("<QQ", data)
    return first, second


def _kind(word: int) -> ReservationType:
    value = word >> 8 & 0xFF
    if not 1 <= value <= 6:
        raise Failure(Status.INVALID_FIELD)
    return ReservationType(value)
