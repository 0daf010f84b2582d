# SPDX-License-Identifier: Apache-2.0
"""The [switch] with its classes, the [adapter] and the [congestion] of a scenario."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verbena.fabrics import Routes
from verbena.sim import kinds
from verbena.sim._world import FECN_AT, World
from verbena.sim.document import Section

__all__ = ["Switching", "overflows", "read_adapter", "read_switch", "read_tcp"]

PAUSE_BYTES = 84
CREDIT_WINDOW = 2048 * 64  # bytes that a sender may be ahead, however large the buffer (IBA 7.9.4)
FLOWS = ("lossy", "credits", "pauses")
LANE_KEYS = (
    "class", "flow", "room", "stop", "go", "spare", "alpha", "mark", "weight", "strict"
)  # fmt: skip
_U32 = (1 << 32) - 1
_BYTES = kinds.size(0, _U32)


@dataclass(frozen=True)
class Switching:
    """``settings``: keywords of World.add_switch. ``classes``: their names, by level.

    ``own``: those of single switches, by number. ``by_route``: levels are those that the routes
    ask for, there being one class on many lanes.
    """

    settings: dict[str, Any]
    classes: tuple[str, ...] = ()
    by_route: bool = False
    notes: tuple[str, ...] = ()
    lanes: tuple[dict[str, Any], ...] = field(default=())  # of all switches
    own: dict[int, dict[str, Any]] = field(default_factory=dict)

    def level(self, value: object) -> int:
        """The number of a class, by its name or number."""
        if isinstance(value, str) and value in self.classes:
            return self.classes.index(value)
        known = max(1, len(self.classes))
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < known:
            return value
        names = ", ".join(self.classes) if self.classes else "only 0"
        raise ValueError(f"there is no such class: there is {names}")


def read_adapter(adapter: Section, congestion: Section) -> dict[str, Any]:
    """Keywords of World. Raises ScenarioError for what it would not take."""
    made: dict[str, Any] = {
        "framing": adapter.take("framing", kinds.text, "ethernet"),
        "mtu": adapter.take("mtu", kinds.size(), 4096),
    }
    for name, kind in (
        ("timeout", kinds.anything),
        ("retry_count", kinds.anything),
        ("rd_atomic", kinds.anything),
        ("window", kinds.size()),
        ("ack_bytes", kinds.size()),
        ("burst", kinds.anything),
        ("notice_level", kinds.anything),
        ("hop_limit", kinds.anything),
        ("recovery", kinds.anything),
    ):
        if (value := adapter.take(name, kind, None)) is not None:
            made[name] = value
    adapter.close()
    try:
        World(**made)
    except (ValueError, TypeError) as error:
        raise adapter.blame(ValueError(error)) from None
    if congestion.table:
        made["congestion"] = _read_congestion(congestion)
        try:
            World(**made)
        except (ValueError, TypeError, KeyError) as error:
            raise congestion.blame(ValueError(error)) from None
    return made


_TIMES = ("notice_interval", "alpha_interval", "raise_interval", "cut_interval", "timer")
_CCT_LEVEL = ("increase", "min", "trigger")  # what a service level has besides a timer
_RATES = ("add_rate", "fast_add_rate", "least_rate")


def _read_congestion(section: Section) -> dict[str, Any]:
    made: dict[str, Any] = {"kind": section.take("kind", kinds.one_of(("dcqcn", "cct", "hpcc")))}
    known = {
        "dcqcn": ("set", "gain", "raise_bytes", "fast_steps", "least_factor", "target_clamped"),
        "cct": ("gaps", "limit", *_CCT_LEVEL),
        "hpcc": ("target", "stages", "add"),
    }[made["kind"]]
    times = {
        "dcqcn": _TIMES[:4],
        "cct": ("notice_interval", "timer"),
        "hpcc": ("base_rtt",),
    }[made["kind"]]
    for name in times:
        if (value := section.take(name, kinds.time, None)) is not None:
            made[name] = value
    for name in _RATES if made["kind"] == "dcqcn" else ():
        if (rate := section.take(name, kinds.rate, None)) is not None:
            made[name] = float(rate.bits_per_second)
    for name in known:
        kind = kinds.size() if name in ("raise_bytes", "add") else kinds.anything
        if (value := section.take(name, kind, None)) is not None:
            made[name] = value
    if made["kind"] == "hpcc" and "base_rtt" not in made:
        raise section.error(
            None, "needs the key 'base_rtt': a round trip without queues, as in \"9 us\""
        )
    if made["kind"] == "cct":
        if "gaps" not in made:
            raise section.error(None, "needs the key 'gaps'")
        made["levels"] = _read_levels(section.section("levels"))
    section.close()
    return made


def _read_levels(section: Section) -> dict[int, dict[str, Any]]:
    """[congestion.levels.N]: what service level N has of its own."""
    made = {}
    for name in section.table:
        if not name.isdecimal() or int(name) > 15:
            raise section.error(name, "is no service level from 0 to 15")
        part = section.section(name)
        own = {key: part.take(key, kinds.anything, None) for key in _CCT_LEVEL}
        own["timer"] = part.take("timer", kinds.time, None)
        part.close()
        made[int(name)] = {key: value for key, value in own.items() if value is not None}
    return made


def read_tcp(section: Section, adapter: dict[str, Any]) -> dict[str, Any]:
    """The adapter's keywords with those of TCP. Raises ScenarioError for what World refuses."""
    made: dict[str, Any] = {}
    for name, kind in (
        ("mss", kinds.size()),
        ("initial_window", kinds.anything),
        ("window", kinds.size()),
        ("first_rto", kinds.time),
        ("least_rto", kinds.time),
        ("most_rto", kinds.time),
        ("retries", kinds.anything),
        ("ack_delay", kinds.time),
        ("dctcp_gain", kinds.number(0, 1, above=True)),
        ("ecn", kinds.flag),
        ("jitter", kinds.time),
    ):
        if (value := section.take(name, kind, None)) is not None:
            made[name] = value
    section.close()
    try:
        World(**adapter, tcp=made)
    except (ValueError, TypeError) as error:
        raise section.blame(ValueError(error)) from None
    return {**adapter, "tcp": made} if made else adapter


def read_switch(
    section: Section,
    routes: Routes,
    adapter: dict[str, Any],
    balance: str,
    may_lose: bool,
    extenders: NDArray[Any],
) -> Switching:
    """What all switches are like, and single ones. Raises ScenarioError, also for buffers that lose
    what they must not, unless the scenario allows it. ``extenders``: bytes, by directed link."""
    parts = section.sections("own")
    read = (routes, adapter, balance, may_lose, extenders)
    base = {key: value for key, value in section.table.items() if key != "own"}
    made = _read_switch(Section(section.document, section.key, base), *read)
    own: dict[int, dict[str, Any]] = {}
    lanes = made.lanes
    for part in parts:
        switches = part.take("of", kinds.list_of(lambda name: _switch(name, routes)))
        one = _read_switch(_with_base(part, base), *read)
        if (one.classes, len(one.lanes)) != (made.classes, len(made.lanes)):
            raise part.error(
                "class" if "class" in part else None,
                "has other classes than the other switches: their number and names are the same",
            )
        if twice := own.keys() & set(switches):
            name = routes.tables.switch_name(min(twice))
            raise part.error("of", f"has {name}, which another [[switch.own]] is about")
        own |= dict.fromkeys(switches, one.settings)
        lanes += one.lanes
    return replace(made, own=own, lanes=lanes)


def _switch(name: object, routes: Routes) -> int:
    tables = routes.tables
    number = tables.number.get(name, -1) if isinstance(name, str) else -1
    if number < tables.host_count:
        raise ValueError(f"there is no switch {name!r}")
    return int(number - tables.host_count)


def _with_base(part: Section, base: dict[str, Any]) -> Section:
    """The keys of all switches, but for those that these have of their own."""
    own = {key: value for key, value in part.table.items() if key != "of"}
    kept = dict(base)
    if "flow" in own or "class" in own:
        kept = {key: value for key, value in base.items() if key not in LANE_KEYS}
    return Section(part.document, part.key, {**kept, **own})


def _read_switch(
    section: Section,
    routes: Routes,
    adapter: dict[str, Any],
    balance: str,
    may_lose: bool,
    extenders: NDArray[Any],
) -> Switching:
    settings: dict[str, Any] = {
        "balance": balance,
        "buffer": section.take("buffer", kinds.size(), 0),
        "cut_through": section.take("cut_through", kinds.size(0, 65535), 0),
        "lifetime": section.take("lifetime", kinds.time, 0),
        "fecn": section.take("fecn", _BYTES, 0),
        "watchdog": _watchdog(section.section("watchdog")),
        "turns": section.take("turns", kinds.one_of(("input", "arrival")), "input"),
        "fecn_at": section.take("fecn_at", kinds.one_of(FECN_AT), "root"),
        "fecn_rate": section.take("fecn_rate", kinds.whole(0, 65535), 0),
        "fecn_victims": section.take("fecn_victims", _victims, ()),
    }
    if "own" in section.key:  # of all: [routing]
        settings["balance"] = section.take("balance", kinds.one_of(("flow", "packet")), balance)
    if "class" in section and "flow" in section:
        raise section.error("flow", "is given, and so are classes: a class has its own flow")
    if "flow" in section:
        parts = [section]
    else:
        parts = section.sections("class")
        if (mark := _mark(section)) is not None:
            settings["mark"] = mark
        if parts and mark is not None:
            raise section.error("mark", "is given, and there are classes: a class has its own mark")
    classes = [_read_class(part, is_switch=part is section) for part in parts]
    section.close()
    made = _lanes(section, classes, settings, routes, adapter)
    _try(section, parts, made, routes, adapter)
    notes: list[str] = []
    for part, lane in zip(parts, classes, strict=True):
        if lane["flow"] == "pauses":
            _check_pauses(part, lane, made.settings, routes, adapter, may_lose)
        elif lane["flow"] == "credits":
            notes += _slow_links(lane, routes, adapter, extenders)
    return Switching(
        made.settings, made.classes, made.by_route, tuple(notes), tuple(_plain(c) for c in classes)
    )


def _victims(value: object) -> Any:
    """Ports of Victim_Mask, by number."""
    if isinstance(value, str):
        return kinds.one_of(("hosts",))(value)
    return kinds.list_of(kinds.whole(0, 32766))(value)


def _mark(section: Section) -> tuple[int, int, float] | None:
    inner = section.section("mark")
    if not inner.table:
        return None
    made = (
        inner.take("low", _BYTES),
        inner.take("high", _BYTES),
        inner.take("most", kinds.number(0, 1), 1.0),
    )
    inner.close()
    if made[0] > made[1] or not made[1]:
        raise inner.error("high", "is less than low")
    return made


def _watchdog(section: Section) -> dict[str, Any] | None:
    if not section.table:
        return None
    made: dict[str, Any] = {"detect": section.take("detect", kinds.time)}
    made["restore"] = section.take("restore", kinds.time, made["detect"])
    made["action"] = section.take("action", kinds.one_of(("drop", "forward")), "drop")
    if not made["detect"]:
        raise section.error("detect", "is 0: each pause would be a storm")
    section.close()
    return made


def _read_class(part: Section, is_switch: bool) -> dict[str, Any]:
    lane: dict[str, Any] = {"flow": part.take("flow", kinds.one_of(FLOWS))}
    for name, flows in (("room", ("credits",)), ("stop", ("pauses",)), ("go", ("pauses",)),
                        ("spare", ("pauses",))):  # fmt: skip
        if (value := part.take(name, _BYTES, None)) is not None:
            if lane["flow"] not in flows:
                raise part.error(name, f"is only for flow = {flows[0]!r}")
            lane[name] = value
    if (alpha := part.take("alpha", kinds.number(0, 1e6), None)) is not None:
        lane["alpha"] = alpha
    if (mark := _mark(part)) is not None:
        lane["mark"] = mark
    if lane["flow"] == "credits" and "room" not in lane:
        raise part.error(None, "needs the key 'room': bytes of each input's buffer")
    lane["weight"] = part.take("weight", kinds.whole(1, 255), 64)
    lane["strict"] = part.take("strict", kinds.flag, False)
    lane["name"] = None if is_switch else part.take("name", kinds.text, None)
    if not is_switch:
        part.close()
    return lane


def _plain(lane: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in lane.items() if key not in ("weight", "strict", "name")}


def _lanes(
    section: Section,
    classes: list[dict[str, Any]],
    settings: dict[str, Any],
    routes: Routes,
    adapter: dict[str, Any],
) -> Switching:
    """One lane for each class, or the only class on as many lanes as the routes ask for."""
    needed = routes.lanes.lanes
    if not classes:
        return Switching(settings)
    if needed > 1 and len(classes) > 1:
        raise section.error(
            "class", f"is a list of {len(classes)}, and the routing needs {needed} lanes for one"
        )
    spread = [classes[0]] * needed if needed > 1 else classes
    names = tuple(lane["name"] or str(n) for n, lane in enumerate(classes))
    high = [(n, 64) for n, lane in enumerate(spread) if lane["strict"]]
    low = [(n, lane["weight"]) for n, lane in enumerate(spread) if not lane["strict"]]
    tables = {"high": high, "low": low, "high_limit": 255 if high else 0}
    tables["remembers"] = adapter["framing"] != "infiniband"
    lanes = [_plain(lane) for lane in spread]
    return Switching({**settings, **tables, "lanes": lanes}, names, needed > 1)


def _try(
    section: Section,
    parts: list[Section],
    made: Switching,
    routes: Routes,
    adapter: dict[str, Any],
) -> None:
    """What World says of it; its errors about a lane begin with the lane's number."""
    try:
        World(**adapter).add_switch(routes.tables.out_link.shape[1], **made.settings)
    except ValueError as error:
        words = str(error).split(":")[0].split()
        if words[0] == "lane" and words[1:] and words[1].isdecimal() and parts:
            raise parts[min(int(words[1]), len(parts) - 1)].blame(error) from None
        raise section.blame(error) from None


def _check_pauses(
    part: Section,
    lane: dict[str, Any],
    settings: dict[str, Any],
    routes: Routes,
    adapter: dict[str, Any],
    may_lose: bool,
) -> None:
    """Enough headroom for what comes until a pause works: 2 d C, three frames, and the pauses.

    The frames are the one that crosses the threshold, the one that the pause waits for, and the one
    that has begun when it comes.
    """
    tables, frame = routes.tables, World(**adapter).frame_bytes
    if not lane.get("stop") and not (lane.get("alpha") and settings["buffer"]):
        raise part.error(None, "needs the key 'stop', or 'alpha' and a buffer of the switch")
    links = tables.links[tables.links["dst"] >= tables.host_count]
    if may_lose or not len(links):
        return
    pauses = sum(one["flow"] == "pauses" for one in settings["lanes"]) * PAUSE_BYTES
    need = 2 * links["delay_ps"] * links["rate"].astype(float) / 8e12 + 3 * frame + pauses
    worst = int(np.argmax(need))
    spare = lane.get("spare", 0)
    if spare < need[worst]:
        index = int(np.nonzero(tables.links["dst"] >= tables.host_count)[0][worst])
        raise part.error(
            "spare" if "spare" in part else None,
            f"{'is' if 'spare' in part else 'has a spare of'} {spare} bytes: until a pause works, "
            f"{need[worst]:.0f} bytes still come by {tables.link_name(index)}, and what does not "
            'fit would be lost (allow = ["loss"] lets it)',
        )


def overflows(settings: dict[str, Any], levels: set[int]) -> bool:
    """May a switch with these settings drop packets of these levels for lack of room?"""
    lanes = settings.get("lanes", ())
    if not settings["buffer"] or not lanes:
        return bool(settings["buffer"])
    return any(lanes[level % len(lanes)]["flow"] == "lossy" for level in levels)


def _slow_links(
    lane: dict[str, Any], routes: Routes, adapter: dict[str, Any], extenders: NDArray[Any]
) -> list[str]:
    """Notes about links that these buffers cannot keep busy: room / (2 ser + 2 d)."""
    tables, frame = routes.tables, World(**adapter).frame_bytes
    links = tables.links
    room = np.where(extenders > 0, extenders, min(lane["room"], max(CREDIT_WINDOW, frame)))
    seconds = 2 * (8 * frame / links["rate"] + links["delay_ps"] * 1e-12)
    most = 8 * room / seconds
    slow = np.nonzero(most < 0.99 * links["rate"])[0]
    if not len(slow):
        return []
    worst = int(slow[np.argmin(most[slow] / links["rate"][slow])])
    more = f", and {len(slow)} of all directions no more than a part" if len(slow) > 1 else ""
    return [
        f"a room of {extenders[worst] or lane['room']} bytes lets {tables.link_name(worst)} "
        f"carry at most {most[worst] / 1e9:.3g} of {links['rate'][worst] / 1e9:.3g} Gb/s{more}"
    ]
