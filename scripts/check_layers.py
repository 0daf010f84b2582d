# SPDX-License-Identifier: Apache-2.0
"""Fail when a room of the house includes or imports a room above it.

C rooms are the folders of src/native, Python rooms the modules and packages of src/verbena.
A room that is missing from the tables below is an error: say where it belongs.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
NATIVE = ROOT / "src" / "native"
PACKAGE = ROOT / "src" / "verbena"

# Bottom to top; rooms on one line may use each other.
C_ROOMS = [
    {"abi", "wire"},
    {"memory"},
    {"hca"},
    {"tcp"},
    {"event"},
    {"port"},
    {"dropin"},
    {"preload"},
]
PYTHON_ROOMS = [
    {"_native", "progress", "version", "wire"},
    {"capture", "fault"},
    {"launch"},
    {"verbs"},
    {"waiting"},
    {"aio"},
    {"fabrics"},
    {"sim"},
    {"__init__"},
    {"bench", "demo"},
    {"cli"},
    {"__main__"},
]

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
CIMPORT = re.compile(r"^\s*(?:from|c?import)\s+(verbena[\w.]*)", re.MULTILINE)


def levels(rooms: list[set[str]]) -> dict[str, int]:
    return {room: level for level, names in enumerate(rooms) for room in names}


def included_rooms(path: Path) -> Iterator[str]:
    """Rooms that a C file includes; a name without a folder is the file's own room."""
    for name in INCLUDE.findall(path.read_text()):
        if "/" in name:
            yield name.split("/")[0]


def imported_rooms(path: Path) -> Iterator[str]:
    """Rooms of the package that a Python or Cython file imports."""
    package = ("verbena", *path.relative_to(PACKAGE).parts[:-1])
    for module in imported_modules(path, package):
        parts = module.split(".")
        if parts[0] == "verbena":
            yield parts[1] if len(parts) > 1 else "__init__"


def imported_modules(path: Path, package: tuple[str, ...]) -> Iterator[str]:
    if path.suffix != ".py":
        yield from CIMPORT.findall(path.read_text())
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from from_import(node, package)


def from_import(node: ast.ImportFrom, package: tuple[str, ...]) -> Iterator[str]:
    """`from verbena import verbs` imports the room verbs, if there is one of that name."""
    base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
    module = ".".join(part for part in (base, node.module or "") if part)
    if module != "verbena":
        yield module
        return
    for alias in node.names:
        yield f"verbena.{alias.name}" if is_room(alias.name) else "verbena"


def is_room(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()


def room_of(path: Path, house: Path) -> str:
    return path.relative_to(house).parts[0].split(".")[0]


def problems(house: Path, rooms: list[set[str]], uses: dict[Path, list[str]]) -> Iterator[str]:
    order = levels(rooms)
    for path, used in uses.items():
        room = room_of(path, house)
        for name in dict.fromkeys([room, *used]):
            where = path.relative_to(ROOT)
            if name not in order:
                yield f"{where}: room {name!r} is not in scripts/check_layers.py"
            elif order[name] > order.get(room, -1):
                yield f"{where}: {room} uses {name}, which is above it"


def main() -> int:
    c_files = [path for suffix in ("*.c", "*.h") for path in sorted(NATIVE.rglob(suffix))]
    python_files = [
        path
        for suffix in ("*.py", "*.pyx", "*.pxd", "*.pxi")
        for path in sorted(PACKAGE.rglob(suffix))
    ]
    c_uses = {path: list(included_rooms(path)) for path in c_files}
    python_uses = {path: list(imported_rooms(path)) for path in python_files}
    found = [*problems(NATIVE, C_ROOMS, c_uses), *problems(PACKAGE, PYTHON_ROOMS, python_uses)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
