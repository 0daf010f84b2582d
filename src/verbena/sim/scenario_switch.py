# SPDX-License-Identifier: Apache-2.0
"""The tables [switch] with its classes, [adapter], [congestion] and [tcp] of a scenario.

``Scenario`` calls ``read_adapter`` and ``read_switch``. They return the structures of
``world_settings``, which World takes as they are.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, field, structs
from numpy.typing import NDArray

from verbena.fabrics import Routes
from verbena.sim._world import World
from verbena.sim.document import Section, toml_text
from verbena.sim.settings import fields_of, given, unit
from verbena.sim.units import size_text
from verbena.sim.world_settings import (
    LANES_MOST,
    Adapter,
    Congestion,
    Flow,
    Lane,
    Switch,
    SwitchKeys,
    Tcp,
    WorldSettings,
)

__all__ = ["Switching", "overflows", "read_adapter", "read_switch", "world_of"]

PAUSE_BYTES = 84
CREDIT_WINDOW = 2048 * 64  # bytes of credits in flight at most, whatever the buffer (IBA 7.9.4)
WHOLE = {"whole": int}  # a float without a fraction is a whole number: NumPy in a sweep makes such
_Tables = list[dict[str, Any]]
_Per = Literal["flow", "packet"]


class _Class(Lane, kw_only=True):
    """A class of all switches, whose keys may also be in [switch] itself."""

    flow: Flow
    weight: Annotated[int, Meta(ge=1, le=255)] = 64
    strict: bool = False


class _Named(_Class, kw_only=True):
    """A [[switch.class]]."""

    name: str | None = None


def _switch_table(has_flow: bool, is_own: bool) -> Any:
    """Return the structure of [switch], or of a [[switch.own]] merged with it.

    ``has_flow``: it has the keys of one class; otherwise it has a list of classes.
    """
    more: list[Any] = [("own", _Tables, field(default_factory=list))]
    if is_own:
        more = [("of", Annotated[list[int], unit("switches")]), ("balance", _Per | None, None)]
    if has_flow:
        more += [
            (one.name, one.type) if one.required else (one.name, one.type, one.default)
            for one in structs.fields(_Class)
            if one.name != "mark"
        ]
    else:
        kind = Annotated[_Tables, Meta(max_length=LANES_MOST)]
        more += [("classes", kind, field(name="class", default_factory=list))]
    return msgspec.defstruct("Switch", more, bases=(SwitchKeys,), kw_only=True)


_TABLES = {both: _switch_table(*both) for both in product((False, True), repeat=2)}
LANE_KEYS = ("class", *fields_of(_Class))
ONLY_FOR = {"room": "credits", "stop": "pauses", "go": "pauses", "spare": "pauses"}


@dataclass(frozen=True)
class Switching:
    """The settings of all switches. ``classes``: the names of the classes, by service level.

    ``own``: the settings of single switches, by number. ``by_route``: service levels are those that
    the routes require, since there is one class on several lanes.
    """

    settings: Switch
    classes: tuple[str, ...] = ()
    by_route: bool = False
    notes: tuple[str, ...] = ()
    lanes: tuple[Lane, ...] = ()  # those of all switches and of single ones
    own: dict[int, Switch] = dataclasses.field(default_factory=dict)

    @property
    def kinds(self) -> tuple[Switch, ...]:
        """The settings of all switches, and those of single ones."""
        return (self.settings, *self.own.values())

    def level(self, value: object) -> int:
        """Return the number of a class, which is given by name or number. Raises ValueError."""
        if isinstance(value, str) and value in self.classes:
            return self.classes.index(value)
        known = max(1, len(self.classes))
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < known:
            return value
        names = ", ".join(self.classes) if self.classes else "only 0"
        raise ValueError(f"there is no such class: there is {names}")


def read_adapter(adapter: Section, congestion: Section, tcp: Section) -> WorldSettings:
    """Return what World takes except its seed. Raises ScenarioError."""
    keys = adapter.read(Adapter, WHOLE)
    control = _read_congestion(congestion) if congestion.table else None
    streams = tcp.read(Tcp, WHOLE)
    try:
        return WorldSettings(**structs.asdict(keys), congestion=control, tcp=streams)
    except ValueError as error:  # TCP's segments do not fit the MTU
        raise tcp.blame(error) from None


def _read_congestion(section: Section) -> Congestion:
    table = section.table
    if table.get("kind") == "hpcc" and "base_rtt" not in table:
        raise section.error(
            None, "needs the key 'base_rtt': a round trip without queues, as in \"9 us\""
        )
    levels = table.get("levels")
    for name in levels if isinstance(levels, dict) else ():
        if not name.isdecimal() or int(name) > 15:
            raise section.section("levels").error(name, "is no service level from 0 to 15")
    made: Congestion = section.read(Congestion, WHOLE)  # type: ignore[arg-type]  # a union
    return made


def read_switch(
    section: Section,
    routes: Routes,
    adapter: WorldSettings,
    balance: str,
    may_lose: bool,
    extenders: NDArray[Any],
) -> Switching:
    """Return the settings of all switches, and of single ones. ``extenders``: bytes, by directed
    link.

    Raises ScenarioError, also for a lossless class whose buffers would lose packets, unless the
    scenario allows loss.
    """
    read = (routes, adapter, may_lose, extenders)
    keys: Any = section.read(_TABLES["flow" in section, False])
    made = _switching(section, keys, balance, *read)
    own: dict[int, Switch] = {}
    lanes = made.lanes
    for part in section.sections("own"):
        whole = _with_base(part, section.table)
        units = {"switches": lambda value: _switches(value, routes)}
        its: Any = whole.read(_TABLES["flow" in whole, True], units)
        one = _switching(whole, its, its.balance or balance, *read)
        if (one.classes, len(one.lanes)) != (made.classes, len(made.lanes)):
            raise part.error(
                "class" if "class" in part else None,
                "has other classes than the other switches: their number and names are the same",
            )
        if twice := own.keys() & set(its.of):
            name = routes.tables.switch_name(min(twice))
            raise part.error("of", f"has {name}, which another [[switch.own]] is about")
        own |= dict.fromkeys(its.of, one.settings)
        lanes += one.lanes
    return replace(made, own=own, lanes=lanes)


def _switches(names: Any, routes: Routes) -> list[int]:
    return [_switch(name, routes) for name in (names if isinstance(names, list) else [names])]


def _switch(name: object, routes: Routes) -> int:
    tables = routes.tables
    number = tables.number.get(name, -1) if isinstance(name, str) else -1
    if number < tables.host_count:
        raise ValueError(f"there is no switch {toml_text(name)}")
    return int(number - tables.host_count)


def _with_base(part: Section, base: dict[str, Any]) -> Section:
    """Return the keys of [switch] with those of a [[switch.own]], which take precedence."""
    kept = {key: value for key, value in base.items() if key != "own"}
    if "flow" in part or "class" in part:
        kept = {key: value for key, value in kept.items() if key not in LANE_KEYS}
    return Section(part.document, part.key, {**kept, **part.table})


def _switching(
    section: Section,
    keys: SwitchKeys,
    balance: str,
    routes: Routes,
    adapter: WorldSettings,
    may_lose: bool,
    extenders: NDArray[Any],
) -> Switching:
    parts = [section] if "flow" in section else section.sections("class")
    if "class" in section and "flow" in section:
        raise section.error("flow", "is given, and so are classes: a class has its own flow")
    if "flow" in section:
        classes: list[_Class] = [_only_class(section, keys)]
    else:
        classes = [part.read(_Named) for part in parts]
        if parts and keys.mark is not None:
            raise section.error("mark", "is given, and there are classes: a class has its own mark")
    for part, one in zip(parts, classes, strict=True):
        _check_class(part, one)
    made = _lanes(section, keys, classes, balance, routes, adapter)
    _try(section, parts, made.settings, adapter)
    notes = _no_room(made.settings, adapter)
    for part, lane in zip(parts, classes, strict=True):
        if lane.flow == "pauses":
            _check_pauses(part, lane, made.settings, routes, adapter, may_lose)
        elif lane.flow == "credits":
            notes += _slow_links(lane, routes, adapter, extenders)
    return replace(made, notes=tuple(notes), lanes=tuple(map(_lane, classes)))


def is_too_small(settings: Switch, adapter: WorldSettings) -> bool:
    """Return whether the switch's buffer has no room for one packet of the MTU."""
    return 0 < settings.buffer < world_of(0, adapter).frame_bytes


def _no_room(settings: Switch, adapter: WorldSettings) -> list[str]:
    if not is_too_small(settings, adapter):
        return []
    frame = size_text(world_of(0, adapter).frame_bytes)
    return [
        f"switch.buffer is {size_text(settings.buffer)}, and no packet of {size_text(adapter.mtu)} "
        f"fits, which takes {frame} on the wire: the switch drops all that are as long"
    ]


def _only_class(section: Section, keys: SwitchKeys) -> _Class:
    try:
        return _Class(**{name: getattr(keys, name) for name in _Class.__struct_fields__})
    except ValueError as error:
        raise section.blame(error) from None


def _check_class(part: Section, one: _Class) -> None:
    for name, flow in ONLY_FOR.items():
        if name in part and one.flow != flow:
            raise part.error(name, f'is only for flow = "{flow}"')
    if one.flow == "credits" and "room" not in part:
        raise part.error(None, "needs the key 'room': bytes of each input's buffer")


def _lane(one: _Class) -> Lane:
    return Lane(**{name: getattr(one, name) for name in Lane.__struct_fields__})


def _lanes(
    section: Section,
    keys: SwitchKeys,
    classes: list[_Class],
    balance: str,
    routes: Routes,
    adapter: WorldSettings,
) -> Switching:
    """Return settings with one lane for each class, or the only class on all lanes that routes
    need."""
    needed = routes.lanes.lanes
    if needed > 1 and len(classes) > 1:
        raise section.error(
            "class", f"is a list of {len(classes)}, and the routing needs {needed} lanes for one"
        )
    spread = classes * needed if needed > 1 else classes
    names = tuple(getattr(one, "name", None) or str(n) for n, one in enumerate(classes))
    settings = {name: getattr(keys, name) for name in SwitchKeys.__struct_fields__}
    settings |= {"ports": routes.tables.out_link.shape[1], "balance": balance}
    if classes:
        high = [(n, 64) for n, one in enumerate(spread) if one.strict]
        settings |= {
            "mark": None,  # the classes have marks of their own
            "lanes": [_lane(one) for one in spread],
            "high": high,
            "low": [(n, one.weight) for n, one in enumerate(spread) if not one.strict],
            "high_limit": 255 if high else 0,
            "remembers": adapter.framing != "infiniband",
        }
    try:
        return Switching(Switch(**settings), names, bool(classes) and needed > 1)
    except ValueError as error:
        raise section.blame(error) from None


def _try(section: Section, parts: list[Section], settings: Switch, adapter: WorldSettings) -> None:
    """Make a switch, since World knows whether a lane has room for a packet.

    The error of World has the number of the lane, from which the table follows.
    """
    try:
        world_of(0, adapter).add_switch(**given(settings))
    except ValueError as error:
        words = str(error).split(":")[0].split()
        if words[0] == "lane" and words[1:] and words[1].isdecimal() and parts:
            raise parts[min(int(words[1]), len(parts) - 1)].blame(error) from None
        raise section.blame(error) from None


def world_of(seed: int, adapter: WorldSettings) -> World:
    return World(seed, **structs.asdict(adapter))


def _check_pauses(
    part: Section,
    lane: Lane,
    settings: Switch,
    routes: Routes,
    adapter: WorldSettings,
    may_lose: bool,
) -> None:
    """Refuse headroom that is too small for what arrives until a pause takes effect.

    It is 2 d C for a delay d and a rate C, the pause frames, and three packets: the one that
    crosses the threshold, the one that the pause frame waits for, and the one that had begun when
    it arrived.
    """
    tables, frame = routes.tables, world_of(0, adapter).frame_bytes
    if not lane.stop and not (lane.alpha and settings.buffer):
        raise part.error(None, "needs the key 'stop', or 'alpha' and a buffer of the switch")
    links = tables.links[tables.links["dst"] >= tables.host_count]
    if may_lose or not len(links):
        return
    pauses = sum(one.flow == "pauses" for one in settings.lanes) * PAUSE_BYTES
    need = 2 * links["delay_ps"] * links["rate"].astype(float) / 8e12 + 3 * frame + pauses
    worst = int(np.argmax(need))
    spare = lane.spare
    if spare < need[worst]:
        index = int(np.nonzero(tables.links["dst"] >= tables.host_count)[0][worst])
        raise part.error(
            "spare" if "spare" in part else None,
            f"{'is' if 'spare' in part else 'has a spare of'} {spare} bytes: until a pause works, "
            f"{need[worst]:.0f} bytes still come by {tables.link_name(index)}, and what does not "
            'fit would be lost (allow = ["loss"] lets it)',
        )


def overflows(settings: Switch, levels: set[int]) -> bool:
    """Return whether a switch may drop packets of these service levels because a queue is full."""
    lanes = settings.lanes
    if not settings.buffer or not lanes:
        return bool(settings.buffer)
    return any(lanes[level % len(lanes)].flow == "lossy" for level in levels)


def _slow_links(
    lane: Lane, routes: Routes, adapter: WorldSettings, extenders: NDArray[Any]
) -> list[str]:
    """Return notes about links that these buffers of credits cannot keep busy.

    A link carries room / (2 s + 2 d), for the serialisation time s of a packet and the delay d.
    """
    tables, frame = routes.tables, world_of(0, adapter).frame_bytes
    links = tables.links
    room = np.where(extenders > 0, extenders, min(lane.room, max(CREDIT_WINDOW, frame)))
    seconds = 2 * (8 * frame / links["rate"] + links["delay_ps"] * 1e-12)
    most = 8 * room / seconds
    slow = np.nonzero(most < 0.99 * links["rate"])[0]
    if not len(slow):
        return []
    worst = int(slow[np.argmin(most[slow] / links["rate"][slow])])
    more = f", and {len(slow)} of all directions no more than a part" if len(slow) > 1 else ""
    return [
        f"a room of {extenders[worst] or lane.room} bytes lets {tables.link_name(worst)} "
        f"carry at most {most[worst] / 1e9:.3g} of {links['rate'][worst] / 1e9:.3g} Gb/s{more}"
    ]
