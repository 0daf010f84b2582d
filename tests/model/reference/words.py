# SPDX-License-Identifier: Apache-2.0
"""What requests are made of.

An address is a place in one of a process's arenas of memory, so that it has the same meaning in
every run; in the arena "zero" are the addresses of zero-based memory, which count from 0. A key is
the name of a memory region, or of a binding of a window, or NOTHING, a key that names none. A name
stays with the key that it was given to. Statuses, states and operations are the names of libibverbs
without their prefix.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from enum import IntFlag

NOTHING = "nothing"


class Access(IntFlag):
    """What a region, or a queue pair, allows."""

    LOCAL_WRITE = 1
    REMOTE_WRITE = 2
    REMOTE_READ = 4
    REMOTE_ATOMIC = 8
    MW_BIND = 16
    ZERO_BASED = 32

    def __repr__(self) -> str:
        return f"Access({int(self)})"


class Brief:
    """Shows only what differs from the default, as one would write it."""

    def __repr__(self) -> str:
        shown = []
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if each.default is MISSING:
                shown.append(repr(value))
            elif value != each.default:
                shown.append(f"{each.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, repr=False)
class Place(Brief):
    """An address: ``offset`` bytes into an arena; it may lie outside."""

    arena: str
    offset: int


@dataclass(frozen=True, repr=False)
class Sge(Brief):
    """A piece of local memory, named by a key."""

    place: Place
    length: int
    key: str


@dataclass(frozen=True, repr=False)
class Recv(Brief):
    """A receive request."""

    wr_id: int
    sges: tuple[Sge, ...] = ()

    @property
    def length(self) -> int:
        return sum(sge.length for sge in self.sges)


@dataclass(frozen=True, repr=False)
class Send(Brief):
    """A send request; ``place`` and ``key`` serve RDMA and atomics, ``to`` and ``qkey`` UD.

    ``key`` is also what an invalidation takes back; ``srq`` is the XRC SRQ that a request is for.
    """

    wr_id: int
    opcode: str
    sges: tuple[Sge, ...] = ()
    flags: tuple[str, ...] = ("SIGNALED",)
    place: Place | None = None
    key: str = NOTHING
    imm: int = 0
    compare_add: int = 0
    swap: int = 0
    to: str | None = None
    qkey: int = 0
    srq: str = NOTHING

    @property
    def length(self) -> int:
        return sum(sge.length for sge in self.sges)


@dataclass(frozen=True, repr=False)
class Bind(Brief):
    """A request that binds a window: to ``length`` bytes of a region, from ``place`` on."""

    wr_id: int
    window: str
    key: str
    region: str
    place: Place
    length: int
    access: Access
    flags: tuple[str, ...] = ("SIGNALED",)

    @property
    def opcode(self) -> str:
        return "BIND_MW"


@dataclass(frozen=True, repr=False)
class Completion(Brief):
    """What a poll returns, as far as it is defined (spec: work completion field validity).

    ``queue`` is "send" or "recv", or the XRC SRQ whose request it was. A completion with error
    defines ``wr_id``, ``status`` and ``qp``. A successful one also defines the operation, and a
    receive, READ or atomic the number of its bytes.
    """

    qp: str
    queue: str
    wr_id: int
    status: str
    opcode: str = ""
    byte_len: int | None = None
    imm: int | None = None
    src: str | None = None
    invalidated: str | None = None
