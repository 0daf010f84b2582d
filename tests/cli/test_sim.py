# SPDX-License-Identifier: Apache-2.0
"""`verbena sim`, as a program."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import verbena_command
from verbena import cli
from verbena.cli.progress import expected
from verbena.cli.sim import OTHER_SETTINGS, SOME_VARIANTS
from verbena.sim import Scenario, ScenarioResult, ready

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


@pytest.mark.parametrize(
    ("words", "before"),
    [
        ((), ""),
        (("--variant", "small", "--variant", "large"), ""),
        (("--set", 'traffic.both.size="32 KiB"'), OTHER_SETTINGS),
        (("--set", 'variants.small={"traffic.both.size"=20}'), OTHER_SETTINGS),
        (("--seed", "3"), OTHER_SETTINGS),
        (("--variant", "small"), SOME_VARIANTS),
        (("--variant", "small", "--seed", "3"), OTHER_SETTINGS),
    ],
)
def test_the_last_words_are_of_the_scenario_as_it_is(
    scenario: Path, words: tuple[str, ...], before: str
) -> None:
    """With other settings, or some variants alone, they say so: what they claim may be wrong."""
    scenario.write_text(TEXT + VARIANTS)
    done = sim(scenario, *words)
    assert done.returncode == 0
    said = " ".join(done.stdout.rsplit("\n\n", 1)[1].split())
    assert said == before + "Both end at once."


def test_all_files_are_written(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = sim(
        scenario, "--plots", out / "plots", "--parquet", out / "tables", "--timeline",
        tmp_path / "t.json", "--pcapng", f"s0-h2={tmp_path / 'p.pcapng'}", "--seed", "9",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in (out / "plots").iterdir()} == {
        "throughput.png", "queues.png", "completion.png", "links.png"}  # fmt: skip
    result = ScenarioResult.from_parquet(out / "tables")
    assert result.seed == 9
    assert len(result.flows) == 2
    assert len(json.loads((tmp_path / "t.json").read_text())["traceEvents"]) > 5
    whole = (tmp_path / "p.pcapng").stat().st_size
    assert whole > 8192
    short = sim(scenario, "--pcapng", f"s0-h2={tmp_path / 'p.pcapng'}", "--seed", "9",
                "--pcapng-bytes", "128")  # fmt: skip
    assert (short.returncode, short.stderr) == (0, "")
    assert (tmp_path / "p.pcapng").stat().st_size < whole / 2


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


def test_variants_stand_side_by_side_in_a_picture(scenario: Path, tmp_path: Path) -> None:
    scenario.write_text(TEXT + VARIANTS)
    done = sim(scenario, "--plots", tmp_path / "out", "--format", "svg", "--all-variants")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"  wrote {tmp_path / 'out' / 'variants.svg'}" in done.stdout
    assert (tmp_path / "out" / "small" / "completion.svg").exists()
    sim(scenario, "--plots", tmp_path / "one", "--variant", "small")
    assert not (tmp_path / "one" / "variants.png").exists()


def test_variants_run_at_once_and_are_told_in_their_order(scenario: Path, tmp_path: Path) -> None:
    """The first takes the longest; each has a process of its own, and files as when it is alone."""
    names = ["d", "c", "b", "a"]
    scenario.write_text(TEXT + "".join(
        f'\n[variants.{name}]\n"traffic.both.size" = {10 ** (7 - n)}\n'
        for n, name in enumerate(names)
    ))  # fmt: skip
    told = {}
    for jobs in (1, 3):
        out = tmp_path / str(jobs)
        out.mkdir()
        done = sim(scenario, "--jobs", jobs, "--pcapng", f"s0-h2={out / 'p.pcapng'}", "--quiet")
        assert done.returncode == 0
        heads = [line for line in done.stdout.splitlines() if line.startswith("net, ")]
        assert [head.split(":")[0] for head in heads] == [f"net, {name}" for name in names]
        lines = done.stdout.replace(str(out), "out").splitlines()
        told[jobs] = [line for line in lines if not line.startswith("net, ")]
        wrote = [line for line in lines if line.startswith("  wrote ")]
        assert wrote == [f"  wrote out/p-{name}.pcapng" for name in names]
    assert told[1] == told[3]
    for name in names:
        one, other = (tmp_path / jobs / f"p-{name}.pcapng" for jobs in "13")
        assert one.read_bytes() == other.read_bytes()


def test_variants_are_in_processes_of_their_own(
    scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario.write_text(TEXT + VARIANTS)
    run, ours = Scenario.run, os.getpid()

    def tell(self: Scenario, **options: Any) -> ScenarioResult:
        made = run(self, **options)
        return replace(made, notes=(f"process {os.getpid() == ours}",))

    monkeypatch.setattr(Scenario, "run", tell)
    assert sim(scenario, "--jobs", "2").stdout.count("note: process False") == 2
    assert sim(scenario, "--jobs", "1").stdout.count("note: process True") == 2


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "net, large: its process was killed"),
        (lambda: os._exit(3), "net, large: its process ended without a result (exit code 3)"),
        (lambda: [][1], "IndexError"),
    ],
)
def test_a_variant_that_fails_ends_the_others(
    scenario: Path, monkeypatch: pytest.MonkeyPatch, what: Callable[[], object], says: str
) -> None:
    scenario.write_text(TEXT + VARIANTS)
    run = Scenario.run

    def fail(self: Scenario, **options: Any) -> ScenarioResult:
        if self.name.endswith("large"):
            what()
        return run(self, **options)

    monkeypatch.setattr(Scenario, "run", fail)
    if says == "IndexError":  # a defect has its traceback
        with pytest.raises(IndexError):
            sim(scenario, "--jobs", "2")
    else:
        done = sim(scenario, "--jobs", "2")
        assert (done.returncode, says in done.stderr) == (1, True)


def interrupted(begun: bytes, *words: str) -> tuple[str, bytes]:
    """`verbena sim` on a terminal, which hears Control-C once its progress matches `begun`: what it
    prints, and what of its progress was seen."""
    ours, theirs = pty.openpty()
    command = verbena_command("sim", *words)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        shown = b""
        while not re.search(begun, shown):
            shown += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 130
    return out, shown


def test_control_c_ends_all_variants_and_shows_what_they_have(
    scenario: Path, tmp_path: Path
) -> None:
    text = TEXT.replace('"64 KiB"', '"1 GiB"\nrepeat = 500') + VARIANTS.replace(
        "= 10", "= 99999999"
    )
    scenario.write_text(text + "[variants.third]\n")
    out, _ = interrupted(rb"net: small \d+%, large \d+%, third waits", str(scenario), "--jobs", "2")
    assert "net, small: interrupted after" in out
    assert "net, large: interrupted after" in out
    assert "third" not in out


def test_set_goes_before_what_a_variant_has(scenario: Path) -> None:
    scenario.write_text(TEXT + VARIANTS)
    done = sim(scenario, "--variant", "small", "--set", 'traffic.both.size="3 KiB"')
    assert done.returncode == 0
    assert "both: 2 of 2 flows of 3 KiB" in done.stdout
    assert "net, small: done" in done.stdout
    new = sim(scenario, "--variant", "small", "--set", "variants.small.seed=3")
    assert (new.returncode, "net, small: done" in new.stdout) == (0, True)


def test_a_mistake_that_a_change_makes_names_the_change(scenario: Path) -> None:
    text = TEXT.replace('[samples]', '[switch]\nbuffer = "1 MiB"\nflow = "pauses"\nstop = 20000\n'
                        'go = 10000\nspare = 60000\n\n[samples]')  # fmt: skip
    scenario.write_text(text + '\n[variants.tight]\n"switch.stop" = 9000\n[variants.other]\n')
    wrong = sim(scenario, "--variant", "tight")
    assert wrong.returncode == 1
    assert "with variant tight (switch.stop): switch.go is wrong" in wrong.stderr
    wrong = sim(scenario, "--variant", "other", "--set", "switch.stop=9000")
    assert "with --set (switch.stop): switch.go is wrong" in wrong.stderr


def test_options_of_variants_that_cannot_be(scenario: Path) -> None:
    assert "one or the other" in sim(scenario, "--variant", "x", "--all-variants").stderr
    assert sim(scenario, "--jobs", "0").returncode == 2
    assert "net.toml has no variants" in sim(scenario, "--all-variants").stderr
    scenario.write_text(TEXT + VARIANTS)
    wrong = sim(scenario, "--variant", "smal")
    assert (wrong.returncode, wrong.stdout) == (1, "")  # not after what it teaches
    assert "no variant \"smal\": is 'small' meant? there are small, large" in wrong.stderr


# ---- long simulations ----------------------------------------------------------------------------


def test_a_simulation_that_will_take_long_is_announced(scenario: Path) -> None:
    """Ten billion packets over two links each, and their acknowledgements."""
    scenario.write_text(TEXT.replace('"64 KiB"', '"1 GiB"\nrepeat = 20000'))
    found = expected(Scenario.load(scenario))
    assert found == (
        "4.2e+10 packets cross a link, and 2 million in a second are usual: this may take 5.8 h"
    )
    assert expected(Scenario.load(scenario).changed({"duration": "1 ms"})) == ""
    long = Scenario.load(scenario).changed({"duration": "100 s"})
    assert expected(long).endswith("this may take 20 min")


def test_where_there_is_no_terminal_progress_is_said_now_and_then(
    scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verbena.progress.FIRST", 0.05)
    monkeypatch.setattr("verbena.cli.progress.REPORTS", 0.02)
    scenario.write_text(
        TEXT.replace('"64 KiB"', '"1 GiB"') + VARIANTS.replace("= 10", "= 99999999")
    )
    lines = sim(scenario, "--variant", "large").stderr.splitlines()
    assert 1 <= len(lines) < 12
    number = r"[\d.]+ (ms|us|s|min)"
    for line in lines:
        assert re.fullmatch(
            rf"verbena sim: net, large: {number} simulated in {number}, about {number} to go; "
            r"\d flows left, [\d.]+ M events/s", line
        ), line  # fmt: skip
    many = sim(scenario, "--jobs", "2").stderr.splitlines()
    assert many
    assert re.fullmatch(r"verbena sim: net: small (\d+%|done|waits), large (\d+%|waits)", many[0])
    assert sim(scenario, "--quiet").stderr == ""


def test_settings_are_set(scenario: Path) -> None:
    done = sim(scenario, "--set", "traffic.both.size=20", "--set", "fabric.rate=10GbE")
    assert "flows of 20 B" in done.stdout
    for word, says in (
        ("fabric.hosts=0", "net.toml, --set: fabric.hosts"),
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
    near = sim("bufferbloatt")
    assert "no such file, and no ready scenario (is 'bufferbloat' meant?): bad-cable" in near.stderr
    assert f"{tmp_path}: a folder, and no ready scenario: " in sim(tmp_path).stderr
    missing = sim(tmp_path / "no.toml")
    assert missing.returncode == 1
    assert "no such file, and no ready scenario: bad-cable, " in missing.stderr
    scenario.write_text(TEXT)
    assert "the folder cannot be made: " in sim(scenario, "--plots", "/proc/x").stderr
    assert sim(scenario, "--pcapng", "x").returncode == 2
    assert "from 64 to 4352" in sim(scenario, "--pcapng-bytes", "63").stderr
    twice = sim(scenario, "--pcapng", "s0-h1=a", "--pcapng", "s0-h1=b")
    assert (twice.returncode, "s0-h1 has the file a already" in twice.stderr) == (2, True)
    said = sim(scenario, "--pcapng", "h0-h1=x").stderr
    assert "a capture of h0-h1: there is no such link" in said
    assert ", and each in the other direction" in said
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
    out, shown = interrupted(rb"flows left", str(scenario), "--parquet", str(tmp_path / "out"))
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


def test_rows_that_end_early_are_told(scenario: Path, tmp_path: Path) -> None:
    scenario.write_text(TEXT + '\n[inside]\nhosts = ["h0"]\n')
    told = "note: the rows of h0's cores and links end at "
    for slices, is_told in ((20, True), (100_000, False)):
        options = ("--set", f"inside.slices={slices}", "--timeline", tmp_path / "t.json")
        done = sim(scenario, *options)
        assert (done.returncode, done.stderr) == (0, "")
        assert (told in done.stdout) == is_told
        assert not is_told or f"with the {slices} slices of [inside]" in done.stdout
