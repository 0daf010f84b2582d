# SPDX-License-Identifier: Apache-2.0
"""Makes small changes in src/native, one at a time, and prints which the room's tests notice.

`make mutation` runs it and keeps the result as docs/mutation.md. The sources are changed in a copy,
build/mutation/tree, which has a build folder of its own; the repository stays as it is. The room's
C tests run first; where they do not notice the change, the room's Python tests run, each path of
the table in docs/development.md for at most `--seconds`. What fails there counts only if it passes
over the sources as they are (.venv). A change that no test notices is a survivor.

Changes that cannot matter are in scripts/mutations_left_out.toml, each with its reason.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import rooms

ROOT = Path(__file__).parent.parent
HOME = ROOT / "build" / "mutation"
TREE, BUILD, VENV = HOME / "tree", HOME / "build", HOME / "venv"
LEFT_OUT = ROOT / "scripts" / "mutations_left_out.toml"
SECONDS = 100  # limit of a test program; reaching it counts as noticing the change
PYTHON_SECONDS = 60  # limit of a path of Python tests; reaching it counts as not noticing
LIBRARIES = ["ibverbs", "ibverbs_alias", "verbena_paths", "verbena_heap"]
MODULES = ["_verbs", "_wire", "_world"]
# tests/native/test_programs.py stands for these in the table: they run with the library in front.
PROGRAMS_WATCHED = "tests/native/test_programs.py"
WATCHED = [
    f"dropin/test_{name}"
    for name in ("faults", "regions", "freed_memory", "reused_memory", "watched_calls")
]
# They compile the sources with -Werror: what they notice may be a warning alone.
COMPILING_TESTS = ("tests/sim/test_arithmetic.py", "tests/programs/test_other_build.py")
SKIPPED = 77
COMPILER = "the compiler"
NETWORK = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$0" "$@"']

Check = Callable[[], str | None]

RELATIONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
STATEMENT = re.compile(r"^\s+[\w>.\[\]*()-]+(\([^;{}]*\)| [-+|&^]?= [^;{}]*|\+\+|--);$")
BRANCH = re.compile(r"^(\s*(?:} else )?if \()(.*)(\) ?\{?)$")
HINT = re.compile(r"(__builtin_expect\(.*, )[01]\)")  # what the compiler is to expect
OTHER_MACHINE = {"x86_64": "_arm.c", "aarch64": "_x86.c"}  # such a source has no code here
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
    hints = [found.end(1) for found in HINT.finditer(code)]
    for found in re.finditer(r" (<=|>=|==|!=|<|>) ", code):
        yield "relation", line[: found.start(1)] + RELATIONS[found[1]] + line[found.end(1) :]
    for found in re.finditer(r" (&&|\|\|) ", code):
        other = "||" if found[1] == "&&" else "&&"
        yield "connective", line[: found.start(1)] + other + line[found.end(1) :]
    for found in re.finditer(r"(?<![\w.\"'])([0-9]{1,4})(?![\w.\"'])", code):
        if found.start() not in hints:
            yield "off by one", line[: found.start()] + str(int(found[1]) + 1) + line[found.end() :]
    if branch := BRANCH.match(code.rstrip()):
        yield "branches", f"{branch[1]}!({branch[2]}){branch[3]}"
    if (value := RETURN.match(code)) and value[2] not in ("NULL", "0", "false"):
        yield "return value", f"{value[1]}0;"
    elif STATEMENT.match(code) and not line.lstrip().startswith(("return", "case")):
        yield "statement dropped", line[: len(line) - len(line.lstrip())] + "(void)0;"


def changes_of(path: str, text: str) -> list[Change]:
    return [
        Change(path, number, kind, line, after)
        for number, line in code_of(text)
        for kind, after in changes_of_line(line)
    ]


@dataclass(frozen=True)
class LeftOut:
    """A change that no test can notice, or need not, and why. Its line is known by its text."""

    path: str
    before: str
    after: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: `{self.before}` became `{self.after}`: {self.reason}"


def left_out(text: str) -> list[LeftOut]:
    return [LeftOut(**entry) for entry in tomllib.loads(text).get("change", [])]


def is_left_out(change: Change, entries: Sequence[LeftOut]) -> bool:
    this = (change.path, change.before.strip(), change.after.strip())
    return any(this == (one.path, one.before, one.after) for one in entries)


def choose(
    sources: dict[str, str],
    count: int,
    seed: int,
    known: dict[str, list[str]],
    without: Sequence[LeftOut] = (),
) -> list[Change]:
    """Return `count` random changes: rooms in turn, and for each a kind and then a place."""
    chance = random.Random(seed)
    by_room: dict[str, list[Change]] = {}
    for path in sorted(sources):
        found = [one for one in changes_of(path, sources[path]) if not is_left_out(one, without)]
        by_room.setdefault(rooms.room_of(path, known), []).extend(found)
    names = [name for name in sorted(by_room) if by_room[name]]
    chance.shuffle(names)
    chosen: list[Change] = []
    for turn in range(count):
        left = [one for one in by_room[names[turn % len(names)]] if one not in chosen]
        kinds = sorted({one.kind for one in left})
        if kinds:
            kind = chance.choice(kinds)
            chosen.append(chance.choice([one for one in left if one.kind == kind]))
    return chosen


def programs_of(room: str, known: dict[str, list[str]], tree: Path = ROOT) -> list[str]:
    """The room's C tests, as `test_NAME` and `dropin/test_NAME`."""
    native = tree / "tests" / "native"
    found = [path for one in known[room] for path in sorted(tree.glob(one)) if path.suffix == ".c"]
    return list(dict.fromkeys(str(path.relative_to(native).with_suffix("")) for path in found))


def python_tests_of(room: str, known: dict[str, list[str]]) -> list[str]:
    """The room's Python tests, single files first."""
    found = [one for one in known[room] if not one.endswith(".c") and one != PROGRAMS_WATCHED]
    return sorted(found, key=lambda one: not one.endswith(".py"))


def is_named_after(test: str, path: str) -> bool:
    """Do the names of a test and of a source file share a word?"""
    return not set(Path(test).stem.split("_")).isdisjoint(Path(path).stem.split("_"))


def likely_first(tests: Sequence[str], path: str) -> list[str]:
    """The tests named after the source file come first, since they are likely to notice."""
    return sorted(tests, key=lambda one: not is_named_after(one, path))


def pytest_paths(pattern: str, path: str, tree: Path = ROOT) -> list[str]:
    """The test files of the table's pattern; of a folder each, since pytest sorts what is in it."""
    found = sorted(tree.glob(pattern))
    inside = [file for folder in found for file in sorted(folder.rglob("test_*.py"))]
    files = [str(file.relative_to(tree)) for file in inside or found]
    return likely_first([file for file in files if file not in COMPILING_TESTS], path)


def target_of(program: str) -> str:
    return program.replace("/", "_")


def built(targets: list[str]) -> bool:
    command = ["cmake", "--build", str(BUILD), "--target", *targets]
    return subprocess.run(command, capture_output=True).returncode == 0


def copy(source: Path, target: Path) -> None:
    """Copy files; equal ones keep their times, so that only changes are compiled."""
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
    """Copy the sources as they are now, and build the copy as the C tests are built."""
    copied = ("src", "tests", "docs", "scripts", "benchmarks", "examples", "cmake")
    for name in (*copied, "CMakeLists.txt", "pyproject.toml"):
        copy(ROOT / name, TREE / name)
    options = ["-DVERBENA_NATIVE_TESTS=ON", "-DVERBENA_LTO=OFF", "-DCMAKE_BUILD_TYPE=Release"]
    options += ["-DVERBENA_LOCK_ORDER=ON", "-DSKBUILD=ON", f"-DPython_EXECUTABLE={sys.executable}"]
    configure = ["cmake", "-S", str(TREE), "-B", str(BUILD), "-G", "Ninja", *options]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    if not built(targets):
        sys.exit(f"The sources do not build as they are: cmake --build {BUILD}")
    make_venv()


def make_venv() -> None:
    """A Python that imports the copy's Verbena, and all else from the one that runs this."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(VENV)], check=True)
    (site,) = VENV.glob("lib/python*/site-packages")
    (site / "tree.pth").write_text(f"{TREE / 'src'}\n{sysconfig.get_path('platlib')}\n")
    script = VENV / "bin" / "verbena"
    script.write_text(
        f"#!{VENV}/bin/python\nimport sys\nfrom verbena.cli import main\nsys.exit(main())\n"
    )
    script.chmod(0o755)


def plain_environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("VERBENA_")}


def pytest_result(
    python: Path, tree: Path, tests: Sequence[str], seconds: float
) -> tuple[int | None, str]:
    """Return the exit status, None if it did not end in time, and the output."""
    command = [str(python), "-m", "pytest", "-x", "-v", "-p", "no:cacheprovider", "--timeout=50"]
    with subprocess.Popen(
        [*command, *tests],
        cwd=tree,
        env=plain_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            said = process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0]
    return process.returncode, said


def failed_test_in(said: str) -> str | None:
    """The test that pytest says has failed, or that ran when its process ended."""
    named = re.search(r"^(?:FAILED|ERROR) (\S+?)(?: - .*)?$", said, re.MULTILINE)
    begun = re.findall(r"^(\S+::\S+) ", said, re.MULTILINE)
    return named[1] if named else begun[-1] if begun else None


def python_failure_of(pattern: str, path: str, seconds: float) -> str | None:
    """The test that failed, and passes over the sources as they are; None if there is none."""
    tests = pytest_paths(pattern, path, TREE)
    status, said = pytest_result(VENV / "bin" / "python", TREE, tests, seconds)
    if status in (None, 0):
        return None
    failed = failed_test_in(said)
    status, _ = pytest_result(Path(sys.executable), ROOT, [failed] if failed else tests, SECONDS)
    return (failed or pattern) if status == 0 else None


def install() -> bool:
    """Put the changed libraries and modules where the copy's Python finds them."""
    if not built([*LIBRARIES, *MODULES]):
        return False
    command = ["cmake", "--install", str(BUILD), "--component", "python"]
    subprocess.run([*command, "--prefix", str(TREE / "src")], check=True, capture_output=True)
    return True


def watched_failure_of(program: str) -> str | None:
    if not built(LIBRARIES):
        return COMPILER
    lib = BUILD / "lib"
    preload = f"{lib}/libverbena_paths.so {lib}/libibverbs.so.1"
    failed = failure_of(program, {"LD_PRELOAD": preload})
    return f"{failed}, with the library in front" if failed else None


def failure_of(program: str, settings: dict[str, str] | None = None) -> str | None:
    """How a test failed, None if it passed or was skipped. It is built only now: most changes are
    noticed by one of the first, and a room may have forty."""
    if not built([target_of(program)]):
        return COMPILER
    environment = plain_environment() | (settings or {})
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
            return f"{program} did not end"
        finally:  # a test that failed may leave children behind, which would run for ever
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return None if status in (0, SKIPPED) else program


def targets_of(room: str, known: dict[str, list[str]]) -> list[str]:
    """All that a room's tests need."""
    watched = WATCHED if PROGRAMS_WATCHED in known[room] else []
    programs = [target_of(one) for one in [*programs_of(room, known), *watched]]
    return [*programs, *LIBRARIES, *MODULES]


def checks_of(path: str, known: dict[str, list[str]], seconds: float) -> Iterator[Check]:
    """Yield the checks for a change in this file, the quickest first."""
    room = rooms.room_of(path, known)
    for program in likely_first(programs_of(room, known, TREE), path):
        yield partial(failure_of, program)
    if PROGRAMS_WATCHED in known[room]:
        for program in WATCHED:
            yield partial(watched_failure_of, program)
    tests = python_tests_of(room, known) if seconds else []
    if tests and not install():
        yield lambda: COMPILER
    for one in tests:
        yield partial(python_failure_of, one, path, seconds)


def verdict(change: Change, known: dict[str, list[str]], seconds: float) -> str | None:
    """Return what noticed the change, None if nothing did. The file is restored in any case."""
    path = TREE / change.path
    whole = path.read_text()
    lines = whole.split("\n")
    lines[change.number - 1] = change.after
    path.write_text("\n".join(lines))
    try:
        return next(
            filter(None, (check() for check in checks_of(change.path, known, seconds))), None
        )
    finally:
        path.write_text(whole)


def sources_in(only: Sequence[str] | None, known: dict[str, list[str]]) -> dict[str, str]:
    """The text of each C file by its path; of these rooms, or of all without a list.

    Raises SystemExit, if the table of docs/development.md has no such room."""
    if unknown := set(only or ()) - set(known):
        sys.exit(f"No such room in docs/development.md: {', '.join(sorted(unknown))}")
    paths = [str(path.relative_to(ROOT)) for path in (ROOT / "src/native").rglob("*.c")]
    paths = [one for one in paths if not one.endswith(OTHER_MACHINE[platform.machine()])]
    wanted = [one for one in paths if not only or rooms.room_of(one, known) in only]
    return {one: (ROOT / one).read_text() for one in wanted}


def page(
    seed: int,
    results: list[tuple[Change, str | None]],
    without: Sequence[LeftOut] = (),
    minutes: float = 0,
) -> str:
    survivors = [change for change, noticed in results if noticed is None]
    tried = len(results)
    lines = [
        "# Mutation",
        "",
        f"`make mutation` made {tried} random small changes in `src/native` (seed {seed}). For",
        "each it ran the tests of the changed folder",
        "([list](development.md#which-tests-after-a-change)): first the C tests, and if those",
        "passed, the Python tests, each path for a limited time. A change is noticed if a test",
        "fails.",
        f"{tried - len(survivors)} of {tried} were noticed. That took {minutes:.0f} minutes.",
        "",
        "A survivor shows a gap in the tests, needs a longer run to be noticed, or changes no",
        "behaviour.",
        "",
        "## Survivors",
        "",
        *([f"* {one}" for one in survivors] or ["None."]),
        "",
        "## Noticed",
        "",
        *[f"* {one} (by {noticed})" for one, noticed in results if noticed is not None],
        "",
        "## Left out",
        "",
        "These changes are not made, and count neither as noticed nor as survivors",
        "(`scripts/mutations_left_out.toml`).",
        "",
        *([f"* {one}" for one in without] or ["None."]),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=60, help="how many changes (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default: 1)")
    parser.add_argument(
        "--room", action="append", help="only there, as in src/native/event; may be repeated"
    )
    parser.add_argument("--minutes", type=float, help="begin no change after that time")
    parser.add_argument(
        "--seconds",
        type=float,
        default=PYTHON_SECONDS,
        help=f"for each path of Python tests; 0: only C tests (default: {PYTHON_SECONDS})",
    )
    parser.add_argument("--page", type=Path, help="write the result there")
    given = parser.parse_args()
    known = rooms.rooms()
    without = left_out(LEFT_OUT.read_text())
    sources = sources_in(given.room, known)
    chosen = choose(sources, given.n, given.seed, known, without)
    TREE.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    used = {rooms.room_of(one.path, known) for one in chosen}
    prepare(sorted({target for room in used for target in targets_of(room, known)}))
    results: list[tuple[Change, str | None]] = []
    for change in chosen:
        start = time.monotonic()
        if given.minutes and start > begun + given.minutes * 60:
            break
        noticed = verdict(change, known, given.seconds)
        results.append((change, noticed))
        took = f"{time.monotonic() - start:.0f} s"
        print(
            f"{f'noticed by {noticed}' if noticed else 'SURVIVES'} ({took}): {change}", flush=True
        )
        minutes = (time.monotonic() - begun) / 60
        if given.page:  # after each change: a run that is cut short leaves what it found
            given.page.write_text(page(given.seed, results, without, minutes))
    survivors = sum(noticed is None for _, noticed in results)
    minutes = (time.monotonic() - begun) / 60
    print(f"{len(results)} changes, {survivors} survive; {minutes:.0f} minutes")


if __name__ == "__main__":
    main()
