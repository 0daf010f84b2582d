# SPDX-License-Identifier: Apache-2.0
"""The patterns of a scenario's [[traffic]], each with its keys.

``scenario_traffic`` reads a table's pattern by this list, and docs/simulation.md prints the list: a
key that is not in it cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from verbena import fabrics
from verbena.fabrics import Fabric, FabricError, Workload
from verbena.fabrics.collectives import BROADCASTS, COLLECTIVES, PIPELINES
from verbena.sim import kinds
from verbena.sim.document import Section
from verbena.sim.units import time_text

__all__ = ["LATEST", "PATTERNS", "REQUIRED", "Given", "Key", "Pattern", "Place"]

LATEST = 1 << 61  # ps
REQUIRED: Any = object()
_COUNT = kinds.whole(1, 10**9)
_SIZE = kinds.size(1)

Kind = Callable[[Any], Any]
Given = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """What a pattern may ask for."""

    section: Section
    fabric: Fabric
    numbers: dict[str, int]
    folder: Path
    seed: int
    group: int  # of the table's flows; -1: they go to hosts

    def host(self, value: object) -> int:
        """By name or number."""
        if isinstance(value, str) and value in self.numbers:
            return self.numbers[value]
        hosts = len(self.numbers)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < hosts:
            return value
        raise ValueError(f"there is no such host: there are h0 to h{hosts - 1}, or numbers from 0"
                         if "h0" in self.numbers else "there is no such host")  # fmt: skip


@dataclass(frozen=True)
class Key:
    """A key of a table: what its value may be, what it is without the key, and what it means.

    ``kind`` is a function of ``kinds``, or one that takes the Place and gives such a function.
    ``default`` is REQUIRED for a key that has to be there; ``without`` says in words what happens
    without any other key, where the default itself would not.
    """

    value: str
    means: str
    kind: Kind | None = None
    default: Any = REQUIRED
    without: str = ""
    by_place: Callable[[Place], Kind] | None = None

    def take(self, place: Place, name: str) -> Any:
        kind = self.kind or (self.by_place(place) if self.by_place else kinds.anything)
        if self.default is REQUIRED:
            return place.section.take(name, kind)
        return place.section.take(name, kind, self.default)


@dataclass(frozen=True)
class Pattern:
    """``make`` makes the flows from the values of ``keys``; ``means`` is a line about it."""

    means: str
    keys: dict[str, Key]
    make: Callable[[Place, Given], Workload]

    def workload(self, place: Place) -> Workload:
        """Reads the keys. Raises ScenarioError, FabricError."""
        return self.make(place, {name: key.take(place, name) for name, key in self.keys.items()})


# ---- keys that several patterns have -------------------------------------------------------------


def _host(place: Place) -> Kind:
    return place.host


def _hosts(place: Place) -> Kind:
    return kinds.list_of(place.host)


def _some_hosts(place: Place) -> Kind:
    return kinds.whole(2, max(2, len(place.numbers)))


def _senders(place: Place) -> Kind:
    return kinds.whole(1, max(1, len(place.numbers) - 1))


_FIRST = Key(
    "whole number", "the first so many hosts take part", by_place=_some_hosts, default=None,
    without="all",
)  # fmt: skip
_EACH = Key("size", "bytes of each flow", _SIZE)


def _all(place: Place, given: Given) -> int:
    """How many hosts take part."""
    return len(place.numbers) if given["hosts"] is None else int(given["hosts"])


# ---- the patterns --------------------------------------------------------------------------------


def _flows(place: Place, given: Given) -> Workload:
    section, source, size = place.section, given["from"], given["size"]
    repeat, every = given["repeat"], given["every"]
    if place.group >= 0:  # whichever other host, until the world is told
        target = [(host + 1) % len(place.numbers) for host in source]
    elif given["to"] is None:
        target = section.take("to", kinds.anything)  # which says that it is needed
    else:
        target = given["to"]
    if repeat * every > LATEST:
        raise section.error("every", f"= {time_text(every)}: the last of {repeat} is too late")
    many = {len(source), len(target), len(size)} - {1}
    if len(many) > 1:
        raise section.error("to", f"has {len(target)} hosts, 'from' {len(source)}, and there are "
                            f"{len(size)} sizes")  # fmt: skip
    count = max(many, default=1)
    columns = [np.broadcast_to(np.array(part), count) for part in (source, target, size)]
    start = np.repeat(np.arange(repeat) * every, count)
    here, there, sizes = (np.tile(column, repeat) for column in columns)
    return Workload("flows", fabrics.flows(here, there, sizes, start))


def _incast(place: Place, given: Given) -> Workload:
    senders = len(place.numbers) - 1 if given["senders"] is None else given["senders"]
    return fabrics.incast(
        senders,
        given["size"],
        receiver=given["receiver"],
        within_ps=given["within"],
        seed=place.seed,
    )


def _permutation(place: Place, given: Given) -> Workload:
    return fabrics.permutation(_all(place, given), given["size"], seed=place.seed)


def _shift(place: Place, given: Given) -> Workload:
    return fabrics.shift(_all(place, given), given["by"], given["size"])


def _all_to_all(place: Place, given: Given) -> Workload:
    return fabrics.all_to_all(_all(place, given), given["size"], in_turn=given["in_turn"])


def _collective(name: str) -> Pattern:
    """The function of verbena.fabrics of that name, with ``chunk`` and ``root`` if it has them."""
    keys = {"size": Key("size", "bytes of the whole operation's data", _SIZE), "hosts": _FIRST}
    if name in PIPELINES:
        keys["chunk"] = Key(
            "size", "the data go in parts of so many bytes", _SIZE, None, "a 64th, 4 KiB or more"
        )
    if name in BROADCASTS:
        keys["root"] = Key("host", "whose data it is", by_place=_host, default=0)

    def made(place: Place, given: Given) -> Workload:
        options = {key: given[key] for key in ("chunk", "root") if key in given}
        work: Workload = getattr(fabrics, name)(_all(place, given), given["size"], **options)
        return work

    return Pattern("", keys, made)


def _poisson(place: Place, given: Given) -> Workload:
    link = place.fabric.cable(place.fabric.hosts[0], 1)
    rate = given["link"] or (link.rate if link else "100GbE")
    drawn: Any = given["sizes"]
    if drawn not in fabrics.PUBLISHED:
        path = place.folder / drawn
        if not path.is_file():
            meant = kinds.meant(drawn, fabrics.PUBLISHED)
            known = ", ".join(fabrics.PUBLISHED)
            raise place.section.error("sizes", f'= "{drawn}": {meant}it is no file, and none of '
                                      f"{known}")  # fmt: skip
        drawn = fabrics.read_distribution(path)
    return fabrics.poisson(
        _all(place, given),
        given["load"],
        drawn,
        link=rate,
        duration_ps=given["lasts"],
        seed=place.seed,
    )


def _trace(place: Place, given: Given) -> Workload:
    try:
        return fabrics.read_csv(place.folder / given["file"], place.numbers)
    except FabricError as error:
        raise place.section.error("file", f"is wrong: {error}") from None
    except (OSError, ValueError) as error:
        raise place.section.error("file", f"cannot be read: {error}") from None


PATTERNS: dict[str, Pattern] = {
    "flows": Pattern(
        "from hosts to hosts; lists are of one length, or one stands for all",
        {
            "from": Key("host, or list", "who sends (a READ: who asks)", by_place=_hosts),
            "to": Key(
                "host, or list", "who receives", by_place=_hosts, default=None,
                without="needed, unless there is a `group`",
            ),
            "size": Key("size, or list", "bytes of each flow", kinds.list_of(_SIZE)),
            "repeat": Key("whole number", "all of them so many times", _COUNT, 1),
            "every": Key("time", "from one time to the next", kinds.time, 0),
        },
        _flows,
    ),
    "incast": Pattern(
        "many to one",
        {
            "size": _EACH,
            "senders": Key(
                "whole number", "the first so many hosts send", by_place=_senders, default=None,
                without="all others",
            ),
            "receiver": Key(
                "host", "who receives", by_place=_host, default=None,
                without="the host behind the senders",
            ),
            "within": Key("time", "each begins at a random time before this", kinds.time, 0,
                          "all at once"),
        },
        _incast,
    ),
    "permutation": Pattern(
        "each host to one other, by chance", {"size": _EACH, "hosts": _FIRST}, _permutation
    ),
    "shift": Pattern(
        "host i to host i + `by`, around the end",
        {
            "size": _EACH,
            "by": Key("whole number", "how many hosts further", kinds.whole(1, 1 << 20)),
            "hosts": _FIRST,
        },
        _shift,
    ),
    "all_to_all": Pattern(
        "each host to every other: shift by 1, then by 2, and so on",
        {
            "size": _EACH,
            "in_turn": Key(
                "true, false", "a host's next flow waits until its last was received", kinds.flag,
                True, "true; false: all begin at once",
            ),
            "hosts": _FIRST,
        },
        _all_to_all,
    ),
    **{name: _collective(name) for name in COLLECTIVES},
    "poisson": Pattern(
        "random pairs at random times",
        {
            "load": Key(
                "number up to 1", "the part of each host's link that is used",
                kinds.number(0, 1, above=True),
            ),
            "sizes": Key("name or file", "a published distribution, or a file with one",
                         kinds.text),
            "lasts": Key("time", "no flow begins later", kinds.time),
            "link": Key("rate", "of the link that `load` is a part of", kinds.rate, None,
                        "the first host's"),
            "hosts": _FIRST,
        },
        _poisson,
    ),
    "trace": Pattern(
        "flows from a file",
        {"file": Key("file", "CSV: `source,destination,bytes,start_ps` and `after`", kinds.text)},
        _trace,
    ),
}  # fmt: skip
