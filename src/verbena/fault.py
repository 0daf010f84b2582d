# SPDX-License-Identifier: Apache-2.0
"""Fault rules: they drop, duplicate, reorder, delay, corrupt or truncate packets.

    from verbena import fault

    rules = fault.text(fault.Drop(chance=0.01), fault.Delay(0.002, opcode="read-response"), seed=7)
    fault.set_rules(context, rules)        # an open device, at run time
    print(fault.counters(context))

``verbena run --fault`` and the variable ``VERBENA_FAULT`` take the same text; docs/faults.md has
its grammar.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from numbers import Real
from typing import ClassVar, Protocol

from verbena import _fault_rules

__all__ = [
    "Corrupt",
    "Counter",
    "Delay",
    "Direction",
    "Drop",
    "Duplicate",
    "Reorder",
    "Rule",
    "Truncate",
    "check",
    "counters",
    "set_rules",
    "text",
]


_NUMBERS = {
    "chance": "from 0 to 1 (0.01 for 1%)",
    "within": "of seconds (0.002 for 2 ms)",
    "seconds": "of seconds (0.002 for 2 ms)",
    "most": "of seconds (0.002 for 2 ms)",
}


class Direction(StrEnum):
    """The direction of the packets that a rule applies to, seen from its process."""

    OUT = "out"
    IN = "in"
    BOTH = "both"


@dataclass(frozen=True)
class Rule:
    """The selectors that all rules have. A selector that is left out matches every packet.

    ``chance`` is from 0 to 1. ``qp`` is the number of this side's queue pair. ``psn`` is one
    sequence number or the first and last of a range. ``opcode`` is a name, a number or several of
    them (docs/faults.md lists the names). ``nth``: only the n-th packet that the other selectors
    match; ``every``: each n-th; ``limit``: at most so many packets.
    """

    _: KW_ONLY
    chance: float | None = None
    direction: Direction | str | None = None
    qp: int | None = None
    psn: int | tuple[int, int] | None = None
    opcode: str | int | Sequence[str | int] | None = None
    nth: int | None = None
    every: int | None = None
    limit: int | None = None

    verb: ClassVar[str]

    def __post_init__(self) -> None:
        for name, meaning in _NUMBERS.items():
            value = getattr(self, name, None)
            if value is not None and not isinstance(value, Real):
                raise TypeError(
                    f"{name} is a number, {meaning}, and not {value!r}; a rule as text is given"
                    " whole: 'drop 1%', 'delay 2ms'"
                )

    def __str__(self) -> str:
        return " ".join([self.verb, *self._own(), *self._selectors()])

    def _own(self) -> Iterator[str]:
        """The words that only this kind of rule has."""
        return iter(())

    def _selectors(self) -> Iterator[str]:
        if self.chance is not None:
            yield f"{_decimal(self.chance * 100)}%"
        if self.direction is not None:
            yield f"dir={self.direction}"
        if self.qp is not None:
            yield f"qp={self.qp}"
        if self.psn is not None:
            yield f"psn={_joined('-', self.psn)}"
        if self.opcode is not None:
            yield f"opcode={_joined(',', self.opcode)}"
        for name in ("nth", "every", "limit"):
            if (value := getattr(self, name)) is not None:
                yield f"{name}={value}"


@dataclass(frozen=True)
class Drop(Rule):
    """The packet is lost."""

    verb: ClassVar[str] = "drop"


@dataclass(frozen=True)
class Duplicate(Rule):
    """The packet is sent ``copies`` more times."""

    copies: int = 1

    verb: ClassVar[str] = "duplicate"

    def _own(self) -> Iterator[str]:
        yield f"copies={self.copies}"


@dataclass(frozen=True)
class Reorder(Rule):
    """The packet is held until ``by`` later ones of its queue pair have passed, ``within`` seconds
    at most."""

    by: int = 1
    within: float = 0.01

    verb: ClassVar[str] = "reorder"

    def _own(self) -> Iterator[str]:
        yield f"by={self.by}"
        yield f"within={_time(self.within)}"


@dataclass(frozen=True)
class Delay(Rule):
    """The packet is delayed by ``seconds``, or by a random time from ``seconds`` to ``most``."""

    seconds: float
    most: float | None = None

    verb: ClassVar[str] = "delay"

    def _own(self) -> Iterator[str]:
        most = "" if self.most is None else f"-{_time(self.most)}"
        yield f"{_time(self.seconds)}{most}"


@dataclass(frozen=True)
class Corrupt(Rule):
    """One bit is flipped: in byte ``at``, counted from the first of the BTH, or in a random byte.

    The ICRC does not change, so the receiver drops the packet. With ``good_icrc`` it is computed
    again, so that the receiver's engine gets the damaged packet.
    """

    at: int | None = None
    good_icrc: bool = False

    verb: ClassVar[str] = "corrupt"

    def _own(self) -> Iterator[str]:
        if self.at is not None:
            yield f"at={self.at}"
        if self.good_icrc:
            yield "icrc=good"


@dataclass(frozen=True)
class Truncate(Rule):
    """The packet is cut: after ``to`` bytes from the BTH on, or at a random place behind the BTH.

    ``good_icrc`` is as in Corrupt.
    """

    to: int | None = None
    good_icrc: bool = False

    verb: ClassVar[str] = "truncate"

    def _own(self) -> Iterator[str]:
        if self.to is not None:
            yield f"to={self.to}"
        if self.good_icrc:
            yield "icrc=good"


@dataclass(frozen=True)
class Counter:
    """How many packets a rule's selectors matched, and how many of them it changed."""

    rule: str
    matched: int
    acted: int


def text(*rules: Rule | str, seed: int | None = None, hold: int | None = None) -> str:
    """Return the rules as text, in their order.

    ``seed`` is the seed of all random choices; at most ``hold`` packets are held at once. Raises
    ValueError when a value is not valid.
    """
    settings = [f"seed {seed}"] if seed is not None else []
    settings += [f"hold {hold}"] if hold is not None else []
    made = "; ".join([*settings, *map(str, rules)])
    check(made)
    return made


def check(rules: str) -> None:
    """Raise ValueError, which names the wrong word, when `rules` is not the text of fault rules."""
    try:
        _fault_rules.parse(rules)
    except ValueError as error:
        raise ValueError(f"fault rules: {error}") from None


class Device(Protocol):
    """The methods of an open device (verbena.verbs.Context) that this module uses."""

    def set_fault(self, text: str) -> None: ...
    def fault_counters(self) -> str: ...


def set_rules(context: Device, *rules: Rule | str, seed: int | None = None) -> None:
    """Replace the rules of an open device; without rules packets pass unchanged.

    The rules do not apply to a peer on this host that is reached without packets, and a line on
    stderr says so. Raises ValueError as ``text``, and VerbsError(EOPNOTSUPP), with the reason, when
    the device sends no packets.
    """
    _check_device(context)
    context.set_fault(text(*rules, seed=seed))


def counters(context: Device) -> list[Counter]:
    """Return the counters of the open device's rules. Raises VerbsError(EOPNOTSUPP)."""
    _check_device(context)
    found = []
    for line in context.fault_counters().splitlines():
        rule, _, counts = line.rpartition(": matched ")
        if rule:
            matched, _, acted = counts.partition(", acted ")
            found.append(Counter(rule, int(matched), int(acted)))
    return found


def _check_device(context: object) -> None:
    if not hasattr(context, "set_fault"):
        raise TypeError(
            "fault rules are those of an open device: verbs.open_device() gives one, and this is"
            f" {type(context).__name__}"
        )


def _joined(separator: str, value: str | int | Sequence[str | int]) -> str:
    return str(value) if isinstance(value, str | int) else separator.join(map(str, value))


def _decimal(value: float) -> str:
    """Return a number without an exponent, with the nine decimal places of the grammar."""
    return f"{value:.9f}".rstrip("0").rstrip(".")


def _time(seconds: float) -> str:
    return f"{round(seconds * 1e9)}ns"
