# SPDX-License-Identifier: Apache-2.0
"""A TOML document whose errors name the key and the line.

``Scenario`` reads its file as a ``Document`` and each table as a ``Section``. tomllib does not say
where a value stood, so ``key_lines`` scans the text a second time for the lines of the keys.
Settings may be changed after the file was read (``--set``, variants, sweeps): errors then name the
change in place of the line. Every error of a scenario is a ScenarioError.
"""

from __future__ import annotations

import copy
import difflib
import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any, TypeVar

import numpy as np

from verbena.sim.settings import Key, Refused, Units, meant, read
from verbena.sim.units import bytes_of, picoseconds

__all__ = [
    "UNITS", "Document", "ScenarioError", "Section", "key_lines", "names_of", "plain", "toml_text",
]  # fmt: skip

T = TypeVar("T")
LONGEST = 10**16  # ps, which are 10000 s
_AT_LINE = re.compile(r"(.*) \(at line (\d+), column \d+\)")


class ScenarioError(ValueError):
    """A scenario is wrong. ``key`` is the dotted key, "switch.class.0.room"; ``line`` its line, or
    None."""

    def __init__(self, text: str, *, key: str = "", line: int | None = None) -> None:
        super().__init__(text)
        self.key = key
        self.line = line

    def __reduce__(self) -> tuple[Any, ...]:  # for pickle, which does not keep keyword arguments
        return (_error, (str(self), self.key, self.line))


def _error(text: str, key: str, line: int | None) -> ScenarioError:
    return ScenarioError(text, key=key, line=line)


@dataclass(frozen=True)
class Document:
    """Settings, the lines of the file that they come from, and the changes that were made
    afterwards."""

    name: str
    settings: Mapping[str, Any]
    lines: Mapping[Key, int] = field(default_factory=dict)
    changes: Mapping[Key, str] = field(default_factory=dict)  # where each change comes from
    variant: str = ""  # the variants that were applied

    @classmethod
    def parse(cls, text: str, name: str) -> Document:
        """Read the text of a TOML file. Raises ScenarioError for text that is not TOML."""
        try:
            settings = tomllib.loads(text)
        except RecursionError:
            raise ScenarioError(f"{name}: lists or tables are in each other too deeply") from None
        except ValueError as error:  # TOMLDecodeError, or a number of thousands of digits
            found = _AT_LINE.fullmatch(str(error))
            if found is None:
                raise ScenarioError(f"{name}: {error}") from None
            line = int(found[2])
            if (twice := _repeated(text, line)) is not None:
                key, first, line = twice
                dotted = ".".join(map(str, key))
                raise ScenarioError(
                    f"{name}, line {line}: {dotted} is there twice: line {first} has it already",
                    key=dotted,
                    line=line,
                ) from None
            raise ScenarioError(f"{name}, line {line}: {found[1]}", line=line) from None
        return cls(name, settings, key_lines(text))

    def changed(self, changes: Mapping[str, Any], whose: str) -> Document:
        """Return the document with other values at dotted keys: "switch.buffer",
        "traffic.victim.size".

        A table of a list is addressed by its number or by the name that ``names_of`` gives it.
        ``whose`` says in errors where the changes come from. Raises ScenarioError for a key whose
        table does not exist.
        """
        settings = copy.deepcopy(dict(self.settings))
        made = dict(self.changes)
        for key, value in changes.items():
            place = _set(settings, key, value, whose)
            made = {old: by for old, by in made.items() if old[: len(place)] != place}
            made[place] = whose
        return replace(self, settings=settings, changes=made)

    def varied(self, name: object) -> Document:
        """Return the document with the settings of a variant. Raises ScenarioError for an unknown
        variant."""
        variants = self.settings.get("variants", {})
        if not isinstance(name, str) or name not in variants:
            known = ", ".join(variants) or "none"
            given = toml_text(name) if isinstance(name, str) else repr(name)
            raise ScenarioError(
                f"{self.name}: no variant {given}: {meant(name, variants)}there are {known}"
            )
        both = f"{self.variant}, {name}" if self.variant else name
        return replace(self.changed(variants[name], f"variant {name}"), variant=both)

    def changed_values(self) -> dict[str, Any]:
        """Return by dotted key the values that were changed, without those that the variant
        changed."""
        return {
            ".".join(map(str, key)): plain(_at(self.settings, key))
            for key, whose in self.changes.items()
            if not whose.startswith("variant ")
        }

    def resolved(self) -> dict[str, Any]:
        """Return the settings with all changes, without [variants], which have been applied."""
        return {key: plain(value) for key, value in self.settings.items() if key != "variants"}

    def where(self, key: Key) -> tuple[str, int | None]:
        """Return the place of a key as text, and its line or else the line of the table that
        contains it.

        If settings were changed, the text also names the changes: the line was right before them.
        """
        for length in range(len(key), -1, -1):
            if key[:length] in self.changes:
                return f"{self.name}, {self.changes[key[:length]]}", None
            if key[:length] in self.lines:
                line = self.lines[key[:length]]
                return ", ".join([self.name, f"line {line}", *self._changed_by()]), line
        return ", ".join([self.name, *self._changed_by()]), None

    def _changed_by(self) -> list[str]:
        """Return where changes come from, with the changed keys: "with --set (switch.buffer)"."""
        keys: dict[str, list[str]] = {}
        for key, whose in self.changes.items():
            keys.setdefault(whose, []).append(".".join(map(str, key)))
        return [
            whose if whose.startswith("with ") else f"with {whose} ({', '.join(changed)})"
            for whose, changed in keys.items()
        ]

    def error(self, key: Key, text: str) -> ScenarioError:
        """Return the error for a key. ``text`` continues the sentence that begins with the key."""
        place, line = self.where(key)
        dotted = ".".join(map(str, key))
        return ScenarioError(f"{place}: {f'{dotted} ' if key else ''}{text}", key=dotted, line=line)

    def root(self) -> Section:
        return Section(self, (), dict(self.settings))


def _set(settings: dict[str, Any], dotted: str, value: Any, whose: str) -> Key:
    """Store the value at a dotted key, and return the key's parts."""
    parts = dotted.split(".")
    at: Any = settings
    key: list[str | int] = []
    for part in parts[:-1]:
        step = _step(at, part)
        if step is None and isinstance(at, dict):
            at[part] = {}
            step = part
        if step is None or not isinstance(at[step], dict | list):
            raise ScenarioError(f"{whose}: there is no {part!r} for {dotted}", key=dotted)
        key.append(step)
        at = at[step]
    last = _step(at, parts[-1]) if isinstance(at, list) else parts[-1]
    if last is None:
        raise ScenarioError(f"{whose}: there is no {parts[-1]!r} for {dotted}", key=dotted)
    at[last] = plain(value)
    return (*key, last)


def _at(settings: Any, key: Key) -> Any:
    """Return the value at a key."""
    for part in key:
        settings = settings[part]
    return settings


def plain(value: Any) -> Any:
    """Return a copy in which NumPy's numbers and arrays are Python's, as TOML could express
    them."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return copy.deepcopy(value)


def _step(at: Any, part: str) -> str | int | None:
    if isinstance(at, dict):
        return part if part in at else None
    if part.isdecimal() and int(part) < len(at):
        return int(part)
    names = names_of(at)
    return names.index(part) if part in names else None


def names_of(tables: list[Any]) -> list[str | None]:
    """Return the name of each table of a list: its ``name``, or else its ``pattern``.

    Names that are given take precedence. If a pattern's name is taken, a number is appended:
    "shift", "shift-2". A table with neither a name nor a pattern has None.
    """
    names = [_text_of(table, "name") for table in tables]
    for number, table in enumerate(tables):
        pattern = _text_of(table, "pattern")
        if names[number] is None and pattern is not None:
            others = (f"{pattern}-{n}" for n in count(2))
            names[number] = next(each for each in chain([pattern], others) if each not in names)
    return names


def _text_of(table: Any, key: str) -> str | None:
    """Return the value of a key if it is text; values of other types are refused when they are
    read."""
    value = table.get(key) if isinstance(table, dict) else None
    return value if isinstance(value, str) else None


# ---- units ---------------------------------------------------------------------------------------


def _time(value: object) -> int:
    """Return a time in ps, from 0 to LONGEST. Raises ValueError."""
    try:
        found = picoseconds(value)
    except ValueError as error:
        raise ValueError(f"it {error}") from None
    if found < 0:
        raise ValueError("it is negative: times and delays are 0 or more, and a run begins at 0")
    if found > LONGEST:
        raise ValueError("it is more than 10000 s")
    return found


def _size(value: object) -> int:
    try:
        return bytes_of(value)
    except ValueError as error:
        raise ValueError(f"it {error}") from None


def _rate(value: Any) -> Any:
    """Return a fabrics.Rate, from text with a unit or from the name of a rate. Raises
    ValueError."""
    from verbena import fabrics

    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise ValueError('it is to be a rate, as in "100GbE" or "4xHDR"')
    return fabrics.rate(value)  # type: ignore[arg-type]  # which says what a number lacks


UNITS: Units = {
    "time": _time,
    "size": _size,
    "rate": _rate,
    "bits": lambda value: float(_rate(value).bits_per_second),
    "many": lambda value: value if isinstance(value, list) else [value],
    "mark": lambda value: value or None,  # an empty table stands for none
    "watchdog": lambda value: value or None,
    "victims": lambda value: value if isinstance(value, list | str) else [value],
}


# ---- tables --------------------------------------------------------------------------------------

# Words of other tools, and of the Python API, with the keys of scenarios that they stand for.
_SAME = {
    "target": ("to", "receiver"),
    "targets": ("to",),
    "destination": ("to", "receiver"),
    "dst": ("to", "receiver"),
    "sink": ("to", "receiver"),
    "source": ("from",),
    "sources": ("from", "senders"),
    "src": ("from",),
    "sender": ("from", "senders"),
    "bytes": ("size",),
    "length": ("size", "length_m"),
    "bandwidth": ("rate",),
    "speed": ("rate",),
    "latency": ("delay",),
    "count": ("repeat", "hosts"),
    "interval": ("every",),
    "priority": ("class",),
    "level": ("class",),
    "type": ("pattern", "topology", "engine", "kind"),
    "algorithm": ("engine", "control", "kind"),
}


def _close(name: str, known: list[str]) -> list[str]:
    """Return the keys that an unknown key may stand for: synonyms first, or else a similar
    spelling."""
    same = [other for other in _SAME.get(name, ()) if other in known]
    return same or difflib.get_close_matches(name, known, 1)


class Section:
    """One table of a document, and the table's key."""

    def __init__(self, document: Document, key: Key, table: dict[str, Any]) -> None:
        self.document = document
        self.key = key
        self.table = table

    def __contains__(self, name: str) -> bool:
        return name in self.table

    def read(self, kind: type[T], more: Units | None = None) -> T:
        """Return the table as a structure of this kind.

        ``more``: functions for units besides ``UNITS``. Raises ScenarioError with the key and with
        what was expected there.
        """
        try:
            return read(self.table, kind, {**UNITS, **(more or {})})
        except Refused as refused:
            raise self._error_of(refused) from None

    def section(self, name: str) -> Section:
        """Return a table within this one, which has been read before; an absent table is empty."""
        return Section(self.document, (*self.key, name), self.table.get(name, {}))

    def sections(self, name: str) -> list[Section]:
        """Return the tables of a list within this one, which has been read before."""
        return [
            Section(self.document, (*self.key, name, number), table)
            for number, table in enumerate(self.table.get(name, []))
        ]

    def error(self, name: str | None, text: str) -> ScenarioError:
        key = self.key if name is None else (*self.key, name)
        return self.document.error(key, text)

    def blame(self, error: ValueError) -> ScenarioError:
        """Return the error for the key that the text of ``error`` mentions, or else for the
        table."""
        words = re.findall(r"\w+", str(error))
        name = next((word for word in words if word in self.table), None)
        return self.error(name, f"is wrong: {error}")

    def missing(self, name: str, keys: Collection[str] = ()) -> ScenarioError:
        """Return the error for a key that is required.

        ``keys`` are the keys that the table may have: a key beside them may be a misspelling.
        """
        other = next((key for key in self.table if name in _SAME.get(key, ())), None)
        if other is not None:
            return self.error(other, f"is unknown (is {name!r} meant?)")
        surplus = [key for key in self.table if key not in keys]
        for near in difflib.get_close_matches(name, surplus, 1, 0.7):
            return self.error(near, f"is unknown, and {name!r} is missing (is that meant?)")
        return self.error(None, f"needs the key {name!r}")

    def _unknown(self, name: str, refused: Refused) -> ScenarioError:
        if refused.needed:
            return self.missing(next(iter(refused.needed)), refused.names)
        close = _close(name, list(refused.names))
        meant = f" (is {' or '.join(map(repr, close))} meant?)" if close else ""
        where = f"in [{'.'.join(map(str, self.key))}]" if self.key else "here"
        return self.error(
            name, f"is unknown{meant}: {where} may be {', '.join(sorted(refused.names))}"
        )

    def _error_of(self, refused: Refused) -> ScenarioError:
        key, value = (*self.key, *refused.key), refused.value
        if isinstance(value, Mapping):
            place = Section(self.document, key, dict(value))
            if refused.unknown is not None:
                return place._unknown(refused.unknown, refused)
            if refused.missing:
                return place.missing(refused.missing, refused.names)
            if refused.says:
                return place.blame(refused)
        if refused.wanted != "a table":
            while isinstance(key[-1], int) and not isinstance(
                value, Mapping
            ):  # an element of a list
                key = key[:-1]
        return self.document.error(key, _said(key, value, refused))


def _said(key: Key, value: Any, refused: Refused) -> str:
    """Return the part of an error's text that follows the name of the key."""
    dotted = ".".join(part for part in key if isinstance(part, str))
    if refused.wanted.startswith("a list of tables"):
        return f"is to be {refused.wanted}, [[{dotted}]]"
    if refused.names:
        more = f", or {refused.wanted}" if refused.wanted else ""
        text = f"{meant(value, refused.names)}there are {', '.join(refused.names)}{more}"
    else:
        text = refused.says or f"it is to be {refused.wanted}"
    if value is None:
        return f"has no value: {text}; without the key its default holds"
    table = f", [[{dotted}]]" if isinstance(key[-1], int) else f", [{dotted}]"
    more = table if refused.wanted == "a table" else ""
    return f"= {toml_text(value)}: {text}{more}"


def toml_text(value: object, most: int = 60) -> str:
    """Return a value as a TOML file has it, cut to so many characters: "10 us", true, [1, 2].

    TOML has nothing for None, which a Python program may give: it is "no value".
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None:
        return "no value"
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
    elif isinstance(value, Mapping):
        pairs = (f"{key} = {toml_text(item)}" for key, item in value.items())
        text = f"{{{', '.join(pairs)}}}"
    elif isinstance(value, list | tuple):
        text = f"[{', '.join(map(toml_text, value))}]"
    else:
        text = str(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


# ---- where keys are ------------------------------------------------------------------------------


def key_lines(text: str) -> dict[Key, int]:
    """Return the line of each key of a valid TOML document. Tables of lists are addressed by
    number."""
    return _Scanner(text).run()


def _repeated(text: str, line: int) -> tuple[Key, int, int] | None:
    """Return the first key that is given twice, with both lines.

    ``line`` is where tomllib found the repetition; up to it the text is otherwise valid.
    """
    scanner = _Scanner("\n".join(text.splitlines()[:line]) + "\n")
    with suppress(IndexError, ValueError):  # the text ends within a value
        scanner.run()
    return scanner.repeated


class _Scanner:
    """Follows the structure of TOML, without interpreting the values.

    ``repeated`` is the first key or table that the document has given before, with both lines.
    """

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n")
        self.at = 0
        self.line = 1
        self.lines: dict[Key, int] = {}
        self.counts: dict[Key, int] = {}  # how many tables each list has so far
        self.given: dict[Key, int] = {}  # the lines of keys with values and of tables with a header
        self.repeated: tuple[Key, int, int] | None = None

    def run(self) -> dict[Key, int]:
        prefix: Key = ()
        self._blank()
        while self.at < len(self.text):
            if self.text.startswith("[[", self.at):
                prefix = self._header(2)
            elif self.text[self.at] == "[":
                prefix = self._header(1)
            else:
                self._pair(prefix)
            self._blank()
        return self.lines

    def _header(self, brackets: int) -> Key:
        self.at += brackets
        key: Key = ()
        parts = list(self._keys())
        for part in parts[:-1]:
            key = (*key, part)
            self.lines.setdefault(key, self.line)
            if key in self.counts:
                key = (*key, self.counts[key] - 1)
        key = (*key, parts[-1])
        if brackets == 2:
            self.lines.setdefault(key, self.line)
            number = self.counts.get(key, 0)
            self.counts[key] = number + 1
            key = (*key, number)
        else:
            self._give(key)
        self.lines[key] = self.line
        self.at = self.text.index("]", self.at) + brackets
        return key

    def _pair(self, prefix: Key) -> None:
        key = prefix
        for part in self._keys():
            key = (*key, part)
            self.lines.setdefault(key, self.line)
        self._give(key)
        self.at += 1  # "="
        self._value(key)

    def _give(self, key: Key) -> None:
        """Record that a key has its value here, or a table its header."""
        if key in self.given and self.repeated is None:
            self.repeated = key, self.given[key], self.line
        self.given.setdefault(key, self.line)

    def _keys(self) -> Iterator[str]:
        """Yield the parts of a dotted key, and stop at the character that follows it."""
        while True:
            self._spaces()
            if self.text[self.at] in "\"'":
                start = self.at
                self._string()
                yield self.text[start + 1 : self.at - 1]
            else:
                found = re.compile(r"[A-Za-z0-9_-]*").match(self.text, self.at)
                assert found is not None
                self.at = found.end()
                yield found[0]
            self._spaces()
            if self.at >= len(self.text) or self.text[self.at] != ".":
                return
            self.at += 1

    def _value(self, key: Key) -> None:
        self._blank()
        first = self.text[self.at]
        if first in "\"'":
            self._string()
        elif first in "[{":
            (self._list if first == "[" else self._inline)(key)
        else:
            found = re.compile(r"[^,\]}#\n]*").match(self.text, self.at)
            assert found is not None
            self.at = found.end()

    def _list(self, key: Key) -> None:
        self.at += 1
        number = 0
        while self._before("]"):
            if self.text[self.at] == ",":
                self.at += 1
                continue
            self.lines[(*key, number)] = self.line
            self._value((*key, number))
            number += 1
        self.at += 1

    def _inline(self, key: Key) -> None:
        self.at += 1
        while self._before("}"):
            if self.text[self.at] == ",":
                self.at += 1
            else:
                self._pair(key)
        self.at += 1

    def _before(self, end: str) -> bool:
        """Return whether the list or table that is being read continues."""
        self._blank()
        return self.text[self.at] != end

    def _string(self) -> None:
        quote = self.text[self.at]
        mark = quote * 3 if self.text.startswith(quote * 3, self.at) else quote
        self.at += len(mark)
        while not self.text.startswith(mark, self.at):
            step = 2 if self.text[self.at] == "\\" and quote == '"' else 1
            self.line += self.text.count("\n", self.at, self.at + step)
            self.at += step
        self.at += len(mark)
        while len(mark) == 3 and self.text.startswith(
            quote, self.at
        ):  # """...a"""": up to two quotes before the end belong to the text
            self.at += 1

    def _spaces(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1

    def _blank(self) -> None:
        """Skip blanks, ends of lines and comments."""
        while self.at < len(self.text) and self.text[self.at] in " \t\n#":
            if self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
                continue
            self.line += self.text[self.at] == "\n"
            self.at += 1
