# SPDX-License-Identifier: Apache-2.0
"""`verbena demo`: what it shows, and what it says when a step cannot run."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support import verbena_command
from verbena import demo as program
from verbena.measure.case import Effort, Sample, Unit
from verbena.measure.cores import Cores


def demo(**variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        verbena_command("demo"),
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )


@pytest.fixture(scope="module")
def shown() -> str:
    """What a demo that succeeds prints."""
    done = demo()
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.debian
def test_pingpong_ran(shown: str) -> None:
    assert re.search(r"\b100000 iters in [\d.]+ seconds", shown)


@pytest.mark.debian
def test_the_last_line_says_how_to_go_on(shown: str) -> None:
    assert ". .venv/bin/activate" in shown.rstrip().splitlines()[-1]


@pytest.mark.debian
def test_write_bandwidth_ran(shown: str) -> None:
    found = re.search(r"#bytes .*\n\s+1048576 5000 \S+ ([\d.]+)", shown)
    assert found
    assert float(found[1]) > 0


@pytest.mark.debian
def test_array_reached_the_other_process(shown: str) -> None:
    writer, target, verifier = (
        int(re.search(pattern, shown)[1])
        for pattern in (r"process (\d+) wrote", r"into process (\d+)", r"process (\d+) found every")
    )
    assert target == verifier != writer


@pytest.mark.debian
def test_the_table_says_what_it_compares(shown: str) -> None:
    words = " ".join(shown.split())
    assert "Verbena's figures are those of a copy within one host" in words
    assert "TCP goes through the kernel" in words


@pytest.mark.debian
def test_table_compares_with_tcp(shown: str) -> None:
    latencies = re.search(r"8 bytes.*? ([\d.,]+) µs +([\d.,]+) µs +([\d.,]+) µs", shown)
    bandwidths = re.search(r"1 MiB pieces.*? ([\d.,]+) MiB/s +([\d.,]+) MiB/s", shown)
    assert latencies
    assert bandwidths
    values = [float(text.replace(",", "")) for text in (*latencies.groups(), *bandwidths.groups())]
    assert min(values) > 0


@pytest.mark.debian
def test_missing_programs_name_their_packages(tmp_path: Path) -> None:
    done = demo(PATH=str(tmp_path))
    assert done.returncode == 1
    assert "ibv_rc_pingpong is not installed: sudo apt-get install ibverbs-utils" in done.stdout
    assert "ib_write_bw is not installed: sudo apt-get install perftest" in done.stdout
    assert "found every number correct" in done.stdout  # the other steps still run


@pytest.mark.not_sanitized("a sanitized build asks gcc, on the PATH, for its runtime")
@pytest.mark.debian
def test_failing_program_is_quoted(tmp_path: Path) -> None:
    program = tmp_path / "ibv_rc_pingpong"
    program.write_text("#!/bin/sh\necho no luck today\nexit 3\n")
    program.chmod(0o755)
    done = demo(PATH=str(tmp_path))  # without perftest, which would take most of the time
    assert done.returncode == 1
    assert "FAILED: ibv_rc_pingpong failed with exit status 3: no luck today" in done.stdout
    assert "verbena doctor" in done.stdout


def test_unknown_option_is_refused() -> None:
    done = subprocess.run(verbena_command("demo", "--fast"), capture_output=True, text=True)
    assert done.returncode == 2
    assert "--fast" in done.stderr


@pytest.mark.debian
def test_on_one_core_it_ends_soon_and_says_what_it_means() -> None:
    """One core alone: no program gets iterations for which each message costs a time slice."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        done = demo()
    finally:
        os.sched_setaffinity(0, before)
    assert done.returncode == 0, done.stdout
    assert re.search(r"\b1000 iters in [\d.]+ seconds", done.stdout)
    assert f"on core {min(before)} alone" in done.stdout
    assert re.search(r"8 bytes.*? ([\d.,]+) µs +([\d.,]+) µs +([\d.,]+) µs", done.stdout)
    assert "ib_write_lat looks at its own memory" in done.stdout


def test_on_a_busy_machine_the_times_are_said_to_have_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fewer messages, too: each may wait until both processes happen to run."""
    efforts: list[Effort] = []

    class Latency:
        unit = Unit.MICROSECONDS

        def measure(self, effort: Effort, where: Cores) -> Sample:
            efforts.append(effort)
            return Sample(1.0)

    monkeypatch.setattr(os, "getloadavg", lambda: (9.5, 0.0, 0.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    assert "load 9.5 on 2 cores" in program.busy()
    assert "load 9.5" in program.advice("ib_write_lat did not end in time and said nothing")
    assert "load" not in program.advice("ib_write_lat failed with exit status 1")
    assert program.measured(Latency(), Cores(0, 1)) == "1.00 µs"  # type: ignore[arg-type]
    assert efforts[0].iterations(1e7) == 30_000
    monkeypatch.setattr(os, "getloadavg", lambda: (0.5, 0.0, 0.0))
    assert program.busy() == ""
    program.measured(Latency(), Cores(0, 1))  # type: ignore[arg-type]
    assert efforts[1].iterations(1e7) == 3_000_000
