# SPDX-License-Identifier: Apache-2.0
"""The structures of [[traffic]], one for each pattern, with the meaning of their keys.

``scenario_traffic`` reads a table as one of them, and its ``workload`` makes the flows.
docs/simulation.md prints the keys from here, so a key that is not here cannot be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, field
from msgspec.inspect import Metadata

from verbena import fabrics
from verbena.fabrics import Fabric, FabricError, Rate, Workload
from verbena.fabrics.collectives import BROADCASTS, COLLECTIVES, PIPELINES
from verbena.fabrics.flows import need
from verbena.sim.document import Section
from verbena.sim.settings import MANY, SIZE, TIME, Settings, Units, fields_of, meant, unit
from verbena.sim.units import time_text

__all__ = ["LATEST", "PATTERNS", "Explained", "Pattern", "Place", "Table", "explained"]

LATEST = 1 << 61  # ps
LONGEST_MESSAGE = 1 << 30


@dataclass(frozen=True)
class Place:
    """What a pattern may need to make its flows."""

    section: Section
    fabric: Fabric
    numbers: dict[str, int]  # the number of each host by name
    folder: Path
    seed: int

    def host(self, value: object) -> int:
        """Return the number of a host, which is given by name or number. Raises ValueError."""
        if isinstance(value, str) and value in self.numbers:
            return self.numbers[value]
        hosts = len(self.numbers)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < hosts:
            return value
        raise ValueError(f"there is no such host: there are h0 to h{hosts - 1}, or numbers from 0"
                         if "h0" in self.numbers else "there is no such host")  # fmt: skip

    def units(self) -> Units:
        """Return the functions that read the values of keys with hosts."""
        hosts = len(self.numbers)
        return {
            "host": self.host,
            "some hosts": lambda value: _counted(value, 2, max(2, hosts)),
            "senders": lambda value: _counted(value, 1, max(1, hosts - 1)),
        }


def _counted(value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"it is to be a whole number from {least} to {most}")
    return value


# ---- what keys are ------------------------------------------------------------------------------


def says(value: str, means: str, without: str = "") -> Meta:
    """Return metadata for the documentation: the key's value, its meaning, and the value without
    the key.

    ``without`` is for a key whose default does not say it.
    """
    return Meta(description=means, extra={"value": value, "without": without})


@dataclass(frozen=True)
class Explained:
    """A key as the documentation describes it."""

    value: str
    means: str
    without: str
    required: bool


def explained(kind: type[msgspec.Struct]) -> dict[str, Explained]:
    """Return the keys of a structure without the one that tells the structures apart."""
    made = {}
    for name, one in fields_of(kind).items():
        assert isinstance(one.type, Metadata)
        extra, schema = one.type.extra or {}, one.type.extra_json_schema or {}
        without = extra["without"] or ("needed" if one.required else str(one.default))
        made[name] = Explained(extra["value"], schema["description"], without, one.required)
    return made


Host = Annotated[int, unit("host")]
Hosts = Annotated[list[Host], MANY]
Size = Annotated[int, SIZE, Meta(ge=1, le=1 << 62)]
Time = Annotated[int, TIME, Meta(ge=0)]
_First = Annotated[
    int | None, unit("some hosts"),
    says("whole number", "the first so many hosts take part", "all"),
]  # fmt: skip
_Each = Annotated[Size, says("size", "bytes of each flow")]


class Table(Settings):
    """The keys that every [[traffic]] has."""

    name: Annotated[
        str | None,
        says("text", "what results and settings call it",
             "the pattern's name; `shift-2` where that is taken"),
    ] = None  # fmt: skip
    start: Annotated[Time, says("time", "is added to the flows' own starts")] = 0
    transport: Annotated[
        Literal["rc", "uc", "ud", "tcp"],
        says("`rc`, `uc`, `ud`, `tcp`", "what carries it", "`rc`"),
    ] = "rc"
    operation: Annotated[
        Literal["write", "read", "send"] | None,
        says("`write`, `send`, `read`", "of RC and UC; `read` is for RC, UD only sends",
             "`write`, of UD `send`"),
    ] = None  # fmt: skip
    message: Annotated[
        int, SIZE, Meta(ge=1, le=LONGEST_MESSAGE),
        says("size", "of each request; of datagrams, the MTU at most", "the whole flow"),
    ] = 0  # fmt: skip
    level: Annotated[
        int, unit("class"),
        says("name or number", "a class of the switches, or a service level"),
    ] = field(name="class", default=0)  # fmt: skip
    depth: Annotated[
        int, Meta(ge=1, le=64), says("1 to 64", "messages that are posted at once")
    ] = 1
    group: Annotated[
        int | None, unit("group"),
        says("name", "the flows go to a [[group]]; `flows` over UD", "none"),
    ] = None  # fmt: skip
    pkey: Annotated[
        int, unit("pkey"),
        says("number or name", "the P_Key of its packets, or a [[partition]] of the source",
             "0xffff"),
    ] = 0xFFFF  # fmt: skip
    reserve: Annotated[
        int, unit("whole bits"),
        says("rate", "is promised by each link of the way", "nothing"),
    ] = 0  # fmt: skip
    reserve_buffer: Annotated[
        Size, says("size", "is kept by each switch of the way", "nothing")
    ] = 0
    control: Annotated[
        Literal["reno", "cubic", "dctcp"],
        says("`reno`, `cubic`, `dctcp`", "of TCP", "`cubic`"),
    ] = "cubic"
    seed: Annotated[
        Annotated[int, Meta(ge=0, le=1 << 62)] | None,
        says("whole number", "of what the pattern draws by chance",
             "the scenario's, and the table's number"),
    ] = None  # fmt: skip


class Pattern(Table, tag_field="pattern", tag="pattern"):
    """A [[traffic]] of some pattern. The docstring of a pattern is its text in the
    documentation."""

    def workload(self, place: Place) -> Workload:
        """Return the flows. Raises ScenarioError, FabricError."""
        raise NotImplementedError


# ---- the patterns -------------------------------------------------------------------------------


class _Some(Pattern, kw_only=True):
    """A pattern that the first ``hosts`` hosts take part in."""

    hosts: _First = None

    def all(self, place: Place) -> int:
        """Return how many hosts take part."""
        return len(place.numbers) if self.hosts is None else self.hosts


class Flows(Pattern, tag="flows", kw_only=True):
    """from hosts to hosts; lists are of one length, or one stands for all"""

    source: Annotated[Hosts, says("host, or list", "who sends (a READ: who asks)")] = field(
        name="from"
    )
    to: Annotated[
        list[Host] | None, MANY,
        says("host, or list", "who receives", "needed, unless there is a `group`"),
    ] = None  # fmt: skip
    size: Annotated[list[Size], MANY, says("size, or list", "bytes of each flow")]
    repeat: Annotated[
        int, Meta(ge=1, le=10**9), says("whole number", "all of them so many times")
    ] = 1
    every: Annotated[Time, says("time", "from one time to the next")] = 0

    def workload(self, place: Place) -> Workload:
        section, source, size, repeat = place.section, self.source, self.size, self.repeat
        if (
            self.group is not None
        ):  # any other host stands for the group until the world gets the flow
            target = [(host + 1) % len(place.numbers) for host in source]
        elif self.to is None:
            raise section.missing("to", [*explained(Flows), "pattern"])
        else:
            target = self.to
        if repeat * self.every > LATEST:
            late = f"= {time_text(self.every)}: the last of {repeat} is too late"
            raise section.error("every", late)
        many = {len(source), len(target), len(size)} - {1}
        if len(many) > 1:
            lengths = f"from has {len(source)}, to has {len(target)}, size has {len(size)}"
            text = "and from and size are to be lists of one length; a list of one stands for all"
            raise section.error("to", f"{text}: {lengths}")
        count = max(many, default=1)
        columns = [np.broadcast_to(np.array(part), count) for part in (source, target, size)]
        start = np.repeat(np.arange(repeat) * self.every, count)
        here, there, sizes = (np.tile(column, repeat) for column in columns)
        return Workload("flows", fabrics.flows(here, there, sizes, start))


class Incast(Pattern, tag="incast", kw_only=True):
    """many to one"""

    size: _Each
    senders: Annotated[
        int | None, unit("senders"),
        says("whole number", "the first so many hosts send", "all others"),
    ] = None  # fmt: skip
    receiver: Annotated[
        int | None, unit("host"), says("host", "who receives", "the host behind the senders")
    ] = None
    within: Annotated[
        Time, says("time", "each begins at a random time before this", "all at once")
    ] = 0

    def workload(self, place: Place) -> Workload:
        need("incast", hosts=len(place.numbers) - 1)
        senders = len(place.numbers) - 1 if self.senders is None else self.senders
        return fabrics.incast(
            senders, self.size, receiver=self.receiver, within_ps=self.within, seed=place.seed
        )


class Permutation(_Some, tag="permutation", kw_only=True):
    """each host to one other, by chance"""

    size: _Each

    def workload(self, place: Place) -> Workload:
        return fabrics.permutation(self.all(place), self.size, seed=place.seed)


class Shift(_Some, tag="shift", kw_only=True):
    """host i to host i + `by`, around the end"""

    size: _Each
    by: Annotated[int, Meta(ge=1, le=1 << 20), says("whole number", "how many hosts further")]

    def workload(self, place: Place) -> Workload:
        return fabrics.shift(self.all(place), self.by, self.size)


class AllToAll(_Some, tag="all_to_all", kw_only=True):
    """each host to every other: shift by 1, then by 2, and so on"""

    size: _Each
    in_turn: Annotated[
        bool,
        says("true, false", "a host's next flow waits until its last was received",
             "true; false: all begin at once"),
    ] = True  # fmt: skip

    def workload(self, place: Place) -> Workload:
        return fabrics.all_to_all(self.all(place), self.size, in_turn=self.in_turn)


class Collective(_Some, tag="collective", kw_only=True):
    """The function of verbena.fabrics of that name, with ``chunk`` and ``root`` if it has them."""

    size: Annotated[Size, says("size", "bytes of the whole operation's data")]

    def workload(self, place: Place) -> Workload:
        options = {name: getattr(self, name) for name in ("chunk", "root") if hasattr(self, name)}
        make = getattr(fabrics, place.section.table["pattern"])
        work: Workload = make(self.all(place), self.size, **options)
        return work


_Chunk = Annotated[
    Size | None,
    says("size", "the data go in parts of so many bytes", "a 64th, 4 KiB or more"),
]
_Root = Annotated[Host, says("host", "whose data it is")]


def _collective(name: str) -> Any:
    own: list[tuple[str, Any, Any]] = []
    own += [("chunk", _Chunk, None)] if name in PIPELINES else []
    own += [("root", _Root, 0)] if name in BROADCASTS else []
    return msgspec.defstruct(name, own, bases=(Collective,), tag=name)


class Poisson(_Some, tag="poisson", kw_only=True):
    """random pairs at random times"""

    load: Annotated[
        float, Meta(gt=0, le=1),
        says("number up to 1", "the part of each host's link that is used"),
    ]  # fmt: skip
    sizes: Annotated[str, says("name or file", "a published distribution, or a file with one")]
    lasts: Annotated[Time, says("time", "no flow begins later")]
    link: Annotated[
        Rate | None, unit("rate"),
        says("rate", "of the link that `load` is a part of", "the first host's"),
    ] = None  # fmt: skip

    def workload(self, place: Place) -> Workload:
        link = place.fabric.cable(place.fabric.hosts[0], 1)
        drawn: Any = self.sizes
        if drawn not in fabrics.PUBLISHED:
            path = place.folder / drawn
            if not path.is_file():
                known = ", ".join(fabrics.PUBLISHED)
                text = f'= "{drawn}": {meant(drawn, fabrics.PUBLISHED)}it is no file, and none of '
                raise place.section.error("sizes", text + known)
            drawn = fabrics.read_distribution(path)
        return fabrics.poisson(
            self.all(place),
            self.load,
            drawn,
            link=self.link or (link.rate if link else "100GbE"),
            duration_ps=self.lasts,
            seed=place.seed,
        )


class Trace(Pattern, tag="trace", kw_only=True):
    """flows from a file"""

    file: Annotated[str, says("file", "CSV: `source,destination,bytes,start_ps` and `after`")]

    def workload(self, place: Place) -> Workload:
        try:
            return fabrics.read_csv(place.folder / self.file, place.numbers)
        except FabricError as error:
            raise place.section.error("file", f"is wrong: {error}") from None
        except (OSError, ValueError) as error:
            raise place.section.error("file", f"cannot be read: {error}") from None


PATTERNS: dict[str, type[Pattern]] = {
    "flows": Flows,
    "incast": Incast,
    "permutation": Permutation,
    "shift": Shift,
    "all_to_all": AllToAll,
    **{name: _collective(name) for name in COLLECTIVES},
    "poisson": Poisson,
    "trace": Trace,
}
ANY: Any = reduce(or_, PATTERNS.values())
