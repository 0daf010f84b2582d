# SPDX-License-Identifier: Apache-2.0
"""Parses fault rules (docs/faults.md has the grammar) into the numbers that the library reads.

verbena.fault, verbena.launch and verbena.verbs call this. The library does not parse text:
vb_wrap_fault_read (wrap/fault_rules.h) checks the numbers, and its version and order of fields must
be the ones here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass

from verbena import _fault_opcodes

WORDS_VARIABLE = "VERBENA_FAULT"
RECORDS_VARIABLE = "VERBENA_FAULT_RECORDS"
VERSION = 1
RULES_MOST = 32
TEXT_MOST = 2047
HOLD = 1024
HOLD_MOST = 1 << 16
ALWAYS = 1 << 32  # a chance of 100 %
BITS_24 = (1 << 24) - 1
BITS_32 = (1 << 32) - 1
BITS_64 = (1 << 64) - 1
COPIES_MOST = 16
BTH = 12
PACKET_MOST = 64 + 4096 + 3  # all headers (VB_HEADERS_MAX), a payload and its pad
LONGEST = 60  # seconds
DIRECTIONS = {"out": 1, "in": 2, "both": 3}
UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
VERBS = ("drop", "duplicate", "reorder", "delay", "corrupt", "truncate")
SETTINGS = {
    "seed": (0, BITS_64, "seed is a number"),
    "hold": (1, HOLD_MOST, f"hold is a number of packets from 1 to {HOLD_MOST}"),
}

NUMBER = r"0[xX][0-9a-fA-F]+|[0-9]+"
DECIMAL = re.compile(rf"({NUMBER})(?:\.([0-9]{{1,9}}))?")
WORD = re.compile(r"[^ \t\n\v\f\r]+")  # what the C library's isspace() separates


class _Wrong(Exception):
    """A wrong word; the text says what is right in its place."""


@dataclass
class Rule:
    """One rule: the fields of struct vb_fault_rule. None means that a word was not given."""

    action: int  # in VERBS
    begin: int  # where its words are in the text
    end: int
    directions: int = DIRECTIONS["out"]
    qp: int | None = None
    psn: tuple[int, int] | None = None
    opcodes: _fault_opcodes.Chosen | None = None
    chance: int = ALWAYS
    nth: int = 0
    every: int = 0
    limit: int = 0
    delay: tuple[int, int] = (0, 0)  # ns
    by: int = 1
    within: int = 10 * UNITS["ms"]
    copies: int = 1
    at: int | None = None
    to: int | None = None
    good_icrc: bool = False

    def numbers(self) -> Iterator[int]:
        """Return its fields in the order of read_rule (wrap/fault_rules.c)."""
        chosen = self.opcodes or _fault_opcodes.Chosen()
        yield from (self.action, self.begin, self.end - self.begin, self.directions)
        yield from _optional(self.qp)
        yield from (self.psn is not None, *(self.psn or (0, 0)))
        yield from (self.opcodes is not None, *chosen.words(), chosen.answers)
        yield from (self.chance, self.nth, self.every, self.limit, *self.delay)
        yield from (self.by, self.within, self.copies)
        yield from _optional(self.at)
        yield from _optional(self.to)
        yield self.good_icrc


@dataclass
class Rules:
    """The rules and settings of one text."""

    text: str
    rules: list[Rule]
    seed: int = 1
    hold: int = HOLD

    def records(self) -> str:
        """Return what vb_wrap_fault_read reads: hexadecimal numbers, each followed by a space, then
        "|" and the text, in which the numbers give the place of each rule's words."""
        head = [VERSION, self.seed, self.hold, len(self.rules)]
        numbers = [*head, *(number for rule in self.rules for number in rule.numbers())]
        return "".join(f"{number:x} " for number in numbers) + f"|{self.text}"


def parse(text: str) -> Rules:
    """Parse a text. Raises ValueError, which names the wrong word and says what is right."""
    if "\0" in text:
        raise ValueError("a zero byte is no part of them")
    if len(text) > TEXT_MOST:
        raise _refusal(text[:20], f"rules of more than {TEXT_MOST} characters")
    found = Rules(text, [])
    for part in re.finditer("[^;]+", text):
        words = list(WORD.finditer(text, part.start(), part.end()))
        if words:
            _read_part(found, words)
    return found


def records(text: str) -> str:
    """Return a text as vb_wrap_fault_read reads it. Raises ValueError as parse()."""
    return parse(text).records()


def put_beside(environment: MutableMapping[str, str]) -> None:
    """Set VERBENA_FAULT_RECORDS from VERBENA_FAULT, or remove it if that is not set.

    Commands that start a program over Verbena call this, and a Python program does before the
    library reads its environment. If the rules are wrong, the variable has "!" and the message that
    the library prints on stderr; the program runs without rules, as with any other variable that is
    not understood.
    """
    text = environment.get(WORDS_VARIABLE)
    if not text:
        environment.pop(RECORDS_VARIABLE, None)
        return
    try:
        made = records(text)
    except ValueError as error:
        made = f"!{error}|{text}"
    if environment.get(RECORDS_VARIABLE) != made:
        environment[RECORDS_VARIABLE] = made


def _read_part(found: Rules, words: list[re.Match[str]]) -> None:
    first = words[0].group()
    if first in SETTINGS:
        _read_setting(found, [word.group() for word in words])
    elif first in VERBS:
        _read_rule(found, VERBS.index(first), words)
    else:
        known = [*VERBS, *SETTINGS]
        advice = f"a rule begins with {', '.join(known[:-1])} or {known[-1]}"
        raise _refusal(first, advice + _meant(first, known))


def _read_setting(found: Rules, words: list[str]) -> None:
    """ "seed 7", "hold 4096"."""
    name = words[0]
    least, most, advice = SETTINGS[name]
    if len(words) == 1:
        raise _refusal(name, "a number is missing")
    value = _number(words[1], most)
    if value is None or value < least:
        raise _refusal(words[1], advice)
    if len(words) > 2:
        raise _refusal(words[2], 'what separates rules is ";"')
    setattr(found, name, value)


def _read_rule(found: Rules, action: int, words: list[re.Match[str]]) -> None:
    verb = words[0].group()
    if len(found.rules) == RULES_MOST:
        raise _refusal(verb, f"more than {RULES_MOST} rules")
    rule = Rule(action, words[0].start(), words[-1].end())
    for word in words[1:]:
        try:
            _read_word(rule, word.group())
        except _Wrong as wrong:
            raise _refusal(word.group(), str(wrong)) from None
    if verb == "delay" and not rule.delay[1]:
        raise _refusal(verb, "how long? as in delay 2ms")
    found.rules.append(rule)


def _read_word(rule: Rule, word: str) -> None:
    verb = VERBS[rule.action]
    name, equal, value = word.partition("=")
    if equal:
        known = [option for option, (verbs, _) in OPTIONS.items() if verb in verbs]
        if name not in known:
            raise _Wrong(f"{verb} takes {', '.join(known)}{_meant(name, known)}")
        OPTIONS[name][1](rule, value)
    elif word.endswith("%"):
        rule.chance = _chance(word)
    elif verb == "delay" and not rule.delay[1]:
        rule.delay = _times(word)
    else:
        raise _Wrong("neither a chance (1%) nor a selector (opcode=ack)")


# ---- numbers ----------------------------------------------------------------------------------


def _number(word: str, most: int) -> int | None:
    """Decimal, or hexadecimal after 0x."""
    if not re.fullmatch(NUMBER, word):
        return None
    value = int(word, 16 if word[1:2] in ("x", "X") else 10)
    return value if value <= most else None


def _nano(word: str, most: int) -> int | None:
    """A number with up to nine places, in units of 1e-9."""
    found = DECIMAL.fullmatch(word)
    if not found:
        return None
    whole = _number(found[1], most)
    if whole is None:
        return None
    value = whole * 10**9 + int((found[2] or "").ljust(9, "0"))
    return value if value <= most * 10**9 else None


def _chance(word: str) -> int:
    nano = _nano(word[:-1], 100)
    if nano is None:
        raise _Wrong("a chance is from 0% to 100%, as in 0.1%")
    return nano * ALWAYS // (100 * 10**9)


def _time(word: str) -> int | None:
    """In ns."""
    for unit, ns in UNITS.items():
        if word.endswith(unit):
            nano = _nano(word.removesuffix(unit), LONGEST * 10**9 // ns)
            if nano is not None:
                return nano * ns // 10**9
    return None


def _range(word: str) -> tuple[str, str]:
    """ "a-b", or "a" for both."""
    first, dash, last = word.partition("-")
    return first, last if dash else first


def _times(word: str) -> tuple[int, int]:
    least, most = map(_time, _range(word))
    if least is None or not most or least > most:
        raise _Wrong("a delay is up to 60s or a range, as in 2ms, 50us or 1ms-5ms")
    return least, most


# ---- name=value -------------------------------------------------------------------------------


def _read_direction(rule: Rule, value: str) -> None:
    if value not in DIRECTIONS:
        raise _Wrong(f"dir is out, in or both{_meant(value, DIRECTIONS)}")
    rule.directions = DIRECTIONS[value]


def _read_qp(rule: Rule, value: str) -> None:
    rule.qp = _number(value, BITS_24)
    if rule.qp is None:
        raise _Wrong("qp is a number of 24 bits, as in qp=18 or qp=0x12")


def _read_psn(rule: Rule, value: str) -> None:
    first, last = (_number(word, BITS_24) for word in _range(value))
    if first is None or last is None:
        raise _Wrong("psn is a number of 24 bits or a range, as in psn=100-120")
    rule.psn = first, last


def _read_opcodes(rule: Rule, value: str) -> None:
    rule.opcodes = rule.opcodes or _fault_opcodes.Chosen()
    for name in value.split(","):
        number = _number(name, 255)
        if number is not None:
            rule.opcodes.add_number(number)
        elif not rule.opcodes.add_name(name):
            meant = _meant(name, _fault_opcodes.names())
            raise _Wrong(
                f'"{name[:40]}" is no opcode; there are {", ".join(_fault_opcodes.CLASSES)}, cnp,'
                f" names as rc-send-only, and numbers{meant}"
            )


def _reader_of_count(name: str, most: int) -> Callable[[Rule, str], None]:
    def read(rule: Rule, value: str) -> None:
        count = _number(value, most)
        if not count:
            raise _Wrong(f"a number from 1 to {most} is expected")
        setattr(rule, name, count)

    return read


def _read_within(rule: Rule, value: str) -> None:
    within = _time(value)
    if within is None:
        raise _Wrong("within is a time up to 60s, as in within=10ms")
    rule.within = within


def _read_at(rule: Rule, value: str) -> None:
    rule.at = _number(value, PACKET_MOST - 1)
    if rule.at is None:
        raise _Wrong("at is the place of a byte, counted from the BTH's first, 0")


def _read_to(rule: Rule, value: str) -> None:
    rule.to = _number(value, PACKET_MOST)
    if rule.to is None or rule.to < BTH:
        raise _Wrong(f"to is the length that is left, {BTH} or more: the BTH's")


def _read_icrc(rule: Rule, value: str) -> None:
    if value != "good":
        raise _Wrong("icrc=good is the only one; without it the ICRC is wrong")
    rule.good_icrc = True


# A name, the verbs that take it, and its reader.
OPTIONS: dict[str, tuple[Iterable[str], Callable[[Rule, str], None]]] = {
    "dir": (VERBS, _read_direction),
    "qp": (VERBS, _read_qp),
    "psn": (VERBS, _read_psn),
    "opcode": (VERBS, _read_opcodes),
    "nth": (VERBS, _reader_of_count("nth", BITS_32)),
    "every": (VERBS, _reader_of_count("every", BITS_32)),
    "limit": (VERBS, _reader_of_count("limit", BITS_32)),
    "by": (("reorder",), _reader_of_count("by", HOLD_MOST)),
    "within": (("reorder",), _read_within),
    "copies": (("duplicate",), _reader_of_count("copies", COPIES_MOST)),
    "at": (("corrupt",), _read_at),
    "to": (("truncate",), _read_to),
    "icrc": (("corrupt", "truncate"), _read_icrc),
}


# ---- helpers ----------------------------------------------------------------------------------


def _optional(value: int | None) -> tuple[int, int]:
    return (0, 0) if value is None else (1, value)


def _meant(word: str, known: Iterable[str]) -> str:
    """Return a hint for the message about an unknown word: the known word that is most like it."""
    near = difflib.get_close_matches(word[:40], list(known), 1)
    return f' (is "{near[0]}" meant?)' if near else ""


def _refusal(word: str, advice: str) -> ValueError:
    return ValueError(f'"{word[:60]}": {advice}')
