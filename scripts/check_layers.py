# SPDX-License-Identifier: Apache-2.0
"""Fail when a room includes or imports a room above it, or when its files have a cycle.

C rooms are the folders of src/native, and those of src/native/port; Python rooms are the modules
and packages of src/verbena, and above them all the package benchmarks, which no wheel has. A room
that is missing from the tables below is an error: add it there. Cycles within a room are an error
unless scripts/circles.py has their reason. `make lint` runs this.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import circles

ROOT = Path(__file__).parent.parent
NATIVE = ROOT / "src" / "native"
PACKAGE = ROOT / "src" / "verbena"
BENCHMARKS = ROOT / "benchmarks"

# Bottom to top; rooms on one line may use each other.
C_ROOMS = [
    {"abi", "cable", "cpu", "lock", "wire"},
    {"memory"},
    {"hca"},
    {"transport"},
    {"tcp"},
    {"event"},
    {"port"},
    {"wrap"},
    {"direct", "sim"},
    {"roce"},
    {"host"},
    {"dropin"},
    {"preload"},
]
PYTHON_ROOMS = [
    {"_files", "_native", "progress", "version", "wire"},
    {
        "_accepting",
        "_arguments",
        "_fault_opcodes",
        "_fault_rules",
        "_ports",
        "_trace_events",
        "_variables",
    },
    {"capture", "fault"},
    {"launch"},
    {"verbs"},
    {"waiting"},
    {"aio"},
    {"fabrics"},
    {"host"},
    {"lan"},
    {"internet"},
    {"manage"},
    {"agent", "subnet_process"},
    {"cm"},
    {"peers"},
    {"rpc"},
    {"nvmeof"},
    {"dropped_files"},
    {"whole_files"},
    {"collectives", "dask_comm", "disk_files", "remote_files"},
    {"sim"},
    {"pytest_plugin"},
    {"__init__"},
    {"measure"},
    {"demo"},
    {"cli"},
    {"__main__"},
    {"benchmarks"},
]

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
CIMPORT = re.compile(r"^\s*(?:from|c?import)\s+((?:verbena|benchmarks)[\w.]*)", re.MULTILINE)


def levels(rooms: list[set[str]]) -> dict[str, int]:
    return {room: level for level, names in enumerate(rooms) for room in names}


def c_room(path: Path) -> str:
    """Of a file of src/native. The parts of port are rooms of their own."""
    parts = path.parts[:-1]
    return "/".join(parts[:2] if parts[0] == "port" else parts[:1])


def included_rooms(path: Path) -> Iterator[str]:
    """Rooms that a C file includes; a name without a folder is the file's own room."""
    for name in INCLUDE.findall(path.read_text()):
        if "/" in name:
            yield c_room(Path(name))


def imported_rooms(path: Path) -> Iterator[str]:
    """Rooms that a Python or Cython file imports."""
    for module in imported_modules(path, package_of(path)):
        parts = module.split(".")
        if parts[0] == "benchmarks":
            yield "benchmarks"
        elif parts[0] == "verbena":
            yield parts[1] if len(parts) > 1 else "__init__"


def top_of(path: Path) -> Path:
    """The folder of the top package that a Python file belongs to."""
    return BENCHMARKS if path.is_relative_to(BENCHMARKS) else PACKAGE


def package_of(path: Path) -> tuple[str, ...]:
    top = top_of(path)
    return (top.name, *path.relative_to(top).parts[:-1])


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


def room_of(path: Path) -> str:
    if path.is_relative_to(NATIVE):
        return c_room(path.relative_to(NATIVE))
    if top_of(path) == BENCHMARKS:
        return "benchmarks"
    return path.relative_to(PACKAGE).parts[0].split(".")[0]


def problems(rooms: list[set[str]], uses: dict[Path, list[str]]) -> Iterator[str]:
    order = levels(rooms)
    for path, used in uses.items():
        room = room_of(path)
        for name in dict.fromkeys([room, *used]):
            where = path.relative_to(ROOT)
            if name not in order:
                yield f"{where}: room {name!r} is not in scripts/check_layers.py"
            elif order[name] > order.get(room, -1):
                yield f"{where}: {room} uses {name}, which is above it"


def c_arrows(paths: list[Path]) -> dict[str, dict[str, set[str]]]:
    """Return, by folder, which files (each with its header) include which other files of it."""
    arrows: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in paths:
        folder = path.parent.relative_to(NATIVE)
        targets = arrows[str(folder)][path.stem]
        for name in INCLUDE.findall(path.read_text()):
            header = Path(name) if "/" in name else folder / name
            if header.parent == folder and (NATIVE / header).exists():
                targets.add(header.stem)
        targets.discard(path.stem)
    return arrows


def imported_when_loaded(path: Path, package: tuple[str, ...]) -> Iterator[str]:
    """Modules that the first level of a file imports, and the names that it takes out of them."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def python_arrows(paths: list[Path]) -> dict[str, dict[str, set[str]]]:
    """Return, by package, which modules import which other modules of it at load time."""
    names = {path: module_name(path) for path in paths if path.suffix == ".py"}
    known = set(names.values())
    arrows: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path, name in names.items():
        package = package_of(path)
        room = ".".join(package)
        inside = {module for module in known if module.startswith(f"{room}.") or module == room}
        arrows[room][name] |= (inside & set(imported_when_loaded(path, package))) - {name}
    return arrows


def module_name(path: Path) -> str:
    parts = (*package_of(path), path.stem)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def all_circles(c_files: list[Path], python_files: list[Path]) -> Iterator[str]:
    rooms = {**c_arrows(c_files), **python_arrows(python_files)}
    for room in sorted({*rooms, *circles.ALLOWED}):
        yield from circles.problems(room, rooms.get(room, {}))


def main() -> int:
    c_files = [path for suffix in ("*.c", "*.h") for path in sorted(NATIVE.rglob(suffix))]
    python_files = [
        path
        for top in (PACKAGE, BENCHMARKS)
        for suffix in ("*.py", "*.pyx", "*.pxd", "*.pxi")
        for path in sorted(top.rglob(suffix))
    ]
    c_uses = {path: list(included_rooms(path)) for path in c_files}
    python_uses = {path: list(imported_rooms(path)) for path in python_files}
    found = [
        *problems(C_ROOMS, c_uses),
        *problems(PYTHON_ROOMS, python_uses),
        *all_circles(c_files, python_files),
    ]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
