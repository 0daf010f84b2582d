# SPDX-License-Identifier: Apache-2.0
"""Runs programs and test suites of others over Verbena; writes the results to compatibility.md.

python docs/generate/compatibility.py [PART ...]

Parts, each with its own place in the page: suite (rdma-core's tests as Debian ships them),
perftest, programs (others), latest (the tests of rdma-core's newest release, which
scripts/rdma-core-latest.sh has built in build/rdma-core), fabtests (libfabric's, which
scripts/fabtests.sh has built in build/fabtests); without a name the first three. The folder of the
repository must be on PYTHONPATH. Exit status 1: something failed.
"""

from __future__ import annotations

import datetime
import platform
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import marks

import verbena
from tests.suite import accepted, fabtests, perftest, programs, rdma_core
from tests.suite.outcome import Outcome
from tests.suite.rdma_core import Case

PAGE = Path(__file__).parent.parent / "compatibility.md"
LATEST = Path("build/rdma-core")
FABTESTS = Path("build/fabtests")
ENDS = ("passed", "skipped", "failed")
Made = tuple[str, bool]  # a part of the page; whether something failed


def say(text: object) -> None:
    print(text, file=sys.stderr, flush=True)


def table(head: Iterable[str], align: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [head, align, *(map(str, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def code(text: str) -> str:
    return f"`{text}`"


def version_of(package: str) -> str | None:
    command = ["dpkg-query", "-W", "-f", "${Version}", package]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def conditions(versions: str) -> str:
    """Return the lines with date and versions."""
    system = platform.freedesktop_os_release().get("PRETTY_NAME", "?")
    lines = [
        f"Date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        f"Verbena {verbena.__version__}, on {system}, Linux {platform.release()}",
        versions,
    ]
    return "\n".join(f"* {line}" for line in lines) + "\n\n"


def versions(*packages: str) -> str:
    found = [(package, version_of(package)) for package in packages]
    return "Debian's " + ", ".join(f"{name} {version}" for name, version in found if version)


# ---- rdma-core's tests -------------------------------------------------------------------------


def run_suite(tests: Path, python: str, env: dict[str, str]) -> tuple[list[Case], list[str]]:
    """Return the cases of every file, and the problems."""
    cases: list[Case] = []
    wrong: list[str] = []
    for name in rdma_core.files(tests):
        result = rdma_core.run(tests, name, python=python, env=env)
        cases += result.cases
        wrong += [f"{name}: {problem}" for problem in rdma_core.problems(result)]
        say(f"{name}: {dict(Counter(case.outcome for case in result.cases))}")
    return cases, wrong


def suite_tables(cases: list[Case], wrong: list[str]) -> str:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for case in cases:
        counts[case.file][case.outcome] += 1
        counts["together"][case.outcome] += 1
    counts["together"] = counts.pop("together")
    rows = [
        (
            name if name == "together" else code(name),
            count["ok"],
            count["skipped"] or "",
            (count["FAIL"] + count["ERROR"]) or "",
        )
        for name, count in counts.items()
    ]
    made = table(("file", "passed", "skipped", "failed"), ("---", "--:", "--:", "--:"), rows)
    if wrong:
        made += "\nWhat went wrong:\n\n" + "".join(f"* {line}\n" for line in wrong)
    return made + "\nSkipped:\n\n" + skipped_table(cases)


def skipped_table(cases: list[Case]) -> str:
    """Return a table of skips by file and reason, explained by the list of accepted skips."""
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for case in cases:
        if case.outcome == "skipped":
            reason = case.reason.replace("|", "\\|")
            groups[case.file, reason, accepted.why(case) or ""].append(case.name)
    rows = [
        (code(file), names[0].partition(".")[2] if len(names) == 1 else len(names), reason, why)
        for (file, reason, why), names in groups.items()
    ]
    head = ("file", "cases", "the suite says", "because")
    return table(head, ("---", "---", "---", "---"), rows)


def suite() -> Made:
    with tempfile.TemporaryDirectory() as folder:
        tests = rdma_core.unpack(Path(folder))
        cases, wrong = run_suite(tests, rdma_core.DEBIAN_PYTHON, {})
    made = conditions(versions("rdma-core", "python3-pyverbs"))
    return made + suite_tables(cases, wrong), bool(wrong)


def latest() -> Made:
    tests, modules, python, version = (LATEST / "ready").read_text().splitlines()
    cases, wrong = run_suite(Path(tests), python, {"PYTHONPATH": modules})
    made = conditions(f"rdma-core {version}, its pyverbs built from source")
    return made + suite_tables(cases, wrong), bool(wrong)


# ---- perftest ----------------------------------------------------------------------------------


def run_modes() -> dict[str, list[tuple[perftest.Mode, Outcome]]]:
    """By the option, in its order."""
    done: dict[str, list[tuple[perftest.Mode, Outcome]]] = defaultdict(list)
    for mode in perftest.modes():
        outcome = perftest.outcome(mode)
        if outcome.status != "passed":
            say(f"{mode}: {outcome}")
        done[perftest.label(mode.option)].append((mode, outcome))
    return done


def otherwise(runs: list[tuple[perftest.Mode, Outcome]]) -> str:
    """Return the runs that did not pass, by reason."""
    groups: dict[str, list[str]] = defaultdict(list)
    for mode, outcome in runs:
        if outcome.status != "passed":
            groups[f"{outcome.status}: {outcome.reason}"].append(mode.where)
    return "; ".join(
        f"{reason} ({', '.join(where)})" if len(where) < len(runs) else reason
        for reason, where in groups.items()
    )


def perftest_modes() -> Made:
    done = run_modes()
    rows = [
        (
            label,
            f"{sum(outcome.status == 'passed' for _, outcome in runs)} of {len(runs)}",
            otherwise(runs),
        )
        for label, runs in done.items()
    ]
    failed = any(outcome.status == "failed" for runs in done.values() for _, outcome in runs)
    head = ("options", "passed", "otherwise")
    return conditions(versions("perftest")) + table(head, ("---", "--:", "---"), rows), failed


# ---- other programs ----------------------------------------------------------------------------


def other_programs() -> Made:
    groups: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    failed = False
    for program in programs.programs():
        outcome = programs.outcome(program)
        failed |= outcome.status == "failed"
        if outcome.status != "passed":
            say(f"{program.name}: {outcome}")
        groups[program.group].append((code(program.name), outcome.status, outcome.reason))
    made = conditions(versions("ibverbs-utils", "ucx-utils", "mpich", "libfabric-bin", "qperf"))
    for group, rows in groups.items():
        head = ("run", "outcome", "because")
        made += f"### {group}\n\n" + table(head, ("---", "---", "---"), rows) + "\n"
    return made, failed


# ---- libfabric's tests -------------------------------------------------------------------------


def libfabric() -> Made:
    """Each case with each provider, and how it ended."""
    built = fabtests.Built.within(FABTESTS)
    rows: dict[str, dict[str, str]] = defaultdict(dict)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for provider, case, outcome in fabtests.outcomes(built):
        counts[provider][outcome.status] += 1
        rows[case][provider] = f"{outcome.status}: {outcome.reason}".removesuffix(": ")
        say(f"{provider}: {case}: {outcome}")
    made = conditions(f"fabtests of libfabric {built.version}, with Debian's libfabric")
    summary = [[code(name), *(count[each] for each in ENDS)] for name, count in counts.items()]
    made += table(("provider", *ENDS), ("---", "--:", "--:", "--:"), summary) + "\n"
    body = [[code(case), *(row[each] for each in fabtests.PROVIDERS)] for case, row in rows.items()]
    made += table(("case", *map(code, fabtests.PROVIDERS)), ("---", "---", "---"), body)
    return made, any(count["failed"] for count in counts.values())


# ---- the page ----------------------------------------------------------------------------------


def replaced(page: str, section: str, made: str) -> str:
    """Return the page with the text between the marks of a section replaced."""
    begin = f"<!-- {section}: made by generate/compatibility.py -->\n"
    return marks.replaced(page, begin, f"<!-- end of {section} -->", made.strip() + "\n")


PARTS: dict[str, Callable[[], Made]] = {
    "suite": suite,
    "perftest": perftest_modes,
    "programs": other_programs,
    "latest": latest,
    "fabtests": libfabric,
}


def main(names: list[str]) -> int:
    if unknown := set(names) - set(PARTS):
        say(f"no such part: {', '.join(unknown)}\n\n{__doc__}")
        return 2
    anything_failed = False
    for name in names or list(PARTS)[:3]:
        made, failed = PARTS[name]()
        PAGE.write_text(replaced(PAGE.read_text(), name, made))
        anything_failed |= failed
    return 1 if anything_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
