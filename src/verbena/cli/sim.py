# SPDX-License-Identifier: Apache-2.0
"""`verbena sim`: run a scenario, say what happened, and draw it."""

from __future__ import annotations

import argparse
import errno
import importlib.util
import os
import sys
import textwrap
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verbena.sim import Scenario, ScenarioResult, World

INTERRUPTED = 128 + 2
REPORTS = 0.2  # s between two lines of progress


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="verbena sim",
        usage="verbena sim [OPTION ...] SCENARIO\n       verbena sim --list",
        description="Simulate a network in virtual time: a scenario is a TOML file, or the name of "
        "a ready one. What happened is printed; pictures and files are made on request.",
        epilog="LINK is s0-h1 or s0[1], as the scenario names links. A scenario that has variants "
        "runs in each of them, and their names are added to those of files and folders. Ctrl-C "
        "ends a run, and what it has measured is shown and written. Exit status 1: the scenario is "
        "wrong, a file cannot be written, a run ended in a deadlock or stalled where its scenario "
        "does not expect it, or a flow of it failed, be it one of many, where its scenario does "
        'not allow it (allow = ["failures"]). The lines FAILED of what is printed say why. Flows '
        "that were refused a reservation, or had no time to end, are no failure.",
    )
    made.add_argument("scenario", nargs="?", metavar="SCENARIO", help="a TOML file or a name")
    made.add_argument(
        "--list", action="store_true", help="the ready scenarios, and what they teach"
    )
    made.add_argument("--show", action="store_true", help="print the scenario's file and end")
    made.add_argument("--seed", type=int, metavar="N", help="instead of the scenario's own")
    made.add_argument(
        "--variant", action="append", metavar="NAME", help="only this variant (may be repeated)"
    )
    made.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another setting, as in --set switch.buffer='\"64 KiB\"' (may be repeated)",
    )
    made.add_argument(
        "--plots", type=Path, metavar="FOLDER", help="draw queues, completion times and links there"
    )
    made.add_argument("--parquet", type=Path, metavar="FOLDER", help="write all arrays there")
    made.add_argument(
        "--pcapng",
        action="append",
        default=[],
        metavar="LINK=FILE",
        help="write the packets of a link, which Wireshark opens (may be repeated)",
    )
    made.add_argument(
        "--timeline", type=Path, metavar="FILE", help="write what Perfetto (ui.perfetto.dev) opens"
    )
    made.add_argument("--quiet", action="store_true", help="no progress")
    return made


def main(arguments: list[str]) -> int:
    """Runs `verbena sim`."""
    made = parser()
    options = made.parse_args(arguments)
    try:
        if options.list:
            print(listed())
            return 0
        if options.scenario is None:
            made.error("name a scenario; verbena sim --list has some")
        return run(options, _captures(made, options.pcapng))
    except ModuleNotFoundError as error:
        print(f"verbena sim: {error}", file=sys.stderr)
        return 1
    except MemoryError as error:
        print(f"verbena sim: there is not enough memory. {error}".rstrip(), file=sys.stderr)
        return 1


def run(options: argparse.Namespace, captures: dict[str, str]) -> int:
    scenario = load(options.scenario)
    if options.show:
        print((scenario.folder / scenario.document.name).read_text(), end="")
        return 0
    prepare(options)
    changes = dict(_change(word) for word in options.set)
    if options.seed is not None:
        changes["seed"] = options.seed
    if changes:
        scenario = scenario.changed(changes, "as set here")
    if scenario.teaches:
        print(textwrap.fill(scenario.teaches, 96), end="\n\n")
    names = options.variant or list(scenario.variants) or [None]
    chosen = [(name, scenario if name is None else scenario.variant(name)) for name in names]
    status = 0
    for name, one in chosen:
        own = name if len(chosen) > 1 else None
        say_before(one)
        result = one.run(
            progress=None if options.quiet else progress(one),
            captures={link: _named(Path(file), own) for link, file in captures.items()},
        )
        _clear()
        print(result.summary(), flush=True)
        written = write(result, options, own)
        if result.end == "interrupted":
            return INTERRUPTED
        unexpected = result.end in ("deadlock", "stalled") and result.end != one.expect
        unexpected |= failed(one, result)
        good = written and not result.captures_lost and result.wrong is None
        status = max(status, int(unexpected or not good))
    if scenario.see:
        print("\n" + textwrap.fill(scenario.see, 96))
    return status


def say_before(scenario: Scenario) -> None:
    """The notes of a run that somebody waits for; they are in its summary, too."""
    if sys.stderr.isatty():
        for note in scenario.notes:
            print(f"{scenario.name}: note: {note}", file=sys.stderr)


def failed(scenario: Scenario, result: ScenarioResult) -> bool:
    """Whether flows failed that were not to; it says how many."""
    count = sum(sum(reasons.values()) for reasons in result.failures.values())
    if not count or "failures" in scenario.allow:
        return False
    print(
        f"verbena sim: {result.name}: {count} of {len(result.flows)} flows failed", file=sys.stderr
    )
    return True


def prepare(options: argparse.Namespace) -> None:
    """What would be missed only after a long run: packages and folders. Raises OSError."""
    for folder, package in ((options.plots, "matplotlib"), (options.parquet, "pyarrow")):
        if folder is None:
            continue
        if importlib.util.find_spec(package) is None:
            raise ModuleNotFoundError(f"{package} is missing: pip install {package}")
        folder.mkdir(parents=True, exist_ok=True)
        _check_folder(folder)
    if options.timeline:
        options.timeline.parent.mkdir(parents=True, exist_ok=True)
        _check_folder(options.timeline.parent)
        if options.timeline.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder", str(options.timeline))


def _check_folder(folder: Path) -> None:
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, "nothing can be written there", str(folder))


def load(name: str) -> Scenario:
    """A file or a ready scenario; OSError names what there is."""
    from verbena.sim import Scenario, ready

    if ready.find(name) is None and (Path(name).is_dir() or not Path(name).exists()):
        known = ", ".join(ready.names())
        raise FileNotFoundError(f"{name}: no such file, and no ready scenario: {known}")
    return Scenario.load(name)


def listed() -> str:
    """Each ready scenario with what it teaches."""
    from verbena.sim import ready

    lines = []
    for name in ready.names():
        path = ready.find(name)
        assert path is not None
        teaches = tomllib.loads(path.read_text())["teaches"]
        lines.append(name)
        lines.append(textwrap.fill(teaches, 96, initial_indent="    ", subsequent_indent="    "))
    return "\n".join(lines)


# ---- options -------------------------------------------------------------------------------------


def _captures(made: argparse.ArgumentParser, words: list[str]) -> dict[str, str]:
    """Files by link."""
    captures: dict[str, str] = {}
    for word in words:
        link, equals, file = word.partition("=")
        if not (link and equals and file):
            made.error(f"--pcapng {word}: it is to be LINK=FILE, as in s0-h1=out.pcapng")
        if captures.setdefault(link, file) != file:
            made.error(f"--pcapng {word}: {link} has the file {captures[link]} already")
    return captures


def _change(word: str) -> tuple[str, Any]:
    """A value as TOML has it; what is none is text."""
    key, equals, value = word.partition("=")
    if not (key and equals):
        raise ValueError(f"--set {word}: it is to be KEY=VALUE")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def _named(path: Path, variant: str | None) -> Path:
    """out.pcapng becomes out-lossy.pcapng."""
    return path if variant is None else path.with_name(f"{path.stem}-{variant}{path.suffix}")


def write(result: ScenarioResult, options: argparse.Namespace, variant: str | None) -> bool:
    """What was asked for; says what was made, and what could not be."""
    makes: tuple[tuple[Path | None, Callable[[Path], object]], ...] = (
        (options.plots and options.plots / (variant or ""), result.plot),
        (options.parquet and options.parquet / (variant or ""), result.to_parquet),
        (options.timeline and _named(options.timeline, variant), result.timeline),
    )
    good = True
    for path, make in makes:
        if path is None:
            continue
        try:
            made = make(path)
        except OSError as error:
            good = False
            print(f"verbena sim: {path} cannot be written: {error}", file=sys.stderr)
            continue
        for each in made if isinstance(made, list) else [path]:
            print(f"  wrote {each}")
    return good


# ---- progress ------------------------------------------------------------------------------------


def progress(scenario: Scenario) -> Any:
    """A function for World.run that keeps one line of a terminal up to date."""
    begin = time.monotonic()
    shown = begin
    if not sys.stderr.isatty():
        return None

    def show(world: World) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown < REPORTS:
            return
        shown = now
        print(f"\r{status_line(scenario, world, now - begin):<100.100}", end="", file=sys.stderr)

    return show


def status_line(scenario: Scenario, world: World, wall: float) -> str:
    """Simulated and wall time, and how much there is left."""
    from verbena.sim.units import time_text

    until = f" of {time_text(scenario.duration)}" if scenario.duration else ""
    return (
        f"{scenario.name}: {time_text(world.now)}{until} simulated in {wall:.1f} s, "
        f"{world.flows_left} flows left, {world.events / max(wall, 1e-9) / 1e6:.1f} M events/s"
    )


def _clear() -> None:
    if sys.stderr.isatty():
        print("\r" + " " * 100 + "\r", end="", file=sys.stderr, flush=True)
