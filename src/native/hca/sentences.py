# SPDX-License-Identifier: Apache-2.0
"""Make from sentences.toml what the core says of failed requests, and docs/errors.md of the checks.

scripts/native_sources.py writes checks.h, sentences_table.h and the page's table, and sees in
`make lint` whether they are out of date.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "errors.md"
LICENCE = "SPDX-License-Identifier: Apache-2.0"
NOTE = "Made by sentences.py from sentences.toml."
# The tables of the page, each between two such lines.
BEGIN_MARK = "<!-- {}: made by src/native/hca/sentences.py -->\n"
END_MARK = "<!-- end of {} -->"
FACTS_LIMIT = 32  # bits of the records' masks
OTHERS_FROM = 0x100  # above every check
# Tables of what a number in a record means, by the enum VB_NAME_… that it is of.
NUMBERED = ("BIND", "HEARD", "SILENCE", "LOST")
NUMBERED_FROM, NUMBERED_STEP = 0x400, 0x80  # above the bit for advice
ADVICE = "VB_SENTENCE_ADVICE"

LETTERS = "xstvarwgucpPdyzbhqQlL"  # sentences.h and decline.h say what they mean
TAG = re.compile(rf"\{{(?:(if not |if )([a-z_]+)|(else|end)|([a-z_]+)(?::([{LETTERS}]))?)\}}")
# What the page shows for a placeholder: words for its letter, else the field's name.
SHOWN = {
    "wr_opcode": "*operation*",
    "peer_qp_num": "*peer*",
    "qp_num": "*QP*",
    "wanted": "*access*",
    "next_state": "*state*",
    "count:c": "what its code may mean",
    "count:t": "*type*",
    "count:s": "*state*",
    "count:d": "how they differ",
    "count:P": "*sender's*",
    "count:p": "*receiver's*",
    "count:z": "*this version*",
}


@dataclass(frozen=True)
class Piece:
    """Text that is said where all facts of `yes` hold and none of `no`."""

    yes: frozenset[str]
    no: frozenset[str]
    text: str


class Table:
    """sentences.toml, with the parts of its sentences put in."""

    def __init__(self, path: Path = HERE / "sentences.toml") -> None:
        data = tomllib.loads(path.read_text())
        self.facts: dict[str, str] = data["facts"]
        self.parts: dict[str, str] = data["parts"]
        self.checks: dict[str, dict[str, Any]] = data["check"]
        self.others: dict[str, dict[str, Any]] = data["other"]
        self.numbered: dict[str, dict[str, dict[str, str]]] = {n: data[n] for n in NUMBERED}
        if len(self.facts) > FACTS_LIMIT:
            raise ValueError(f"sentences.toml has {len(self.facts)} facts; {FACTS_LIMIT} have bits")

    def whole(self, text: str) -> str:
        """The sentence with its parts, and theirs."""
        while (found := re.search(r"\{part:([a-z_]+)\}", text)) is not None:
            if found[1] not in self.parts:
                raise ValueError(f"{found[1]} is no part, in: {text}")
            text = text.replace(found[0], self.parts[found[1]])
        return text

    def pieces(self, text: str) -> list[Piece]:
        """The sentence as pieces without conditions inside. Raises ValueError if it is none."""
        stack: list[tuple[str, bool]] = []
        pieces: list[Piece] = []
        at, whole = 0, self.whole(text)
        if set(TAG.sub("", whole)) & {"{", "}"}:
            raise ValueError(f"a brace that is no field, fact or part, in: {text}")
        for tag in TAG.finditer(whole):
            if tag[4]:
                continue  # a field: it stays in the text
            kind, name = tag[1], tag[2]
            self._add(pieces, stack, whole[at : tag.start()])
            at = tag.end()
            if kind:
                if name not in self.facts:
                    raise ValueError(f"{name} is no fact, in: {text}")
                stack.append((name, kind == "if "))
            elif not stack:
                raise ValueError(f"{tag[0]} without an {{if}}, in: {text}")
            else:
                fact, wanted = stack.pop()
                if tag[3] == "else":
                    stack.append((fact, not wanted))
        self._add(pieces, stack, whole[at:])
        if stack:
            raise ValueError(f"{{if {stack[-1][0]}}} has no {{end}}, in: {text}")
        return pieces

    @staticmethod
    def _add(pieces: list[Piece], stack: list[tuple[str, bool]], text: str) -> None:
        yes = frozenset(fact for fact, wanted in stack if wanted)
        no = frozenset(fact for fact, wanted in stack if not wanted)
        if text and not yes & no:
            pieces.append(Piece(yes, no, text))

    def values(self) -> dict[str, int]:
        """The number of each check: its own, or the next."""
        numbers: dict[str, int] = {}
        number = 0
        for name, check in self.checks.items():
            number = check.get("value", number + 1)
            numbers[name] = number
        return numbers

    def sentences(self) -> Iterator[tuple[str, str]]:
        """What each is of, in C, and the sentence."""
        for name, check in self.checks.items():
            if "says" in check:
                yield f"VB_CHECK_{name}", check["says"]
            if "advice" in check:
                yield f"VB_CHECK_{name} | {ADVICE}", f". {check['advice']}"
        for name, other in self.others.items():
            yield f"VB_SENTENCE_{name}", other["says"]
        for kind, numbers in self.numbered.items():
            for name, number in numbers.items():
                of = f"VB_SENTENCE_{kind} + VB_{kind}_{name}"
                if "says" in number:
                    yield of, number["says"]
                if "advice" in number:
                    yield f"({of}) | {ADVICE}", number["advice"]

    def fields(self) -> list[str]:
        """The fields of the record that a sentence names."""
        named: set[str] = set()
        for _, text in self.sentences():
            tags = TAG.finditer(self.whole(text))
            named |= {tag[4] for tag in tags if tag[4]}
        return sorted(named)


def header(purpose: str) -> list[str]:
    return [f"// {LICENCE}", f"/* {NOTE} {purpose} */", "/* clang-format off */"]


def checks_file(table: Table) -> str:
    lines = header("The numbers of checks and sentences.")
    lines += ["#ifndef VB_HCA_CHECKS_H", "#define VB_HCA_CHECKS_H", ""]
    lines += ["enum vb_check {", "    VB_CHECK_OK = 0,"]
    for name, value in table.values().items():
        lines.append(f"    VB_CHECK_{name} = {value:#x}, /* {table.checks[name]['about']} */")
    lines += ["};", "", "/* Of sentences.c: a check, and what else has a sentence. */"]
    lines.append("enum vb_sentence {")
    for number, name in enumerate(table.others, OTHERS_FROM):
        lines.append(f"    VB_SENTENCE_{name} = {number:#x},")
    lines.append(f"    {ADVICE} = 0x200, /* added to a check or a number: what to try */")
    for place, kind in enumerate(NUMBERED):
        first = NUMBERED_FROM + place * NUMBERED_STEP
        lines.append(f"    VB_SENTENCE_{kind} = {first:#x}, /* + VB_{kind}_… */")
    lines += ["};", "", "#endif"]
    return "\n".join(lines) + "\n"


def mask(facts: frozenset[str]) -> str:
    return " | ".join(f"VB_FACT_{fact.upper()}" for fact in sorted(facts)) or "0"


def c_string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def table_file(table: Table) -> str:
    lines = [*header("Only for sentences.c."), "enum {"]
    lines += [f"    VB_FACT_{fact.upper()} = 1 << {bit}," for bit, fact in enumerate(table.facts)]
    lines += ["};", "", "static uint32_t vb_sentence_facts(const struct vb_evidence *e)", "{"]
    lines.append("    return 0u")
    lines += [f"        | (({c}) ? VB_FACT_{f.upper()} : 0u)" for f, c in table.facts.items()]
    lines += [
        "        ;",
        "}",
        "",
        "static const struct vb_sentence_field vb_sentence_fields[] = {",
    ]
    lines += [f"    VB_SENTENCE_FIELD({field})," for field in table.fields()]
    lines += ["};", "", "static const struct vb_sentence_piece vb_sentence_pieces[] = {"]
    for of, text in table.sentences():
        for piece in table.pieces(text):
            lines.append(
                f"    {{{of}, {mask(piece.yes)}, {mask(piece.no)}, {c_string(piece.text)}}},"
            )
    lines.append("};")
    return "\n".join(lines) + "\n"


def shown(table: Table, text: str) -> str:
    """The sentence as the page has it: names for numbers, alternatives between slashes."""

    def words(tag: re.Match[str]) -> str:
        name, letter = tag[4], tag[5]
        if not name:
            return {"else": " / ", "end": ")"}.get(tag[3], "(")
        if letter == "b":
            return f"({' / '.join(number['says'] for number in table.numbered['BIND'].values())})"
        field = SHOWN.get(f"{name}:{letter}") or SHOWN.get(name) or f"*{name}*"
        return field.replace("_", "\\_")

    return TAG.sub(words, table.whole(text))


def page_table(table: Table) -> str:
    lines = ["| Check | Status | What the text says | What it advises |", "|---|---|---|---|"]
    for name, check in table.checks.items():
        if "status" not in check:
            continue
        says = check.get("page", shown(table, check.get("says", check["about"].partition(":")[0])))
        advice = check.get("page_advice", shown(table, check.get("advice", "")))
        status = ", ".join(f"`{each}`" for each in check["status"])
        lines.append(f"| `{name}` | {status} | {says} | {advice} |")
    return "\n".join(lines) + "\n"


def numbers_table(table: Table, kind: str) -> str:
    """What the numbers of an enum mean: what the text says, and what it advises."""
    lines = ["| What the text says | What it advises |", "|---|---|"]
    for number in table.numbered[kind].values():
        if "says" in number:
            says = shown(table, number["says"].removeprefix(": "))
            lines.append(f"| {says} | {shown(table, number.get('advice', ''))} |")
    return "\n".join(lines) + "\n"


def with_table(text: str, name: str, made: str) -> str:
    """The page with what stands between the marks of that name replaced."""
    head, begin, rest = text.partition(BEGIN_MARK.format(name))
    _, end, tail = rest.partition(END_MARK.format(name))
    if not begin or not end:
        raise ValueError(f"{PAGE} has no marks of {name}")
    return f"{head}{begin}\n{made}\n{end}{tail}"


def page(table: Table) -> str:
    text = with_table(PAGE.read_text(), "checks", page_table(table))
    text = with_table(text, "silences", numbers_table(table, "SILENCE"))
    return with_table(text, "losses", numbers_table(table, "LOST"))


def outputs() -> dict[Path, str]:
    table = Table()
    return {
        HERE / "checks.h": checks_file(table),
        HERE / "sentences_table.h": table_file(table),
        PAGE: page(table),
    }
