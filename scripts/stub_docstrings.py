# SPDX-License-Identifier: Apache-2.0
"""Copies the docstrings of the compiled modules into their stubs, where editors and the reference
look for them. `make generated` calls this.

Signatures are written by hand, and so are the docstrings of read-only C attributes, which have none
at run time.

python scripts/stub_docstrings.py # rewrites the stubs python scripts/stub_docstrings.py --check #
says which are not current
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parent.parent / "src"
MODULES = (
    "verbena.verbs._verbs",
    "verbena.wire._wire",
    "verbena.sim._world",
    "verbena.host._cpu",
    "verbena.lan._cable",
    "verbena.peers._blocks",
    "verbena.rpc._frames",
    "verbena.subnet_process._directed_smps",
)

Node = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.AnnAssign


def stub_of(module: str) -> Path:
    return SOURCES / Path(*module.split(".")).with_suffix(".pyi")


def documented(body: list[ast.stmt], owner: object) -> Iterator[tuple[Node, int, object]]:
    """What may have a docstring: its node, its place in the body, and the object at run time."""
    for place, node in enumerate(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node, place, vars(owner).get(node.target.id) if is_class(owner) else None
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node, place, found(owner, node.name)


def is_class(owner: object) -> bool:
    return inspect.isclass(owner)


def found(owner: object, name: str) -> object:
    return inspect.getattr_static(owner, name, None)


def docstring(thing: object) -> str:
    """Return an object's own docstring, not an inherited one."""
    text = getattr(thing, "__doc__", None)
    return inspect.cleandoc(text) if isinstance(text, str) else ""


def literal(text: str, indent: str) -> list[str]:
    """The docstring as the formatter wants it."""
    first, *rest = text.split("\n")
    lines = [f'{indent}"""{first}', *(f"{indent}{line}".rstrip() for line in rest)]
    if rest and "" in rest:
        return [*lines, f'{indent}"""']
    lines[-1] += '"""'
    return lines


def is_string(node: ast.stmt | None) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def is_ellipsis(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and node.value.value is Ellipsis
    )


def is_bare(node: Node) -> bool:
    """Special methods and setters have no docstring of their own."""
    if not isinstance(node, ast.FunctionDef):
        return False
    setter = any(ast.unparse(each).endswith(".setter") for each in node.decorator_list)
    return setter or node.name.startswith("__")


Edit = tuple[int, int, int, list[str]]
"""From the column of a line (from 1) to the end of another: these lines."""


def begin_of(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def edit_of(node: Node, following: ast.stmt | None, text: str) -> Edit:
    """Return the edit that replaces a node's docstring."""
    if isinstance(node, ast.AnnAssign):
        end = node.end_lineno or node.lineno
        last = following.end_lineno or end if is_string(following) and following else end
        return end + 1, 0, last, literal(text, " " * node.col_offset)
    lines = literal(text, " " * (node.col_offset + 4))
    first = node.body[0]
    if is_string(first) or is_ellipsis(first):
        return first.lineno, first.col_offset, first.end_lineno or first.lineno, lines
    return begin_of(first), 0, begin_of(first) - 1, [*lines, ""]


def edits(body: list[ast.stmt], owner: object) -> Iterator[Edit]:
    for node, place, thing in documented(body, owner):
        following = body[place + 1] if place + 1 < len(body) else None
        text = docstring(thing)
        if text and not is_bare(node):
            yield edit_of(node, following, text)
        if isinstance(node, ast.ClassDef) and thing is not None:
            yield from edits(node.body, thing)


def current(module: str) -> str:
    """The stub's text with the docstrings that the module has."""
    text = stub_of(module).read_text()
    lines = text.split("\n")
    made = edits(ast.parse(text).body, importlib.import_module(module))
    for first, column, last, new in sorted(made, reverse=True):
        before = lines[first - 1][:column].rstrip() if column else ""
        lines[first - 1 : last] = ([before] if before else []) + new
    return "\n".join(lines)


def main() -> None:
    for module in MODULES:
        made = current(module)
        if made == stub_of(module).read_text():
            continue
        if "--check" in sys.argv:
            sys.exit(f"{stub_of(module)} is not current: make generated")
        stub_of(module).write_text(made)


if __name__ == "__main__":
    main()
