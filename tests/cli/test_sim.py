# SPDX-License-Identifier: Apache-2.0
"""`verbena sim`, as a program."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import verbena_command
from verbena import cli
from verbena.sim import ScenarioResult, ready

TEXT = """\
teaches = "How two share a port."
see = "Both end at once."

[fabric]
topology = "one_switch"
hosts = 3
rate = "100GbE"

[[traffic]]
name = "both"
pattern = "flows"
from = ["h0", "h1"]
to = "h2"
size = "64 KiB"

[samples]
every = "1 us"
"""
VARIANTS = '\n[variants.small]\n"traffic.both.size" = 10\n[variants.large]\n'


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "net.toml"
    path.write_text(TEXT)
    return path


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def sim(*words: str | Path) -> Done:
    """In this process: it has imported everything already."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            status = cli.main(["sim", *map(str, words)])
        except SystemExit as end:
            status = int(end.code or 0)
    return Done(status, out.getvalue(), errors.getvalue())


def test_a_scenario_is_run_and_summed_up(scenario: Path) -> None:
    done = sim(scenario)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "How two share a port."
    assert lines[2].startswith("net: done after 1")
    assert lines[3].startswith("  both: 2 of 2 flows of 64 KiB, median ")
    assert lines[-1] == "Both end at once."
    assert "64 sent = 64 delivered + 0 dropped + 0 under way" in done.stdout


def test_all_files_are_written(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = sim(
        scenario, "--plots", out / "plots", "--parquet", out / "tables", "--timeline",
        tmp_path / "t.json", "--pcapng", f"s0-h2={tmp_path / 'p.pcapng'}", "--seed", "9",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in (out / "plots").iterdir()} == {
        "queues.png", "completion.png", "links.png"}  # fmt: skip
    result = ScenarioResult.from_parquet(out / "tables")
    assert result.seed == 9
    assert len(result.flows) == 2
    assert len(json.loads((tmp_path / "t.json").read_text())["traceEvents"]) > 5
    assert (tmp_path / "p.pcapng").stat().st_size > 8192


def test_a_scenario_may_come_through_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_text(TEXT))
    writer.start()
    done = sim(path)
    writer.join()
    assert done.returncode == 0
    assert "pipe: done after" in done.stdout


def test_variants_have_files_of_their_own(scenario: Path, tmp_path: Path) -> None:
    scenario.write_text(TEXT + VARIANTS)
    done = sim(scenario, "--timeline", tmp_path / "t.json", "--parquet", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert "net, small: done" in done.stdout
    assert "net, large: done" in done.stdout
    assert (tmp_path / "t-small.json").exists()
    assert (tmp_path / "t-large.json").exists()
    assert ScenarioResult.from_parquet(tmp_path / "out" / "small").flows["bytes"].tolist() == [
        10,
        10,
    ]
    one = sim(scenario, "--variant", "small", "--timeline", tmp_path / "one.json")
    assert "large" not in one.stdout
    assert (tmp_path / "one.json").exists()


def test_settings_are_set(scenario: Path) -> None:
    done = sim(scenario, "--set", "traffic.both.size=20", "--set", "fabric.rate=10GbE")
    assert "flows of 20 B" in done.stdout
    for word, says in (
        ("fabric.hosts=0", "net.toml, as set here: fabric.hosts"),
        ("fabric", "--set fabric: it is to be KEY=VALUE"),
    ):
        wrong = sim(scenario, "--set", word)
        assert wrong.returncode == 1
        assert says in wrong.stderr


def test_mistakes_are_said_without_a_traceback(scenario: Path, tmp_path: Path) -> None:
    scenario.write_text(TEXT.replace("hosts = 3", "hosts = 3\nhots = 3"))
    done = sim(scenario)
    assert done.returncode == 1
    assert done.stderr == (
        "verbena sim: net.toml, line 7: fabric.hots is unknown (is 'hosts' meant?): in [fabric] "
        "may be bit_error_rate, delay, hosts, length_m, rate, switch_delay, switch_length_m, "
        "switch_rate, topology\n"
    )
    missing = sim(tmp_path / "no.toml")
    assert missing.returncode == 1
    assert "no such file, and no ready scenario: bad-cable, " in missing.stderr
    scenario.write_text(TEXT)
    assert sim(scenario, "--pcapng", "x").returncode == 2
    twice = sim(scenario, "--pcapng", "s0-h1=a", "--pcapng", "s0-h1=b")
    assert (twice.returncode, "s0-h1 has the file a already" in twice.stderr) == (2, True)
    assert "no such link" in sim(scenario, "--pcapng", "h0-h1=x").stderr
    assert sim().returncode == 2
    (tmp_path / "file").write_text("")
    before = sim(scenario, "--parquet", tmp_path / "file")
    assert (before.returncode, before.stdout) == (1, "")  # not after the run
    assert "File exists" in before.stderr


def test_what_cannot_be_written_is_named_and_the_rest_is(scenario: Path, tmp_path: Path) -> None:
    folder = sim(scenario, "--timeline", tmp_path)
    assert (folder.returncode, folder.stdout) == (1, "")  # not after the run
    assert f"it is a folder: '{tmp_path}'" in folder.stderr
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "flows.parquet").mkdir()
    done = sim(scenario, "--parquet", tmp_path / "out", "--timeline", tmp_path / "t.json")
    assert done.returncode == 1
    assert f"verbena sim: {tmp_path / 'out'} cannot be written: " in done.stderr
    assert "net: done after" in done.stdout
    assert f"wrote {tmp_path / 't.json'}" in done.stdout
    full = sim(scenario, "--timeline", "/dev/full")
    assert (full.returncode, "No space left" in full.stderr) == (1, True)
    assert "verbena sim: /dev/full cannot be written" in full.stderr


def test_a_deadlock_is_a_failure_unless_it_is_expected(tmp_path: Path) -> None:
    done = sim("deadlock", "--variant", "shortest", "--quiet")
    assert done.returncode == 0
    assert "DEADLOCK after" in done.stdout
    assert "  blocked: s" in done.stdout
    assert sim("deadlock", "--variant", "shortest", "--set", "expect=done").returncode == 1


def test_failed_flows_are_a_failure_unless_they_are_allowed(scenario: Path) -> None:
    scenario.write_text(TEXT.replace("[[traffic]]", "[adapter]\ntimeout = 6\n[[traffic]]", 1))
    far = "fabric.delay=5 ms"
    done = sim(scenario, "--set", far)
    assert done.returncode == 1
    assert done.stderr == "verbena sim: net: 2 of 2 flows failed\n"
    assert "  FAILED: 2 of 2 flows of both: RETRY_EXC_ERR, no answer" in done.stdout
    assert "so its flows fail: adapter.timeout = 13 is longer" in done.stdout
    allowed = sim(scenario, "--set", far, "--set", 'allow=["failures"]')
    assert (allowed.returncode, allowed.stderr) == (0, "")
    assert "FAILED: 2 of 2" in allowed.stdout


def test_one_failed_flow_of_many_is_a_failure(scenario: Path) -> None:
    cut = '[adapter]\ntimeout = 4\n[[event]]\nlink = "h1-s0"\nat = 0\nup = false\n[[traffic]]'
    scenario.write_text(TEXT.replace("[[traffic]]", cut, 1))
    done = sim(scenario)
    assert (done.returncode, "1 of 2 flows failed" in done.stderr) == (1, True)


def test_flows_that_had_no_time_to_end_are_no_failure(scenario: Path) -> None:
    assert sim(scenario, "--set", "duration=2 us").returncode == 0


def test_the_list_says_what_each_teaches() -> None:
    done = sim("--list")
    assert done.returncode == 0
    heads = [line for line in done.stdout.splitlines() if line and not line.startswith(" ")]
    assert heads == ready.names()
    assert len(done.stdout.splitlines()) > 3 * len(heads)


def test_a_ready_scenario_can_be_looked_at() -> None:
    path = ready.find("incast")
    assert path is not None
    assert sim("incast", "--show").stdout == path.read_text()


def test_control_c_shows_what_was_measured(scenario: Path, tmp_path: Path) -> None:
    """On a terminal, where progress is shown meanwhile."""
    scenario.write_text(TEXT.replace('"64 KiB"', '"1 GiB"\nrepeat = 500'))
    ours, theirs = pty.openpty()
    command = verbena_command("sim", str(scenario), "--parquet", str(tmp_path / "out"))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        shown = b""
        while b"flows left" not in shown:
            shown += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 130
    assert "net: interrupted after" in out
    assert b" simulated in " in shown
    assert ScenarioResult.from_parquet(tmp_path / "out").end == "interrupted"


def test_help_needs_none_of_the_packages() -> None:
    """So that it says what to install."""
    script = (
        "import sys, verbena.cli.sim as sim; sim.parser(); "
        "print({'numpy', 'networkx', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "set()\n"
