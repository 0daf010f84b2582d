# SPDX-License-Identifier: Apache-2.0
"""Fail where a test is skipped or left out without a sentence that says why; `make lint` runs it.

The reason of a skip says what this machine lacks and, behind a semicolon, what installs it: "gcc is
not installed; apt-get install gcc brings it". A mark that excludes a test (``not_simulated``,
``not_sanitized``) gives the reason in a sentence. tests/conftest.py checks reasons that are made
while a test runs, with `fault` of this file.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SKIPS = {"skip": 0, "skipif": None, "importorskip": None, "xfail": None}
"""Calls that skip, and which positional argument is the reason; None: only the keyword is."""
LEFT_OUT = ("not_simulated", "not_sanitized")
GIVES_REASONS = "reason_not_to"
"""A function of this name returns why something cannot be done here, or None."""
HOLE = "{}"
C_TEXT = r'"(?:[^"\\]|\\.)*"'
C_REASON = re.compile(rf"\b(?:printf|puts|skip)\(\s*((?:{C_TEXT}\s*)+)")
C_SKIP = re.compile(r'\b(?:exit\(|return )77\b|^\s+skip\("')
FEWEST_WORDS = 5


def fault(reason: str, *, remedy: bool = True) -> str | None:
    """Return what is wrong with a reason, or None. ``remedy``: it must say what to install."""
    words = reason.split()
    if len(words) < FEWEST_WORDS:
        return f"has fewer than {FEWEST_WORDS} words"
    if not re.fullmatch(r"[a-z]+\.?", words[-1]):
        return "ends with a name"
    lacks, semicolon, brings = reason.partition("; ")
    if not remedy:
        return None
    if not semicolon or len(lacks.split()) < 3 or len(brings.split()) < 3:
        return "is not of the form `what is missing; what brings it`"
    return "ends with the name of what is missing" if words[-1] in lacks.split() else None


def literal(node: ast.expr | None, constants: dict[str, str]) -> str | None:
    """Return the text of an expression with a placeholder for each value; None if it is not
    constant."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(part, constants) or HOLE for part in node.values)
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    return None


def constants_of(tree: ast.Module) -> dict[str, str]:
    """Texts that a module gives names to."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            text = literal(node.value, found)
            if text is not None:
                found[node.targets[0].id] = text
    return found


def reason_of(call: ast.Call, position: int | None) -> ast.expr | None:
    if position is not None and len(call.args) > position:
        return call.args[position]
    return next((one.value for one in call.keywords if one.arg == "reason"), None)


def bare_marks(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
) -> Iterator[tuple[int, ast.expr | None, bool]]:
    """Yield uses of ``@pytest.mark.skip`` and similar marks without a call, which have no
    reason."""
    for mark in node.decorator_list:
        if isinstance(mark, ast.Attribute) and mark.attr in SKIPS:
            yield mark.lineno, None, True


def reasons(tree: ast.Module) -> Iterator[tuple[int, ast.expr | None, bool]]:
    """Line and reason (None: there is none) of each skip, and whether a remedy belongs to it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in SKIPS:
                yield node.lineno, reason_of(node, SKIPS[name]), True
            elif name in LEFT_OUT:
                yield node.lineno, reason_of(node, 0), False
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from bare_marks(node)
        if isinstance(node, ast.FunctionDef) and node.name == GIVES_REASONS:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return) and literal(inner.value, {}):
                    yield inner.lineno, inner.value, True


def faults_of_python(text: str) -> Iterator[tuple[int, str]]:
    tree = ast.parse(text)
    constants = constants_of(tree)
    for line, node, remedy in reasons(tree):
        if node is None:
            yield line, "a skip has no reason"
            continue
        reason = literal(node, constants)
        wrong = fault(reason, remedy=remedy) if reason is not None else None
        if wrong:
            yield line, f"the reason {reason!r} {wrong}"


def faults_of_c(text: str) -> Iterator[tuple[int, str]]:
    """A program that skips prints its reason right before it ends with 77."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if not C_SKIP.search(line):
            continue
        found = C_REASON.findall("\n".join(lines[max(0, number - 4) : number]))
        if not found:
            if "skip(" not in "".join(lines[:number]):
                yield number, "the program skips and says no reason"
            continue
        text = "".join(part[1:-1] for part in re.findall(C_TEXT, found[-1]))
        reason = re.sub(r"%\w+", HOLE, text).removesuffix("\\n")
        wrong = fault(reason)
        if wrong and reason != HOLE:
            yield number, f"the reason {reason!r} {wrong}"


def problems() -> Iterator[str]:
    """A line for each reason under tests that is no sentence."""
    for path in sorted((ROOT / "tests").rglob("*")):
        look = {".py": faults_of_python, ".c": faults_of_c, ".h": faults_of_c}.get(path.suffix)
        for line, what in look(path.read_text()) if look else ():
            yield f"{path.relative_to(ROOT)}:{line}: {what}"


def main() -> int:
    found = list(problems())
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
