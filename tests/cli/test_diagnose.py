# SPDX-License-Identifier: Apache-2.0
"""`verbena diagnose`, as a program."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT, verbena_command
from verbena import cli

SAVED = ROOT / "tests" / "manage" / "diagnose" / "saved"


def diagnose(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit status and what was printed."""
    status = cli.main(["diagnose", *words])
    out, err = capsys.readouterr()
    return status, out + err


def test_suspects_make_the_exit_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(SAVED / f"{name}.txt") for name in ("ibnetdiscover", "ibqueryerrors")]
    status, out = diagnose(capsys, *files)
    assert status == 1
    assert "cable a0[1]-e0[3]" in out
    assert "8 hosts, 6 switches, 16 cables: 1 suspect." in out


def test_nothing_found_is_0(capsys: pytest.CaptureFixture[str]) -> None:
    status, out = diagnose(capsys, str(SAVED / "ibnetdiscover.txt"), "--intended", "clos2:4")
    assert (status, out) == (0, "8 hosts, 6 switches, 16 cables: nothing found.\n")


def test_the_intended_topology_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    status, out = diagnose(
        capsys, str(SAVED / "ibnetdiscover.txt"), "--intended", "clos2:6", "--json"
    )
    kinds = {each["kind"] for each in json.loads(out)["findings"]}
    assert status == 1
    assert "node_missing" in kinds


def test_two_saved_sweeps_show_what_was_added(capsys: pytest.CaptureFixture[str]) -> None:
    links, errors = str(SAVED / "ibnetdiscover.txt"), str(SAVED / "ibqueryerrors.txt")
    status, _ = diagnose(capsys, links, errors, "--before", links, errors, "--interval", "60")
    assert status == 0


@pytest.mark.parametrize("seconds", ["nan", "-1", "inf", "1e300"])
def test_an_interval_that_is_no_time_is_refused(
    capsys: pytest.CaptureFixture[str], seconds: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        diagnose(capsys, "--umad", f"--interval={seconds}")
    assert f"--interval {float(seconds):g}: it is a number of seconds" in capsys.readouterr().err


def test_a_scenario_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    status, out = diagnose(capsys, "--world", "bad-cable", "--json")
    (finding,) = json.loads(out)["findings"]
    assert status == 1
    assert finding["suspect"] == {"kind": "cable", "name": "h0[1]-s0[1]"}
    assert diagnose(capsys, "--world", "bad-cable", "--variant", "replaced")[0] == 0


def test_flows_of_hosts_are_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    flows = tmp_path / "flows.csv"
    flows.write_text("source,target,lost,sent\nh0,h1,100,1000\nh0,h2,1\n")
    status, out = diagnose(capsys, str(SAVED / "ibnetdiscover.txt"), "--flows", str(flows))
    assert status == 2
    assert "line 3: it is to be source,target,lost,sent" in out


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("garbage\n", "line 1: it is to be source,target,lost,sent"),
        ("source,target,lost,sent\n", "has no line of source,target,lost,sent"),
        ("x,y,1,2\n", "has no two hosts of this fabric in a line"),
    ],
)
def test_a_file_without_flows_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, sentence: str
) -> None:
    flows = tmp_path / "flows.csv"
    flows.write_text(text)
    status, out = diagnose(capsys, str(SAVED / "ibnetdiscover.txt"), "--flows", str(flows))
    assert (status, f"{flows}" in out, sentence in out) == (2, True, True), out


@pytest.mark.parametrize(
    "words",
    [
        ["FILE"],
        ["SAVED", "--before", "FILE"],
        ["SAVED", "--flows", "FILE"],
        ["SAVED", "--intended", "FILE"],
    ],
)
def test_a_binary_file_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str]
) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\x7fELF\xff\xfe\0\0")
    named = {"FILE": str(binary), "SAVED": str(SAVED / "ibnetdiscover.txt")}
    status, out = diagnose(capsys, *(named.get(word, word) for word in words))
    assert (status, out) == (
        2,
        f"verbena diagnose: {binary} is no text: it has bytes that are not UTF-8\n",
    )


def test_tables_alone_are_not_enough(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    tables.write_text("Unicast lids [0x0-0xe] of switch Lid 3 guid 0x20 (e0):\n0x0001 001 : (h0)\n")
    status, out = diagnose(capsys, str(tables))
    assert status == 2
    assert "This is not enough" in out
    assert "Add the output of ibnetdiscover." in " ".join(out.split())
    assert "nothing can be judged" in out
    status, out = diagnose(capsys, str(tables), "--json")
    assert (status, len(json.loads(out)["lacks"])) == (2, 1)


def test_counters_alone_are_judged_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    status, out = diagnose(capsys, str(SAVED / "perfquery.txt"))
    assert status == 0
    assert "This is not enough: it has counters, and not the cables" in out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["/nowhere"], "No such file"),
        ([str(ROOT / "LICENSE")], "LICENSE is no output of ibnetdiscover"),
        (["--umad", "/nowhere/umad0"], "--fabric NAME sweeps a fabric that `verbena fabric` runs"),
        (["--fabric", "nobody-has-this"], "verbena fabric TOPOLOGY"),
        (["--world", "bad-cable", "--intended", "cloos2:4"], "is clos2:… meant?"),
    ],
)
def test_wrong_usage_is_2(capsys: pytest.CaptureFixture[str], words: list[str], text: str) -> None:
    status, out = diagnose(capsys, *words)
    assert status == 2
    assert text in out


@pytest.mark.parametrize("words", [[], ["--umad", "--world", "x"], ["--umad", "--before", "x"]])
def test_one_source_is_needed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["diagnose", *words])
    assert ended.value.code == 2


# ---- a fabric that runs -------------------------------------------------------------------------


@pytest.fixture
def fabric() -> Iterator[str]:
    """The name of a running fabric, clos2(4)."""
    name = f"diagnosed-{os.getpid()}"
    command = [*verbena_command(), "fabric", "clos2:4", "--name", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "is ready" in process.stdout.readline()
            yield name
        finally:
            process.terminate()


@pytest.mark.not_sanitized("the program at the host is Python with the sanitizer's runtime")
@pytest.mark.timeout(60)
def test_a_running_fabric_is_swept_through_its_umad_device(fabric: str) -> None:
    def swept(*more: str) -> subprocess.CompletedProcess[str]:
        command = [*verbena_command(), "diagnose", "--fabric", fabric, "--intended", "clos2:4"]
        return subprocess.run([*command, *more], capture_output=True, text=True, timeout=30)

    begin = time.monotonic()
    good = swept("--interval", "0.2")
    assert good.stdout == "8 hosts, 6 switches, 16 cables: nothing found.\n", good.stderr
    assert time.monotonic() - begin < 20
    other = swept("--host", "zz")
    assert other.returncode == 2
    assert other.stderr.startswith("verbena diagnose: the fabric has no host 'zz'"), other.stderr
    change = [*verbena_command(), "fabric", "--name", fabric, "--cut"]
    subprocess.run([*change, "e1-a0"], check=True, timeout=20, stdout=subprocess.DEVNULL)
    bad = swept("--interval", "0")
    assert bad.returncode == 1
    assert "cable a0[2]-e1[3]" in bad.stdout
    subprocess.run([*change, "h5-e2"], check=True, timeout=20, stdout=subprocess.DEVNULL)
    lonely = swept("--interval", "0", "--host", "h5")
    assert lonely.returncode == 1
    assert "h5[1], the port that asks, has no link" in lonely.stdout
