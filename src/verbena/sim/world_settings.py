# SPDX-License-Identifier: Apache-2.0
"""The keywords of World and World.add_switch as structures: ranges, defaults, and combinations.

World reads its keywords with these, in ps and bytes. A scenario reads its [adapter], [congestion],
[tcp] and [switch] with the same ones, in units, and passes the structures to World, which takes
them as they are. The compiled binding and the core check none of this again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from msgspec import Meta, field

from verbena.sim.settings import SIZE, TIME, Bytes, Refused, Settings, Units, meant, read, unit

__all__ = [
    "Adapter", "Cct", "CctLevel", "Congestion", "Dcqcn", "Flow", "HostSettings", "Hpcc", "Lane",
    "Switch", "SwitchKeys", "Tcp", "WorldSettings", "checked", "host_settings", "switch_settings",
    "world_settings",
]  # fmt: skip

T = TypeVar("T")
Flow = Literal["lossy", "credits", "pauses"]
Some = Annotated[int, SIZE, Meta(ge=1, le=2**32 - 1)]
Level = Annotated[int, Meta(ge=0, le=15)]
_Delay = Annotated[int, TIME, Meta(ge=0, le=10**12)]
_Time = Annotated[int, TIME, Meta(ge=0, le=2**62)]
_Step = Annotated[int, TIME, Meta(ge=1000, le=2**62)]
_BitRate = Annotated[float, unit("bits"), Meta(gt=0, lt=1e15)]
_Part = Annotated[float, Meta(gt=0, le=1)]
_Entry = Annotated[int, Meta(ge=0, le=127)]
_Port = Annotated[int, Meta(ge=0, le=32766)]
_Weight = Annotated[int, Meta(ge=0, le=255)]
_Gap = Annotated[float, Meta(ge=0, le=16383)]
_Table = Annotated[list[tuple[Level, _Weight]], Meta(max_length=64)]
LANES_MOST = 16


# ---- a world ------------------------------------------------------------------------------------


class Dcqcn(Settings, tag="dcqcn", tag_field="kind"):
    """Data Center QCN (Zhu et al., SIGCOMM 2015). A field that is None has the value of the
    ``set``."""

    set: Literal["paper", "adapter"] = "paper"
    notice_interval: _Time = 50_000_000
    gain: _Part | None = None
    alpha_interval: _Step | None = None
    raise_interval: _Step | None = None
    raise_bytes: Annotated[int, SIZE, Meta(ge=1, le=2**62)] | None = None
    fast_steps: Annotated[int, Meta(ge=0, le=2**31)] | None = None
    add_rate: _BitRate | None = None
    fast_add_rate: _BitRate | None = None
    least_rate: _BitRate | None = None
    least_factor: Annotated[float, Meta(ge=0, le=1)] | None = None
    cut_interval: _Time | None = None
    target_clamped: bool | None = None


class CctLevel(Settings):
    """What a service level has of its own; a field that is None is as for all levels."""

    timer: Annotated[int, TIME, Meta(ge=1, le=2**62)] | None = None
    increase: Annotated[int, Meta(ge=0, le=128)] | None = None
    min: _Entry | None = None
    trigger: _Entry | None = None


class Cct(CctLevel, tag="cct", tag_field="kind", kw_only=True):
    """InfiniBand's congestion control table (IBA A10). Each FECN is answered by a BECN at once.

    ``gaps``: the entries of the table as packet times of delay between two packets.
    """

    gaps: Annotated[list[_Gap], Meta(min_length=1, max_length=128)]
    limit: _Entry | None = None
    notice_interval: _Time = 0
    levels: dict[int, CctLevel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        last = len(self.gaps) - 1 if self.limit is None else self.limit
        if last >= len(self.gaps):
            raise ValueError(f"limit is {last}, and the last of the gaps is {len(self.gaps) - 1}")
        for number, level in ((None, self), *self.levels.items()):
            if number is not None and not 0 <= number <= 15:
                raise ValueError(f"levels has {number!r}, which is no level from 0 to 15")
            where = "" if number is None else f"levels.{number}."
            for name in ("min", "trigger"):
                if (value := getattr(level, name) or 0) > last:
                    raise ValueError(f"{where}{name} is {value}, above the limit, {last}")


class Hpcc(Settings, tag="hpcc", tag_field="kind"):
    """High Precision Congestion Control (Li et al., SIGCOMM 2019).

    ``base_rtt``: a round trip in ps without queues.
    """

    base_rtt: Annotated[int, TIME, Meta(ge=1, le=10**12)]
    target: _Part = 0.95  # the defaults of these three are the paper's
    stages: Annotated[int, Meta(ge=0, le=2**31)] = 5
    add: Annotated[float, SIZE, Meta(ge=0, lt=1e15)] = 80
    notice_interval: _Time = 0


class Tcp(Settings):
    """TCP of flows. ``mss`` None stands for 1460, or the MTU if that is less; ``first_rto`` 0 for
    ``least_rto``."""

    mss: Annotated[int, SIZE, Meta(ge=64, le=4096)] | None = None
    initial_window: Annotated[int, Meta(ge=1, le=2**16)] = 10
    window: Annotated[int, SIZE, Meta(ge=1, le=2**31)] = 16 << 20
    first_rto: Annotated[int, TIME, Meta(ge=0, le=10**16)] = 0
    least_rto: Annotated[int, TIME, Meta(ge=1, le=10**15)] = 200 * 10**9
    most_rto: Annotated[int, TIME, Meta(ge=1, le=10**16)] | None = None
    retries: Annotated[int, Meta(ge=1, le=1000)] = 15
    ack_delay: Annotated[int, TIME, Meta(ge=0, le=5 * 10**11)] = 0
    dctcp_gain: _Part = 1 / 16
    ecn: bool = False
    jitter: Annotated[int, TIME, Meta(ge=0, le=10**12)] | None = None

    @property
    def longest_rto(self) -> int:
        return max(60 * 10**12, self.least_rto) if self.most_rto is None else self.most_rto

    def segment(self, mtu: int) -> int:
        """Return the bytes of a full segment."""
        return min(1460, mtu) if self.mss is None else self.mss

    def __post_init__(self) -> None:
        if self.longest_rto < self.least_rto:
            raise ValueError(f"most_rto is {self.most_rto}, below least_rto, {self.least_rto}")
        if self.first_rto > self.longest_rto:
            raise ValueError(f"first_rto is {self.first_rto}, above most_rto, {self.longest_rto}")


class Adapter(Settings):
    """The keys of [adapter]."""

    framing: Literal["bare", "ethernet", "infiniband"] = "ethernet"
    mtu: Annotated[Literal[256, 512, 1024, 2048, 4096], SIZE] = 4096
    timeout: Annotated[int, Meta(ge=0, le=31)] = 14
    retry_count: Annotated[int, Meta(ge=0, le=7)] = 7
    rd_atomic: Annotated[int, Meta(ge=1, le=128)] = 16
    window: Some = 1 << 20
    ack_bytes: Some = 1
    burst: Annotated[int, Meta(ge=1, le=2**16)] = 1
    notice_level: Level | None = 0
    hop_limit: Annotated[int, Meta(ge=0, le=255)] = 0
    recovery: Literal["go-back-n", "go-back-0"] = "go-back-n"


Congestion = Dcqcn | Cct | Hpcc


class HostSettings(Settings):
    """What each host's adapter may have of its own. World passes its own values for the others."""

    congestion: Congestion | None = None
    notice_level: Level | None = 0
    doorbell: _Delay = 0
    bus_rate: Annotated[int, Meta(ge=0, le=10**15)] = 0
    receive_latency: _Delay = 0


class WorldSettings(Adapter):
    """All keywords of World except the seed."""

    congestion: Congestion | None = None
    tcp: Tcp = field(default_factory=Tcp)
    sockets: Literal["control", "tcp"] = "control"
    doorbell: _Delay = 0
    bus_rate: Annotated[int, Meta(ge=0, le=10**15)] = 0
    receive_latency: _Delay = 0

    def __post_init__(self) -> None:
        segment = self.tcp.segment(self.mtu)
        if segment > self.mtu:
            raise ValueError(f"mss is {segment}, above the mtu, {self.mtu}")
        if self.tcp.window < segment:
            raise ValueError(f"window is {self.tcp.window}, below a segment, {segment}")


# ---- a switch -----------------------------------------------------------------------------------


class Mark(Settings):
    """Kmin, Kmax and Pmax of a queue that marks packets (RED)."""

    low: Bytes
    high: Some
    most: Annotated[float, Meta(ge=0, le=1)] = 1.0

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"high is {self.high}, which is less than low, {self.low}")


class Lane(Settings):
    """A lane of a switch's ports. ``go`` None stands for ``stop``."""

    flow: Flow = "lossy"
    room: Bytes = 0
    stop: Bytes = 0
    go: Bytes | None = None
    spare: Bytes = 0
    alpha: Annotated[float, Meta(ge=0, lt=1e9)] = 0.0
    mark: Annotated[Mark | None, unit("mark")] = None

    def __post_init__(self) -> None:
        if self.flow == "pauses" and self.stop and self.go is not None and self.go > self.stop:
            raise ValueError(f"go is {self.go}, above stop, {self.stop}")


class Watchdog(Settings):
    """A PFC watchdog. ``restore`` None stands for ``detect``."""

    detect: Annotated[int, TIME, Meta(ge=1, le=2**62)]
    restore: _Time | None = None
    action: Literal["drop", "forward"] = "drop"


class SwitchKeys(Settings):
    """The keywords of World.add_switch that [switch] has, too. ``buffer`` 0 is no limit."""

    buffer: Annotated[int, SIZE, Meta(ge=0, le=2**62)] = 0
    mark: Annotated[Mark | None, unit("mark")] = None
    cut_through: Annotated[int, SIZE, Meta(ge=0, le=65535)] = 0
    lifetime: _Time = 0
    fecn: Bytes = 0
    fecn_at: Literal["root", "output", "input"] = "root"
    fecn_rate: Annotated[int, Meta(ge=0, le=65535)] = 0
    fecn_victims: Annotated[Literal["hosts"] | list[_Port], unit("victims")] = field(
        default_factory=list
    )
    turns: Literal["input", "arrival"] = "input"
    watchdog: Annotated[Watchdog | None, unit("watchdog")] = None


class Switch(SwitchKeys, kw_only=True):
    """All keywords of World.add_switch. ``low`` None gives each lane a weight of 64."""

    ports: Annotated[int, Meta(ge=1, le=32767)]
    lanes: Annotated[list[Lane], Meta(max_length=LANES_MOST)] = field(default_factory=list)
    high: _Table = field(default_factory=list)
    low: _Table | None = None
    high_limit: Annotated[int, Meta(ge=0, le=255)] = 0
    remembers: bool = False
    balance: Literal["flow", "packet"] = "flow"
    management: Bytes = 0
    floods: bool = False

    @property
    def low_table(self) -> list[tuple[int, int]]:
        return [(lane, 64) for lane in range(len(self.lanes))] if self.low is None else self.low

    def __post_init__(self) -> None:
        lanes = len(self.lanes)
        table = (*self.high, *self.low_table)
        if wrong := [lane for lane, _ in table if lane >= lanes]:
            raise ValueError(f"an arbitration table has lane {wrong[0]}, and there are {lanes}")
        unserved = set(range(lanes)) - {lane for lane, weight in table if weight} - {15}
        if unserved:
            raise ValueError(f"no arbitration table has lane {min(unserved)} with a weight")
        if self.management and not 0 < lanes < LANES_MOST:
            raise ValueError(
                f"VL15 comes behind 1 to {LANES_MOST - 1} lanes, and there are {lanes}"
            )
        self._check_fecn()

    def _check_fecn(self) -> None:
        at, victims = self.fecn_at, self.fecn_victims
        ports = [] if isinstance(victims, str) else [port for port in victims if port >= self.ports]
        if ports:
            raise ValueError(f"a port of fecn_victims is {ports[0]}, and there are {self.ports}")
        if at == "input" and not self.lanes:
            raise ValueError("fecn_at is input: without lanes inputs have no buffers")
        if (self.fecn_rate or victims) and not self.fecn:
            raise ValueError(
                "fecn_rate and fecn_victims are about fecn, which is 0: nothing gets it"
            )
        if victims and at != "root":
            raise ValueError(f"fecn_victims is for fecn_at root: with {at} victims get it anyway")


# ---- what World calls ---------------------------------------------------------------------------


def _three(value: Any) -> Any:
    """Return (Kmin, Kmax, Pmax), which World takes as a mark, as a table."""
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        return value
    parts = list(value)
    if len(parts) != 3:
        raise ValueError(f"it has {len(parts)} values, and not the three of (Kmin, Kmax, Pmax)")
    return dict(zip(("low", "high", "most"), parts, strict=True))


UNITS: Units = {"mark": _three, "whole": int}


def world_settings(given: Mapping[str, Any]) -> WorldSettings:
    """Return World's keywords except the seed. Raises ValueError; TypeError for an unknown
    keyword."""
    tcp = given.get("tcp")
    return checked({**given, "tcp": {} if tcp is None else tcp}, WorldSettings)


def host_settings(given: Mapping[str, Any]) -> HostSettings:
    """Return those of World.add_host. Raises ValueError; TypeError for an unknown keyword."""
    return checked(given, HostSettings)


def switch_settings(given: Mapping[str, Any]) -> Switch:
    """Return those of World.add_switch. Raises ValueError; TypeError for an unknown keyword."""
    return checked(given, Switch)


def checked(given: Mapping[str, Any], kind: type[T]) -> T:
    """Return the structure of these keywords. Raises as ``world_settings`` does."""
    try:
        return read(_plain(given), kind, UNITS)
    except Refused as error:
        is_keyword = error.unknown is not None and not error.key
        raise (TypeError if is_keyword else ValueError)(_text(error)) from None


def _plain(value: Any) -> Any:
    """Return NumPy's numbers and arrays as Python's; structures are unchanged."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range | set | frozenset):
        return [_plain(item) for item in value]
    return value


def _text(error: Refused) -> str:
    name = ".".join(map(str, error.key))
    head = f"{name}{': ' if name else ''}"
    if error.unknown is not None:
        what = "key" if name else "keyword"
        known = ", ".join(sorted(error.names))
        hint = meant(error.unknown, error.names)
        return f"{head}unknown {what} {error.unknown}: {hint}there are {known}"
    if error.missing:
        choices = f": one of {', '.join(error.choices)}" if error.choices else ""
        return f"{name} needs {error.missing}{choices}"
    if error.says:
        return f"{head}{error.says}"
    value = repr(error.value)
    shown = value if len(value) <= 60 else f"{value[:57]}..."
    return f"{name} is {shown}, and not {' or '.join(filter(None, (_one_of(error), _noun(error))))}"


def _one_of(error: Refused) -> str:
    """Return the names that a value may be, as a phrase."""
    if len(error.names) == 1:
        return repr(next(iter(error.names)))
    return f"one of {', '.join(error.names)}" if error.names else ""


def _noun(error: Refused) -> str:
    """Return what a value may be in Python's words, in place of TOML's."""
    words = {
        "a table": "a dictionary",
        "true or false": "True or False",
        "text, in quotes": "a string",
    }
    noun = words.get(error.wanted, error.wanted)
    return noun.replace("list of tables", "list of dictionaries").replace("of texts", "of strings")
