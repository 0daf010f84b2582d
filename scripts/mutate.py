# SPDX-License-Identifier: Apache-2.0
"""Makes small changes in src/native, one at a time, and prints which the room's C tests notice.

`make mutation` runs it and keeps the result as docs/mutation.md. The sources are changed in a copy,
build/mutation/tree, which has a build folder of its own; the repository stays as it is. A change
that no test notices is a survivor: it shows a gap in the tests, or it changes nothing that matters.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import rooms

ROOT = Path(__file__).parent.parent
HOME = ROOT / "build" / "mutation"
TREE, BUILD = HOME / "tree", HOME / "build"
SECONDS = 100  # for one test program, which then has noticed the change by hanging
SKIPPED = 77
NETWORK = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$0" "$@"']

RELATIONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
STATEMENT = re.compile(r"^\s+[\w>.\[\]*()-]+(\([^;{}]*\)| [-+|&^]?= [^;{}]*|\+\+|--);$")
BRANCH = re.compile(r"^(\s*(?:} else )?if \()(.*)(\) ?\{?)$")
RETURN = re.compile(r"^(\s+return )([^;]+);$")


@dataclass(frozen=True)
class Change:
    """Line `number` (from 1) of a file becomes `after`."""

    path: str
    number: int
    kind: str
    before: str
    after: str

    def __str__(self) -> str:
        where = f"{self.path}:{self.number}"
        return f"{where} {self.kind}: `{self.before.strip()}` became `{self.after.strip()}`"


def code_of(text: str) -> Iterator[tuple[int, str]]:
    """Lines inside functions, with their numbers; comments and strings are left as they are."""
    inside = comment = False
    for number, line in enumerate(text.split("\n"), 1):
        if line == "{" or line == "}":
            inside = line == "{"
        elif inside and not comment and not line.lstrip().startswith(("/*", "//", "*", "#")):
            yield number, line
        comment = (comment or "/*" in line) and "*/" not in line.rpartition("/*")[2]


def changes_of_line(line: str) -> Iterator[tuple[str, str]]:
    """Each kind of change that this line of code allows, and what the line is then."""
    code = line.partition("/*")[0].partition("//")[0]
    for found in re.finditer(r" (<=|>=|==|!=|<|>) ", code):
        yield "relation", line[: found.start(1)] + RELATIONS[found[1]] + line[found.end(1) :]
    for found in re.finditer(r" (&&|\|\|) ", code):
        other = "||" if found[1] == "&&" else "&&"
        yield "connective", line[: found.start(1)] + other + line[found.end(1) :]
    for found in re.finditer(r"(?<![\w.\"'])([0-9]{1,4})(?![\w.\"'])", code):
        yield "off by one", line[: found.start()] + str(int(found[1]) + 1) + line[found.end() :]
    if branch := BRANCH.match(code.rstrip()):
        yield "branches", f"{branch[1]}!({branch[2]}){branch[3]}"
    if (value := RETURN.match(code)) and value[2] not in ("NULL", "0"):
        yield "return value", f"{value[1]}0;"
    elif STATEMENT.match(code) and not line.lstrip().startswith(("return", "case")):
        yield "statement dropped", line[: len(line) - len(line.lstrip())] + ";"


def changes_of(path: str, text: str) -> list[Change]:
    return [
        Change(path, number, kind, line, after)
        for number, line in code_of(text)
        for kind, after in changes_of_line(line)
    ]


def choose(
    sources: dict[str, str], count: int, seed: int, known: dict[str, list[str]]
) -> list[Change]:
    """`count` changes by chance: rooms in turn, in each a kind and then a place."""
    chance = random.Random(seed)
    by_room: dict[str, list[Change]] = {}
    for path in sorted(sources):
        by_room.setdefault(rooms.room_of(path, known), []).extend(changes_of(path, sources[path]))
    names = [name for name in sorted(by_room) if by_room[name] and programs_of(name, known)]
    chance.shuffle(names)
    chosen: list[Change] = []
    for turn in range(count):
        left = [one for one in by_room[names[turn % len(names)]] if one not in chosen]
        kinds = sorted({one.kind for one in left})
        if kinds:
            kind = chance.choice(kinds)
            chosen.append(chance.choice([one for one in left if one.kind == kind]))
    return chosen


def programs_of(room: str, known: dict[str, list[str]]) -> list[str]:
    """The room's C tests, as `test_NAME` and `dropin/test_NAME`."""
    native = ROOT / "tests" / "native"
    found = [path for one in known[room] for path in sorted(ROOT.glob(one)) if path.suffix == ".c"]
    return list(dict.fromkeys(str(path.relative_to(native).with_suffix("")) for path in found))


def target_of(program: str) -> str:
    return program.replace("/", "_")


def built(targets: list[str]) -> bool:
    command = ["cmake", "--build", str(BUILD), "--target", *targets]
    return subprocess.run(command, capture_output=True).returncode == 0


def copy(source: Path, target: Path) -> None:
    """Files that are the same keep their times, so that only changes are compiled."""
    if source.is_file():
        if not target.exists() or source.read_bytes() != target.read_bytes():
            shutil.copyfile(source, target)
        return
    target.mkdir(parents=True, exist_ok=True)
    names = {path.name for path in source.iterdir()}
    for gone in [path for path in target.iterdir() if path.name not in names]:
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    for name in names - {"__pycache__", "lib"}:
        copy(source / name, target / name)


def prepare(targets: list[str]) -> None:
    """The copy of the sources as they are now, built as the C tests are."""
    for name in ("src", "tests", "docs", "cmake", "CMakeLists.txt", "pyproject.toml"):
        copy(ROOT / name, TREE / name)
    options = ["-DVERBENA_NATIVE_TESTS=ON", "-DVERBENA_LTO=OFF", "-DCMAKE_BUILD_TYPE=Release"]
    configure = ["cmake", "-S", str(TREE), "-B", str(BUILD), "-G", "Ninja", *options]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    if not built(targets):
        sys.exit(f"The sources do not build as they are: cmake --build {BUILD}")


def failure_of(program: str) -> str | None:
    """How a test failed, None if it passed or was skipped."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("VERBENA_")}
    command = [str(BUILD / "tests" / program)]
    prefix = NETWORK if "roce" in program and os.geteuid() == 0 else []
    with subprocess.Popen(
        [*prefix, *command],
        cwd=HOME,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            status = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return f"{program} did not end"
    return None if status in (0, SKIPPED) else program


def verdict(change: Change, programs: list[str]) -> str | None:
    """What noticed the change, None if nothing did."""
    path = TREE / change.path
    lines = (ROOT / change.path).read_text().split("\n")
    lines[change.number - 1] = change.after
    path.write_text("\n".join(lines))
    try:
        if not built([target_of(one) for one in programs]):
            return "the compiler"
        return next(filter(None, map(failure_of, programs)), None)
    finally:
        shutil.copyfile(ROOT / change.path, path)


def page(seed: int, results: list[tuple[Change, str | None]]) -> str:
    survivors = [change for change, noticed in results if noticed is None]
    tried = len(results)
    lines = [
        "# Changes that no test notices",
        "",
        f"`make mutation` made {tried} small changes in `src/native` by chance (seed {seed}), and",
        "ran the C tests of each one's room after it",
        "([which they are](development.md#which-tests-after-a-change)).",
        f"{tried - len(survivors)} were noticed. A room without C tests of its own is left out.",
        "",
        "The Python tests were not run. So a survivor is a gap in the C tests, a change that only",
        "a Python test notices, or one that makes no difference.",
        "",
        "## Survivors",
        "",
        *([f"* {one}" for one in survivors] or ["None."]),
        "",
        "## Noticed",
        "",
        *[f"* {one} (by {noticed})" for one, noticed in results if noticed is not None],
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=60, help="how many changes (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default: 1)")
    parser.add_argument("--minutes", type=float, help="begin no change after that time")
    parser.add_argument("--page", type=Path, help="write the result there")
    given = parser.parse_args()
    known = rooms.rooms()
    sources = {str(p.relative_to(ROOT)): p.read_text() for p in (ROOT / "src/native").rglob("*.c")}
    chosen = choose(sources, given.n, given.seed, known)
    programs = {one: programs_of(rooms.room_of(one.path, known), known) for one in chosen}
    TREE.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + given.minutes * 60 if given.minutes else float("inf")
    prepare(sorted({target_of(name) for names in programs.values() for name in names}))
    results: list[tuple[Change, str | None]] = []
    for change in chosen:
        if time.monotonic() > end:
            break
        noticed = verdict(change, programs[change])
        results.append((change, noticed))
        print(f"{f'noticed by {noticed}' if noticed else 'SURVIVES'}: {change}", flush=True)
    if given.page:
        given.page.write_text(page(given.seed, results))
    survivors = sum(noticed is None for _, noticed in results)
    print(f"{len(results)} changes, {survivors} survive")


if __name__ == "__main__":
    main()
