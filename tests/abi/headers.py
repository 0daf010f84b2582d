# SPDX-License-Identifier: Apache-2.0
"""Reads structs and constants out of a preprocessed C header, as far as verbs.h goes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import plain_environment

RECORD = re.compile(r"\b(struct|union)\s+(\w+)?\s*\{")
ENUM = re.compile(r"\benum\s*\w*\s*\{([^}]*)\}")
DECLARATOR = re.compile(r"(\w+)\s*(?:\[[^]]*\])*\s*$")
FUNCTION_POINTER = re.compile(r"\(\s*\*\s*(\w+)\s*\)\s*\(")


@dataclass
class Header:
    """Fields by "struct NAME" or "union NAME" (a nested one as "outer.inner"); constants."""

    fields: dict[str, list[str]] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)


def preprocess(include: str, *options: str) -> str:
    """The header and all that it includes, without comments and line marks."""
    command = ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-E", "-P", *options, "-x", "c", "-"]
    return subprocess.run(
        command,
        input=f"#include {include}\n",
        env=plain_environment(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def closing_brace(text: str, opening: int) -> int:
    depth = 0
    for at in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise ValueError("a brace is not closed")


def skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def members(body: str) -> Iterator[str]:
    """The field names of a record's body; those of unnamed records in it count as its own."""
    at = skip_space(body, 0)
    while at < len(body):
        nested = RECORD.match(body, at)
        end = closing_brace(body, nested.end() - 1) if nested else at
        semicolon = body.find(";", end)
        if semicolon < 0:
            return
        if nested:
            yield from nested_members(body[nested.end() : end], body[end + 1 : semicolon].strip())
        else:
            yield from declared(body[at:semicolon])
        at = skip_space(body, semicolon + 1)


def nested_members(body: str, name: str) -> Iterator[str]:
    prefix = f"{name}." if name else ""
    if name:
        yield name
    yield from (prefix + member for member in members(body))


def declared(declaration: str) -> Iterator[str]:
    if pointer := FUNCTION_POINTER.search(declaration):
        yield pointer[1]
        return
    for part in declaration.split(","):
        if found := DECLARATOR.search(part.strip()):
            yield found[1]


def read_header(include: str, *options: str) -> Header:
    """The records with a tag, and the enum constants, of the preprocessed header."""
    text = preprocess(include, *options)
    text = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", "", text)
    header = Header()
    for record in RECORD.finditer(text):
        if record[2]:
            body = text[record.end() : closing_brace(text, record.end() - 1)]
            header.fields[f"{record[1]} {record[2]}"] = list(members(body))
    for enum in ENUM.finditer(text):
        header.constants |= {
            name for part in enum[1].split(",") if (name := part.split("=")[0].strip())
        }
    return header


def macros(include: str, *options: str) -> dict[str, str]:
    """Object-like macros and what they stand for."""
    text = preprocess(include, "-dM", *options)
    return dict(re.findall(r"^#define (\w+) +(.+)$", text, re.MULTILINE))


def values(include: str, expressions: list[str], folder: Path, *options: str) -> list[int]:
    """What each C expression is, compiled after the header; folder takes the program."""
    lines = [f'    printf("%lld\\n", (long long)({expression}));' for expression in expressions]
    source = folder / "values.c"
    source.write_text(
        f"#include {include}\n#include <stddef.h>\n#include <stdio.h>\n"
        "int main(void)\n{\n" + "\n".join(lines) + "\n    return 0;\n}\n"
    )
    program = folder / "values"
    compiler = [
        "gcc",
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-w",
        *options,
        str(source),
        "-o",
        str(program),
    ]
    subprocess.run(compiler, env=plain_environment(), check=True)
    output = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    return [int(line) for line in output.split()]
