# SPDX-License-Identifier: Apache-2.0
"""rdma-core's own test-suite: where it is, how a file of it is run, what became of each case."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.suite import processes

DEBIAN_TESTS = Path("/usr/share/doc/rdma-core/tests")
DEBIAN_PYTHON = "/usr/bin/python3"  # the one that has pyverbs

# Files for one vendor's devices.
OTHERS = re.compile(r"test_(mlx5|efa|cuda|irdma)")
# The connection manager's file wants an interface besides lo, and reads sysfs about it: it gets
# one in a network namespace.
CONNECTIONS = "test_rdmacm"
WITH_INTERFACE = (
    "mount -t sysfs sysfs /sys && ip link set lo up"
    " && ip link add v0 type veth peer name v1 && ip link set v0 up"
    ' && ip link set v1 up && ip address add 192.0.2.7/24 dev v0 && exec "$0" "$@"'
)
LIMIT = 60.0  # seconds for a file

HEADER = re.compile(r"^(?P<case>test\w+) \((?P<where>[\w.]+)\)", re.MULTILINE)
OUTCOME = re.compile(r"(?:^|\s)(ok|FAIL|ERROR|skipped '(?P<reason>.*)')$", re.MULTILINE)
RAN = re.compile(r"^Ran (\d+) tests? in", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """One case of a file. `outcome` is ok, skipped, FAIL or ERROR; only a skip has a reason."""

    file: str
    name: str
    outcome: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.file}.{self.name}: {self.outcome}" + (self.reason and f", {self.reason}")


@dataclass(frozen=True)
class Result:
    """A file's cases; `status` is its exit status, None where it did not end in time."""

    cases: tuple[Case, ...]
    status: int | None
    output: str


def unpack(folder: Path) -> Path:
    """A copy of the tests as Debian ships them, those that are packed unpacked, nothing changed."""
    tests = folder / "tests"
    shutil.copytree(DEBIAN_TESTS, tests)
    for packed in tests.glob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    return tests


def files(tests: Path) -> list[str]:
    """The names, without `.py`, of the files that are for every device."""
    return sorted(path.stem for path in tests.glob("test_*.py") if not OTHERS.match(path.stem))


def run(
    tests: Path, name: str, *, python: str = DEBIAN_PYTHON, env: dict[str, str] | None = None
) -> Result:
    """Run one file over Verbena, in a process of its own."""
    first = ("unshare", "-nm", "sh", "-c", WITH_INTERFACE) if name == CONNECTIONS else ()
    program = (*first, python, str(tests / "run_tests.py"), "--dev", "verbena0", "--gid", "1", "-v")
    try:
        done = processes.run(*program, f"tests.{name}", env=env, timeout=LIMIT)
    except subprocess.TimeoutExpired as late:
        output = late.stdout or b""
        text = output.decode(errors="replace") if isinstance(output, bytes) else output
        return Result(tuple(parse(name, text)), None, text)
    return Result(tuple(parse(name, done.stdout)), done.returncode, done.stdout)


def parse(name: str, output: str) -> list[Case]:
    """The cases in what unittest -v prints: a line with the case, one with its description if it
    has one, and the outcome at the end of that, or below it where the case itself has printed."""
    said = output.partition("\n======")[0].partition("\n------")[0]
    starts = list(HEADER.finditer(said))
    ends = [start.start() for start in starts[1:]] + [len(said)]
    cases = []
    for start, end in zip(starts, ends, strict=True):
        found = OUTCOME.search(said, start.end(), end)
        where = start["where"].split(".")
        klass = where[-2] if where[-1] == start["case"] else where[-1]
        outcome = found[1].split()[0] if found else "ERROR"
        reason = (found["reason"] or "") if found else ""
        cases.append(Case(name, f"{klass}.{start['case']}", outcome, reason))
    return cases


def problems(result: Result) -> list[str]:
    """What is wrong with a file as a whole or with a case of it, skips aside."""
    found = [str(case) for case in result.cases if case.outcome in ("FAIL", "ERROR")]
    ran = RAN.search(result.output)
    if result.status is None:
        found.append(f"still ran after {LIMIT:g} s")
    elif not ran or int(ran[1]) != len(result.cases):
        found.append(f"{len(result.cases)} outcomes were read; the file says: {ran and ran[0]}")
    elif result.status:
        found.append(f"exit status {result.status}")
    return found
