# SPDX-License-Identifier: Apache-2.0
"""Fail on a function of more than 100 lines or a file of more than 900.

With --summary it also prints the median and the 90th percentile of function lengths.
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("src", "tests", "benchmarks", "scripts", "docs")
MAX_FUNCTION = 100
MAX_FILE = 900
CYTHON_DEF = re.compile(r"( *)(?:async )?(?:def|cdef|cpdef)\b(?! class\b)[^=]*?(\w+)\s*\(")


@dataclass(frozen=True)
class Function:
    path: Path
    name: str
    line: int
    lines: int


def c_functions(path: Path, lines: list[str]) -> Iterator[Function]:
    """By clang-format's style, a function's braces are alone in the first column."""
    start = 0
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
        elif line == "}" and start:
            yield Function(path, c_name(lines, start), start, number - start - 1)
            start = 0


def c_name(lines: list[str], brace: int) -> str:
    for line in reversed(lines[: brace - 1]):
        if found := re.match(r"[A-Za-z_][\w\s*]*?(\w+)\(", line):
            return found[1]
    return "?"


def python_functions(path: Path, lines: list[str]) -> Iterator[Function]:
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno
            yield Function(path, node.name, node.lineno, length)


def cython_functions(path: Path, lines: list[str]) -> Iterator[Function]:
    for number, line in enumerate(lines, 1):
        if found := CYTHON_DEF.match(line):
            yield Function(path, found[2], number, block_length(lines, number, len(found[1])))


def block_length(lines: list[str], start: int, indent: int) -> int:
    """Lines after `start` that are indented more than `indent`, up to the last such line."""
    last = start
    for number, line in enumerate(lines[start:], start + 1):
        if not line.strip() or line.lstrip().startswith(")"):
            continue
        if len(line) - len(line.lstrip()) <= indent:
            break
        last = number
    return last - start


READERS = {
    ".c": c_functions,
    ".h": c_functions,
    ".py": python_functions,
    ".pyx": cython_functions,
    ".pxd": cython_functions,
    ".pxi": cython_functions,
}


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in READERS and "__pycache__" not in path.parts:
                yield path.relative_to(ROOT)


def main(arguments: list[str]) -> int:
    functions: list[Function] = []
    problems: list[str] = []
    for path in sources():
        lines = (ROOT / path).read_text().splitlines()
        if len(lines) > MAX_FILE:
            problems.append(f"{path}: {len(lines)} lines, more than {MAX_FILE}")
        functions += READERS[path.suffix](path, lines)
    problems += [
        f"{f.path}:{f.line}: {f.name} has {f.lines} lines, more than {MAX_FUNCTION}"
        for f in functions
        if f.lines > MAX_FUNCTION
    ]
    print(*problems, sep="\n", end="\n" if problems else "")
    if "--summary" in arguments:
        summarize([f.lines for f in functions])
    return 1 if problems else 0


def summarize(lengths: list[int]) -> None:
    p90 = statistics.quantiles(lengths, n=10)[-1]
    print(f"{len(lengths)} functions, median {statistics.median(lengths)} lines, p90 {p90:.0f}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
