# SPDX-License-Identifier: Apache-2.0
"""TOML whose mistakes are named by key and line."""

from __future__ import annotations

import copy
import difflib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

__all__ = ["Document", "Key", "ScenarioError", "Section", "key_lines", "plain"]

Key = tuple[str | int, ...]
T = TypeVar("T")
U = TypeVar("U")
_AT_LINE = re.compile(r"(.*) \(at line (\d+), column \d+\)")
_REQUIRED: Any = object()


class ScenarioError(ValueError):
    """What is wrong with a scenario. ``key``: "switch.class.0.room"; ``line``: in its file."""

    def __init__(self, text: str, *, key: str = "", line: int | None = None) -> None:
        super().__init__(text)
        self.key = key
        self.line = line

    def __reduce__(self) -> tuple[Any, ...]:  # to come back from another process
        return (_error, (str(self), self.key, self.line))


def _error(text: str, key: str, line: int | None) -> ScenarioError:
    return ScenarioError(text, key=key, line=line)


@dataclass(frozen=True)
class Document:
    """Settings, and where they come from: lines of a file, or changes made afterwards."""

    name: str
    settings: Mapping[str, Any]
    lines: Mapping[Key, int] = field(default_factory=dict)
    changes: Mapping[Key, str] = field(default_factory=dict)  # whose a changed setting is

    @classmethod
    def parse(cls, text: str, name: str) -> Document:
        """Raises ScenarioError for what is no TOML."""
        try:
            settings = tomllib.loads(text)
        except RecursionError:
            raise ScenarioError(f"{name}: lists or tables are in each other too deeply") from None
        except ValueError as error:  # TOMLDecodeError, or a number of thousands of digits
            found = _AT_LINE.fullmatch(str(error))
            if found is None:
                raise ScenarioError(f"{name}: {error}") from None
            line = int(found[2])
            raise ScenarioError(f"{name}, line {line}: {found[1]}", line=line) from None
        return cls(name, settings, key_lines(text))

    def changed(self, changes: Mapping[str, Any], whose: str) -> Document:
        """With other values at keys like "switch.buffer" and "traffic.victim.size".

        Tables in lists are named by number or by their ``name``. Raises ScenarioError for a key
        whose table is not there.
        """
        settings = copy.deepcopy(dict(self.settings))
        made = dict(self.changes)
        for key, value in changes.items():
            made[_set(settings, key, value, whose)] = whose
        return Document(self.name, settings, self.lines, made)

    def where(self, key: Key) -> tuple[str, int | None]:
        """The place of a key, in words, and its line, or that of the table that it is in."""
        for length in range(len(key), -1, -1):
            if key[:length] in self.changes:
                return f"{self.name}, {self.changes[key[:length]]}", None
            if key[:length] in self.lines:
                line = self.lines[key[:length]]
                return f"{self.name}, line {line}", line
        return self.name, None

    def error(self, key: Key, text: str) -> ScenarioError:
        """``text`` goes on after the key's name."""
        place, line = self.where(key)
        dotted = ".".join(map(str, key))
        return ScenarioError(f"{place}: {f'{dotted} ' if key else ''}{text}", key=dotted, line=line)

    def root(self) -> Section:
        return Section(self, (), dict(self.settings))


def _set(settings: dict[str, Any], dotted: str, value: Any, whose: str) -> Key:
    """Where the value is now."""
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


def plain(value: Any) -> Any:
    """A copy, with NumPy's numbers and arrays as TOML would have them."""
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
    named = (n for n, item in enumerate(at) if isinstance(item, dict) and item.get("name") == part)
    return next(named, None)


class Section:
    """A table that is being read: each key is asked for once, and none may be left."""

    def __init__(self, document: Document, key: Key, table: dict[str, Any]) -> None:
        self.document = document
        self.key = key
        self.table = table
        self._asked: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self.table

    def take(self, name: str, kind: Callable[[Any], T], default: U = _REQUIRED) -> T | U:
        """The value of a key. ``kind`` makes it of what the file has, or raises ValueError with
        what comes after "it is X, which ...".
        """
        self._asked.append(name)
        if name not in self.table:
            if default is _REQUIRED:
                raise self.error(None, f"needs the key {name!r}")
            return default
        try:
            return kind(self.table[name])
        except ScenarioError:
            raise
        except ValueError as error:
            raise self.error(name, f"= {_shown(self.table[name])}: {error}") from None

    def section(self, name: str) -> Section:
        """A table; one that is not there is empty."""
        self._asked.append(name)
        found = self.table.get(name, {})
        if not isinstance(found, dict):
            raise self.error(
                name, f"= {_shown(found)}: it is to be a table, [{self._dotted(name)}]"
            )
        return Section(self.document, (*self.key, name), found)

    def sections(self, name: str) -> list[Section]:
        """A list of tables."""
        self._asked.append(name)
        found = self.table.get(name, [])
        if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
            raise self.error(name, f"is to be a list of tables, [[{self._dotted(name)}]]")
        return [Section(self.document, (*self.key, name, n), item) for n, item in enumerate(found)]

    def rest(self) -> dict[str, Any]:
        """What was not asked for; it counts as asked for then."""
        left = {name: value for name, value in self.table.items() if name not in self._asked}
        self._asked += left
        return left

    def close(self) -> None:
        """Raises ScenarioError for a key that nobody asked for."""
        for name in self.table:
            if name not in self._asked:
                close = difflib.get_close_matches(name, self._asked, 1)
                meant = f" (is {close[0]!r} meant?)" if close else ""
                where = f"in [{'.'.join(map(str, self.key))}]" if self.key else "here"
                raise self.error(
                    name,
                    f"is unknown{meant}: {where} may be {', '.join(sorted(set(self._asked)))}",
                )

    def error(self, name: str | None, text: str) -> ScenarioError:
        key = self.key if name is None else (*self.key, name)
        return self.document.error(key, text)

    def blame(self, error: ValueError) -> ScenarioError:
        """For the key that the error's text names, if it does, otherwise for the table."""
        words = re.findall(r"\w+", str(error))
        name = next((word for word in words if word in self.table), None)
        return self.error(name, f"is wrong: {error}")

    def _dotted(self, name: str) -> str:
        return ".".join(map(str, (*self.key, name)))


def _shown(value: Any) -> str:
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# ---- where keys are ------------------------------------------------------------------------------


def key_lines(text: str) -> dict[Key, int]:
    """The line of each key of a TOML document that tomllib takes; tables in lists by number."""
    return _Scanner(text).run()


class _Scanner:
    """Follows TOML's structure without looking at values."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n")
        self.at = 0
        self.line = 1
        self.lines: dict[Key, int] = {}
        self.counts: dict[Key, int] = {}  # tables of each list

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
        self.lines[key] = self.line
        self.at = self.text.index("]", self.at) + brackets
        return key

    def _pair(self, prefix: Key) -> None:
        key = prefix
        for part in self._keys():
            key = (*key, part)
            self.lines.setdefault(key, self.line)
        self.at += 1  # "="
        self._value(key)

    def _keys(self) -> Iterator[str]:
        """The parts of a dotted key, up to the character after it."""
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
        """Is there more before the bracket that closes this?"""
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
        while len(mark) == 3 and self.text.startswith(quote, self.at):  # """...a"""": its own
            self.at += 1

    def _spaces(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1

    def _blank(self) -> None:
        """Over space, ends of lines and comments."""
        while self.at < len(self.text) and self.text[self.at] in " \t\n#":
            if self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
                continue
            self.line += self.text[self.at] == "\n"
            self.at += 1
