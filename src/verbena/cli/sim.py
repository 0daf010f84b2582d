# SPDX-License-Identifier: Apache-2.0
"""`verbena sim`: runs a scenario, prints a summary, and writes the files that were asked for.

verbena.cli starts main(). variants.py runs the variants, verbena.sim the simulation itself.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import textwrap
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verbena.cli.exact import ExactParser
from verbena.cli.paths import make_folder, prepare_file
from verbena.cli.progress import Line, expected
from verbena.cli.run import capture_bytes
from verbena.cli.variants import Run, jobs_for, run_all

if TYPE_CHECKING:
    from verbena.sim import Scenario, ScenarioResult

INTERRUPTED = 128 + 2
FORMATS = ("png", "svg", "pdf")
# Precede a scenario's closing text where it may not hold for what was run.
OTHER_SETTINGS = (
    "This run had other settings than the file. With those of the file, and in all its variants,"
    " the scenario shows: "
)
SOME_VARIANTS = "In all its variants the scenario shows: "


def parser() -> argparse.ArgumentParser:
    made = ExactParser(
        prog="verbena sim",
        usage="verbena sim [OPTION ...] SCENARIO\n       verbena sim --list",
        description="Simulate a network in virtual time: a scenario is a TOML file, or the name of "
        "a ready one. Prints a summary; writes pictures and files on request.",
        epilog="LINK is s0-h1 or s0[1], as the scenario names links. A scenario that has variants "
        "runs in each of them, several at once, and their names are added to those of files and "
        "folders; with --plots a picture has them side by side. Ctrl-C "
        "ends a run, and what it has measured is shown and written. Exit status 1: the scenario is "
        "wrong, a file cannot be written, a run ended in a deadlock or stalled where its scenario "
        "does not expect it, or a flow of it failed, be it one of many, where its scenario does "
        'not allow it (allow = ["failures"]). The lines FAILED of what is printed say why. Flows '
        "that were refused a reservation, or had no time to end, are no failure.",
    )
    made.add_argument("scenario", nargs="?", metavar="SCENARIO", help="a TOML file or a name")
    made.add_argument(
        "--list", action="store_true", help="list the ready scenarios, and what they show"
    )
    made.add_argument("--show", action="store_true", help="print the scenario's file and end")
    made.add_argument("--seed", type=int, metavar="N", help="a seed in place of the scenario's")
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
        "--all-variants", action="store_true", help="all variants, as without --variant"
    )
    made.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="variants that run at once (default: as many as there are cores and memory for)",
    )
    made.add_argument(
        "--plots",
        type=Path,
        metavar="FOLDER",
        help="draw throughput, queues, completion times and links into this folder",
    )
    made.add_argument(
        "--format", choices=FORMATS, default="png", help="format of the pictures (%(default)s)"
    )
    made.add_argument("--parquet", type=Path, metavar="FOLDER", help="write all arrays as tables")
    made.add_argument(
        "--pcapng",
        action="append",
        default=[],
        metavar="LINK=FILE",
        help="write the packets of a link, which Wireshark opens (may be repeated)",
    )
    made.add_argument(
        "--pcapng-bytes",
        type=capture_bytes,
        metavar="N",
        help="with --pcapng: keep the first N bytes of each packet (64 to 4352; otherwise all)",
    )
    made.add_argument(
        "--timeline", type=Path, metavar="FILE", help="write a trace for Perfetto (ui.perfetto.dev)"
    )
    made.add_argument("--quiet", action="store_true", help="no progress, and no estimates")
    return made


def main(arguments: list[str]) -> int:
    """Run `verbena sim`. Returns its exit status."""
    made = parser()
    options = made.parse_args(arguments)
    try:
        if options.list:
            print(listed())
            return 0
        if options.scenario is None:
            made.error("name a scenario; verbena sim --list has some")
        if options.variant and options.all_variants:
            made.error("--variant and --all-variants: it is one or the other")
        if options.jobs is not None and options.jobs < 1:
            made.error(f"--jobs {options.jobs}: it is to be 1 or more")
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
    base = {key: value for key, value in changes.items() if key.startswith("variants.")}
    if base or not scenario.variants:
        scenario = scenario.changed(base if scenario.variants else changes, "--set")
    if options.all_variants and not scenario.variants:
        raise ValueError(f"{scenario.document.name} has no variants")
    names = list(dict.fromkeys(options.variant or scenario.variants)) or [None]
    own_changes = {key: changes[key] for key in changes.keys() - base.keys()}
    chosen = [
        (name, scenario if name is None else scenario.variant(name, own_changes, "--set"))
        for name in names
    ]
    if scenario.teaches:
        print(textwrap.fill(scenario.teaches, 96), end="\n\n", flush=True)
    own = [name if len(chosen) > 1 else None for name, _ in chosen]
    runs = [
        Run(
            one,
            {link: _named(Path(file), name) for link, file in captures.items()},
            options.pcapng_bytes,
        )
        for name, (_, one) in zip(own, chosen, strict=True)
    ]
    line, jobs = Line(options.quiet), jobs_for(runs, options.jobs)
    for _, one in chosen:
        say_before(one, line)
    status, results = 0, []
    for number, result in run_all(runs, jobs, line):
        status = max(status, tell(chosen[number][1], result, options, own[number]))
        for file in runs[number].captures.values():
            print(f"  wrote {file}")
        results.append(result)
    if any(result.end == "interrupted" for result in results) or len(results) < len(chosen):
        return INTERRUPTED
    print_costs([(name, one, result) for (name, one), result in zip(chosen, results, strict=True)])
    if options.plots and len(results) > 1 and not compare(results, options):
        status = 1
    if scenario.see:
        whole = set(names) >= set(scenario.variants)
        before = OTHER_SETTINGS if changes else "" if whole else SOME_VARIANTS
        print("\n" + textwrap.fill(before + scenario.see, 96))
    return status


def tell(
    scenario: Scenario, result: ScenarioResult, options: argparse.Namespace, variant: str | None
) -> int:
    """Print and write a run's results. Returns the exit status: 1 if the run or a file failed."""
    print(result.summary(), flush=True)
    if options.timeline or options.parquet:
        print_full_slices(scenario, result)
    written = write(result, options, variant)
    unexpected = result.end in ("deadlock", "stalled") and result.end != scenario.expect
    unexpected |= result.end != "interrupted" and failed(scenario, result)
    good = written and not result.captures_lost and result.wrong is None
    return int(unexpected or not good)


def print_full_slices(scenario: Scenario, result: ScenarioResult) -> None:
    """Say of which hosts the recorded slices, which timelines and tables show, end early."""
    from verbena.sim.scenario_inside import full_slices

    if scenario.inside is not None:
        for note in full_slices(scenario.inside, result.insides, result.nodes):
            print(f"  note: {note}", flush=True)


def print_costs(done: list[tuple[str | None, Scenario, ScenarioResult]]) -> None:
    """Print the costs that insides of hosts used, with their sources; those of some variants only
    with the variants' names."""
    from verbena.sim.scenario_inside import used_costs

    users: dict[str, list[str]] = {}
    for name, scenario, result in done:
        if scenario.inside is not None:
            for line in used_costs(scenario.inside, result.insides):
                users.setdefault(line, []).append(name or "")
    if users:
        print("costs of the insides, with their sources:")
    for line, names in users.items():
        print(f"  {line}" + ("" if len(names) == len(done) else f" [{', '.join(names)}]"))


def say_before(scenario: Scenario, line: Line) -> None:
    """Print, before a run, how long it may take, and on a terminal its notes, which the summary
    repeats."""
    if line.terminal:
        for note in scenario.notes:
            print(f"{scenario.name}: note: {note}", file=sys.stderr)
    if not line.quiet and (long := expected(scenario)):
        print(f"verbena sim: {scenario.name}: {long}", file=sys.stderr, flush=True)


def failed(scenario: Scenario, result: ScenarioResult) -> bool:
    """Return whether flows failed that the scenario does not allow to; print how many."""
    count = sum(sum(reasons.values()) for reasons in result.failures.values())
    if not count or "failures" in scenario.allow:
        return False
    print(
        f"verbena sim: {result.name}: {count} of {len(result.flows)} flows failed", file=sys.stderr
    )
    return True


def prepare(options: argparse.Namespace) -> None:
    """Check packages and make folders before the run, which may be long. Raises OSError."""
    for folder, package in ((options.plots, "matplotlib"), (options.parquet, "pyarrow")):
        if folder is None:
            continue
        if importlib.util.find_spec(package) is None:
            raise ModuleNotFoundError(f"{package} is missing: pip install {package}")
        make_folder(folder)
    if options.timeline:
        prepare_file(options.timeline)


def load(name: str) -> Scenario:
    """Load a file or a ready scenario. Raises OSError, which names the ready ones."""
    from verbena.sim import Scenario

    return Scenario.load(name)


def listed() -> str:
    """Return the names of the ready scenarios, each with what it shows."""
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
    """Return the captures' files by link."""
    captures: dict[str, str] = {}
    for word in words:
        link, equals, file = word.partition("=")
        if not (link and equals and file):
            made.error(f"--pcapng {word}: it is to be LINK=FILE, as in s0-h1=out.pcapng")
        if captures.setdefault(link, file) != file:
            made.error(f"--pcapng {word}: {link} has the file {captures[link]} already")
    return captures


def _change(word: str) -> tuple[str, Any]:
    """Parse KEY=VALUE: the value is TOML, or else text. Raises ValueError."""
    key, equals, value = word.partition("=")
    if not (key and equals):
        raise ValueError(f"--set {word}: it is to be KEY=VALUE")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def _named(path: Path, variant: str | None) -> Path:
    """Return a variant's file name: out.pcapng becomes out-lossy.pcapng."""
    return path if variant is None else path.with_name(f"{path.stem}-{variant}{path.suffix}")


def write(result: ScenarioResult, options: argparse.Namespace, variant: str | None) -> bool:
    """Write the files that the options ask for. Prints their names; returns whether all
    succeeded."""
    makes: tuple[tuple[Path | None, Callable[[Path], object]], ...] = (
        (
            options.plots and options.plots / (variant or ""),
            lambda folder: result.plot(folder, options.format),
        ),
        (options.parquet and options.parquet / (variant or ""), result.to_parquet),
        (options.timeline and _named(options.timeline, variant), result.timeline),
    )
    good = True
    for path, make in makes:
        if path is None:
            continue
        good &= _written(path, make)
    return good


def compare(results: list[ScenarioResult], options: argparse.Namespace) -> bool:
    """Draw the variants side by side. Returns whether that succeeded."""
    from verbena.sim import plots

    path = options.plots / f"variants.{options.format}"
    return _written(path, lambda path: plots.compare(results, path))


def _written(path: Path, make: Callable[[Path], object]) -> bool:
    try:
        made = make(path)
    except OSError as error:
        reason = error.__cause__ or error  # the sentence around it says no more
        print(f"verbena sim: {path} cannot be written: {reason}", file=sys.stderr)
        return False
    for each in made if isinstance(made, list) else [path]:
        print(f"  wrote {each}")
    return True
