# SPDX-License-Identifier: Apache-2.0
"""Checks of the arguments that the functions of ``verbena.sim`` take beside a World's keywords.

``run``, ``build``, ``Hosts`` and the functions for results and sweeps call these first, so that a
wrong argument is named where it was given. A type that cannot be meant is a TypeError, as for
other Python functions; a value that is not allowed is a ValueError.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, field
from numpy.typing import ArrayLike, NDArray

from verbena.sim._world import PKEYS_MOST
from verbena.sim.settings import Settings, meant, unit
from verbena.sim.world_settings import checked

__all__ = [
    "MOST_SECONDS",
    "RunSettings",
    "adapter_keywords",
    "check_programs",
    "framing_list",
    "path_of",
    "pkey_tables",
    "require",
    "run_settings",
    "switch_keywords",
    "unknown_name",
    "values_for",
    "whole_number",
]

MOST_SECONDS = 9_000_000  # 2**63 ps: World.run takes no later time
_Seconds = Annotated[float, unit("seconds"), Meta(ge=0, le=MOST_SECONDS)]
_Framing = Literal["bare", "ethernet", "infiniband"]


class RunSettings(Settings):
    """The arguments of ``sim.run`` that are plain values; times are in seconds."""

    until: _Seconds | None = None
    control_delay: _Seconds = 10e-6
    background: list[str] = field(default_factory=list)
    seed: Annotated[int, Meta(ge=0)] = 0


class _Framings(Settings):
    framing: list[_Framing]


def run_settings(**given: Any) -> RunSettings:
    """Return the checked arguments of ``sim.run``. Raises ValueError."""
    names = given["background"]
    if isinstance(names, str | bytes | Mapping) or not isinstance(names, Iterable):
        raise ValueError(f"background is {_shown(names)}, and not a list of hosts, as ['h0']")
    return checked({**given, "background": list(names)}, RunSettings)


def require(name: str, value: object, kinds: type | tuple[type, ...], what: str) -> None:
    """Raise TypeError if an argument is of another type; ``what`` says what is wanted."""
    if not isinstance(value, kinds):
        raise TypeError(f"{name} is {_shown(value)}, and not {what}")


def path_of(name: str, value: object) -> Path:
    """Return the path of a file or folder. Raises TypeError."""
    require(name, value, (str, PathLike), "the name of a file or folder")
    return Path(value)  # type: ignore[arg-type]


def whole_number(name: str, value: object, least: int, most: int) -> int:
    """Return the value as an int. Raises ValueError if it is not a whole number in the range."""
    number = value.item() if isinstance(value, np.generic) else value
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        allowed = f"a whole number from {least} to {most}" if least <= most else "there is none"
        raise ValueError(f"{name} is {_shown(value)}, and not {allowed}")
    return number


def _shown(value: object) -> str:
    """Return the value as an error shows it: short, or else by its type."""
    if value is None or isinstance(value, str | bytes | int | float | list | tuple | dict):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    if isinstance(value, type):
        return f"the class {value.__name__}"
    kind = type(value).__name__
    return f"{'an' if kind[:1] in 'AEIOUaeiou' else 'a'} {kind}"


def check_programs(programs: object) -> None:
    """Raise TypeError for programs that ``sim.run`` cannot start."""
    require("programs", programs, Mapping, "a dictionary, by host, as {'h0': server, 'h1': client}")
    assert isinstance(programs, Mapping)
    for name, program in programs.items():
        if not callable(program) and not hasattr(program, "send"):
            raise TypeError(
                f"the program of {name} is {_shown(program)}, and neither a function (async def) "
                "without arguments nor a coroutine"
            )


def switch_keywords(name: str, given: object) -> dict[str, Any]:
    """Return keywords of World.add_switch but for ``ports``. Raises TypeError, ValueError."""
    if given is None:
        return {}
    example = "a dictionary of the keywords of World.add_switch, as {'buffer': 65536}"
    require(name, given, Mapping, example)
    assert isinstance(given, Mapping)
    for key in given:
        require(f"a key of {name}", key, str, "a keyword of World.add_switch")
    if "ports" in given:
        raise ValueError(
            f"{name}: leave ports out: a switch has the ports that the fabric gives it"
        )
    return dict(given)


def adapter_keywords(given: object, names: Sequence[str]) -> dict[int, dict[str, Any]]:
    """Return keywords of World.add_host by the number of a host; the given keys are names.

    Raises TypeError, ValueError.
    """
    example = "a dictionary by the name of a host, as {'h0': {'bus_rate': 10**10}}"
    require("adapters", {} if given is None else given, Mapping, example)
    found: dict[int, dict[str, Any]] = {}
    for name, keywords in (given or {}).items():  # type: ignore[attr-defined]
        if name not in names:
            raise ValueError(f"adapters: {unknown_name('host', name, names)}")
        require(f"adapters[{name!r}]", keywords, Mapping, "a dictionary of keywords of add_host")
        if "framing" in keywords:
            raise ValueError(f"adapters[{name!r}]: framing is a keyword of its own")
        found[names.index(name)] = dict(keywords)
    return found


def framing_list(given: object, ports: int, widest: str) -> list[str] | None:
    """Return the framing of each port of a host. Raises ValueError.

    ``ports``: how many ports the host with the most of them has, whose name is ``widest``.
    """
    if given is None:
        return None
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise ValueError(
            f"framing is {_shown(given)}, and not a list with one of bare, ethernet, infiniband "
            "for each port of a host"
        )
    found = [str(each) for each in checked({"framing": list(given)}, _Framings).framing]
    if len(found) != ports:
        raise ValueError(
            f"framing has {_counted(len(found), 'entry', 'entries')}, and {widest} has "
            f"{_counted(ports, 'port', 'ports')}: give one for each port"
        )
    return found


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def pkey_tables(name: str, given: object, ports: int) -> tuple[tuple[int, ...], ...]:
    """Return the P_Key table of each port of a host. Raises ValueError.

    ``given``: one table, which all ports have, or a list with one for each port.
    """
    head = f"pkeys of {name}"
    listed = not isinstance(given, str | bytes | Mapping) and isinstance(given, Iterable)
    if not listed:
        raise ValueError(
            f"{head} is {_shown(given)}, and not a list of P_Keys, as [0xffff, 0x8001], or one "
            "such list for each port"
        )
    tables: list[Any] = list(given)  # type: ignore[call-overload]
    if not any(isinstance(one, list | tuple | np.ndarray) for one in tables):
        tables = [tables] * ports
    elif len(tables) != ports:
        raise ValueError(
            f"{head}: {_counted(len(tables), 'table', 'tables')}, and the host has "
            f"{_counted(ports, 'port', 'ports')}"
        )
    for table in tables:
        require(f"a table in {head}", table, (list, tuple, np.ndarray), "a list of P_Keys")
    return tuple(_pkey_table(name, list(table)) for table in tables)


def _pkey_table(name: str, table: list[Any]) -> tuple[int, ...]:
    head = f"pkeys of {name}"
    keys = [whole_number(f"a P_Key of {name}", key, 1, 0xFFFF) for key in table]
    if not 0 < len(keys) <= PKEYS_MOST:
        raise ValueError(f"{head}: a port has 1 to {PKEYS_MOST} P_Keys, and not {len(keys)}")
    if nowhere := [key for key in keys if not key & 0x7FFF]:
        raise ValueError(f"{head}: {nowhere[0]:#x} is of partition 0, which no port is in")
    return tuple(keys)


def values_for(
    name: str, given: ArrayLike, count: int, each: str, whole: bool = False
) -> NDArray[Any]:
    """Return [count] numbers, from one for all or from one for each. Raises ValueError.

    ``each`` is what there are ``count`` of, for the error's text.
    """
    values = np.asarray(given)
    noun = "whole number" if whole else "number"
    if values.dtype.kind not in ("iu" if whole else "iuf"):
        raise ValueError(f"{name} is {_shown(given)}, and not a {noun}, or one for each {each}")
    if values.ndim > 1 or values.size not in (1, count):
        raise ValueError(
            f"{name} has the shape {values.shape}: it is to be one {noun}, or one for each of the "
            f"{count} {each}s"
        )
    return np.broadcast_to(values, count)


def unknown_name(what: str, value: object, names: Sequence[str] | Collection[str]) -> str:
    """Return the text of an error about a name that is not among the names."""
    some = list(names)[:8]
    more = f", and {len(names) - 8} more" if len(names) > 8 else ""
    hint = meant(value, names)
    return f"there is no {what} {_shown(value)}: {hint}there are {', '.join(some) or 'none'}{more}"
