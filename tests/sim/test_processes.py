# SPDX-License-Identifier: Apache-2.0
"""Programs in processes of their own: the same packets at the same times as in one process, and
what is said when a process ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sim.fabrics import star
from tests.sim.far_programs import is_refused, waits_for_ever
from tests.sim.programs import echo, ping
from verbena import sim
from verbena.sim import remote
from verbena.sim.processes import Processes

PORT = 7471
CREDITS = {"lanes": [{"flow": "credits", "room": 16 << 10}] * 2}
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ethernet": ({}, {}),
    "infiniband": ({"framing": "infiniband"}, {}),
    "lanes": ({"framing": "infiniband"}, CREDITS),
    "doorbell": ({"doorbell": 500_000, "receive_latency": 100_000, "bus_rate": 50 * 10**9}, {}),
    "dcqcn": ({"congestion": {"kind": "dcqcn"}}, {"mark": (0, 1000, 1.0)}),
    "hpcc": ({"congestion": {"kind": "hpcc", "base_rtt": 10**6}}, {}),
}


def far(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tests.sim.far_programs", *map(str, arguments)]


def world(
    options: dict[str, Any], switch: dict[str, Any], capture: Path | None = None
) -> sim.World:
    made = sim.World(3, timeout=8, **options)
    star(made, 3, **switch)
    if capture:
        made.capture(0, 0, capture)
    return made


def left(result: sim.Result) -> tuple[Any, ...]:
    of = result.world
    return result.finished, result.returned, of.now, of.events, of.links().tobytes()


@pytest.mark.parametrize("setting", SETTINGS)
def test_packets_are_those_of_one_process_to_the_picosecond(setting: str, tmp_path: Path) -> None:
    near, across = tmp_path / "near.pcapng", tmp_path / "across.pcapng"
    options = SETTINGS[setting]
    together = sim.run(
        {"h0": echo(PORT, 60, 3000), "h1": ping("h0", PORT, 60, 3000)}, world(*options, near)
    )
    apart = sim.run_processes(
        {"h0": far("echo", PORT, 60, 3000), "h1": far("ping", "h0", PORT, 60, 3000)},
        world(*options, across),
    )
    assert left(apart) == left(together)
    assert across.read_bytes() == near.read_bytes()
    assert apart.world.check(at_rest=True) is None


def test_time_passes_for_programs_that_only_wait() -> None:
    commands = {"h0": far("sleeps", 0.25), "h1": far("blocks", 1.5), "h2": far("sleeps", 2)}
    result = sim.run_processes(commands, world({}, {}))
    assert result.returned == {"h0": 0.25, "h1": (False, 1.5), "h2": 2.0}
    assert result.now == 2.0


def test_streams_carry_more_than_a_segment_has_room_for() -> None:
    commands = {"h0": far("sinks", PORT), "h1": far("pours", "h0", PORT, 300_000)}
    result = sim.run_processes(commands, world({}, {}))
    assert result.returned["h0"] == 300_000


def test_nobody_listens() -> None:
    expected = sim.run({"h1": is_refused("h0")}, world({}, {})).returned["h1"]
    others: list[dict[str, list[str]]] = [{"h0": far("sleeps", 1)}, {}]
    for other in others:
        commands = {**other, "h1": far("is_refused", "h0")}
        assert sim.run_processes(commands, world({}, {})).returned["h1"] == expected


# ---- processes that end --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (("dies", 0.5), "at 0.500000000 s the process of h1 was killed by signal 9"),
        (("raises", 0.25), "at 0.250000000 s the process of h1 ended with status 1"),
    ],
)
def test_a_program_that_ends_is_named(program: tuple[Any, ...], says: str) -> None:
    commands = {"h0": far("sleeps", 3), "h1": far(*program)}
    with pytest.raises(sim.ProgramEnded, match=says):
        sim.run_processes(commands, world({}, {}))


def test_a_deadlock_is_told_once(capfd: pytest.CaptureFixture[str]) -> None:
    """By the world's process, which names the place in each program that waits."""
    commands = {"h0": far("waits_for_ever"), "h1": far("sleeps", 3), "h2": far("blocks_for_ever")}
    with pytest.raises(sim.Deadlock, match=r"nothing is left to happen at 3\.0") as caught:
        sim.run_processes(commands, world({}, {}))
    lines = str(caught.value).splitlines()[1:]
    assert [line.split(": ")[0].strip() for line in lines] == ["h0", "h2"]
    assert [line.rpartition(", in ")[2] for line in lines] == [
        "waits_for_ever",
        "blocks_for_ever",
    ]
    assert all("far_programs.py" in line for line in lines)
    assert "Traceback" not in capfd.readouterr().err


def test_a_peer_that_is_killed_ends_the_run() -> None:
    commands = {"h0": far("echo_and_die", PORT, 5), "h1": far("ping", "h0", PORT, 20)}
    with pytest.raises(sim.ProgramEnded, match="the process of h0 was killed by signal 9"):
        sim.run_processes(commands, world({}, {}))


def test_a_process_that_is_killed_while_it_waits_is_named() -> None:
    commands = {"h0": far("is_killed", PORT), "h1": far("kills", "h0", PORT)}
    with pytest.raises(sim.ProgramEnded, match="the process of h0 was killed by signal 9"):
        sim.run_processes(commands, world({}, {}))


def test_a_command_that_runs_no_program_is_named() -> None:
    with pytest.raises(sim.ProgramEnded, match="the process of h1 ended with status 3"):
        sim.run_processes(
            {"h0": far("sleeps", 3), "h1": [sys.executable, "-c", "raise SystemExit(3)"]},
            world({}, {}),
        )


def test_programs_notice_the_end_of_the_world() -> None:
    script = (
        "import sys; from tests.sim.test_processes import far, world; from verbena import sim\n"
        "sim.run_processes({'h0': far('waits_for_ever'), 'h1': far('kills_its_parent', 0.5)},"
        " world({}, {}))"
    )
    # The pipe ends when both have ended. Into a file they might write at one place.
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=40)
    assert ended.returncode == -signal.SIGKILL
    said = ended.stderr  # of both, which may write their lines in pieces, and in turn
    for piece in ("WorldEnded", "the process of the simulated world has ended"):
        assert said.count(piece) == 2, said


def test_a_program_needs_a_world() -> None:
    assert "VERBENA_SIM" not in os.environ
    with pytest.raises(RuntimeError, match="run_processes starts such programs"):
        remote.run(waits_for_ever)


def test_a_host_has_one_program() -> None:
    with pytest.raises(ValueError, match="h7"):
        sim.run_processes({"h7": far("sleeps", 1)}, world({}, {}))
    hosts = sim.Hosts(world({}, {}))
    with Processes(hosts) as processes:
        processes.start("h0", far("sleeps", 1))
        with pytest.raises(ValueError, match="h0 has a program already"):
            processes.start("h0", far("sleeps", 1))
