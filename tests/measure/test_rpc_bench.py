# SPDX-License-Identifier: Apache-2.0
"""`verbena bench rpc`: every contender answers, and the tables say what was measured."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest

from tests.support import own_network, verbena_command
from verbena.cli import bench
from verbena.cli.bench import STRATEGIES, conclusions, strategy_lines, table
from verbena.measure.rpc_bench import (
    CLIENTS,
    Contender,
    RpcMeasurement,
    contenders,
    crossover,
    measure_simulated,
    responders,
    winners,
)
from verbena.measure.rpc_peers import missing_module


def test_an_error_names_the_subcommand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*given: object) -> None:
        raise OSError("the server did not start")

    monkeypatch.setattr(bench, "measure_live", fail)
    assert bench.main(["rpc"]) == 1
    assert capsys.readouterr().err == "verbena bench rpc: the server did not start\n"


def test_every_contender_is_measured_or_skipped_with_a_reason() -> None:
    command = verbena_command("bench", "rpc", "--rounds", "1", "--sizes", "64", "20000")
    done = subprocess.run([*own_network(), *command], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    requests, responses, clients = re.split("\n(?=µs )", done.stdout)
    rows = rows_of(requests)
    for who in contenders():
        cells = rows[who.name]
        why = missing_module("uvloop" if "uvloop" in who.kind else who.kind)
        if why is not None:
            assert cells == ["skipped:", *why.split()]
        else:
            assert len(cells) == (3 if who.largest < 20000 else 2)
            assert cells[1:] == ["too", "large"] or 0 < float(cells[1]) < 1e6
            assert 0 < float(cells[0]) < 1e6
    assert "is the fastest strategy; the default takes" in requests
    assert list(rows_of(responses))[2:6] == [each.name for each in responders()]
    assert "is the fastest form of a response; the default takes" in responses
    for name in ("shared", "own"):
        cells = rows_of(clients)[name]
        assert len(cells) == len(CLIENTS)
        assert all(0 < float(each) < 1e6 for each in cells)


def rows_of(text: str) -> dict[str, list[str]]:
    return {line[:16].strip(): line[16:].split() for line in text.splitlines()}


def test_parts_and_contenders_are_chosen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[list[str]] = []

    def measure(sizes: list[int], rounds: int, chosen: list[Contender], progress: object) -> Any:
        asked.append([each.name for each in chosen])
        return RpcMeasurement({(each.name, size): [1.0] for each in chosen for size in sizes})

    monkeypatch.setattr(bench, "measure_live", measure)
    assert bench.main(["rpc", "--only", "default", "inline"]) == 0
    assert bench.main(["rpc", "--parts", "clients", "responses"]) == 0
    forms = ["default", "inline", "write", "rendezvous"]
    assert asked == [["default", "inline"], forms, ["shared", "own"]]
    said = capsys.readouterr().out
    assert "fastest strategy" not in said  # where one strategy alone was measured
    assert "64 B: inline is the fastest form of a response; the default takes 1.00 times" in said
    assert "16 clients" in said


@pytest.mark.parametrize(
    "words", [("rpc", "--rounds", "x"), ("rpc", "--only", "pigeons"), ("tcp",)]
)
def test_wrong_usage(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        verbena_command("bench", *words), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--sizes", "63"), "argument --sizes: '63' is not from 64 to 1048576 bytes"),
        (("--sizes", "64", "1048577"), "argument --sizes: '1048577' is not from 64"),
        (("--rounds", "0"), "argument --rounds: '0' is not a number of rounds, 1 or more"),
        (("--rounds", "-1"), "argument --rounds"),
    ],
)
def test_sizes_and_rounds_that_cannot_be(
    words: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        bench.main(["rpc", *words])
    assert text in capsys.readouterr().err


def test_tables_and_winners() -> None:
    result = RpcMeasurement(
        {
            ("inline", 64): [5.0, 4.0],
            ("inline", 4096): [9.0],
            ("rendezvous", 64): [7.0],
            ("rendezvous", 4096): [8.0, 30.0],
            ("default", 64): [4.0],
            ("gRPC", 64): [200.0],
        },
        {"ZeroMQ": "pyzmq is not installed; pip install pyzmq brings it"},
    )
    assert winners(result, [64, 4096], ["inline", "rendezvous"]) == {
        64: "inline",
        4096: "rendezvous",
    }
    lines = table(result, [64, 4096], ["inline", "ZeroMQ", "gRPC"])
    assert lines[-3].split() == ["inline", "4.0", "9.0"]
    assert lines[-2].endswith("skipped: pyzmq is not installed; pip install pyzmq brings it")
    assert lines[-1].split() == ["gRPC", "200.0"]
    result.rounds |= {("asyncio", 64): [80.0], ("ZeroMQ", 64): [60.0], ("uvloop", 64): [40.0]}
    assert conclusions(result, [64, 4096, 1 << 20]) == [
        "",
        "64 B: inline is the fastest strategy of those measured (inline, rendezvous); the default"
        " takes 1.00 times as long",
        "4 KiB: rendezvous is the fastest strategy",  # neither of the others carries as much
        "64 B: asyncio takes 20.0 times as long",
        "64 B: uvloop takes 10.0 times as long",
        "64 B: ZeroMQ takes 15.0 times as long",
        "64 B: gRPC takes 50.0 times as long",
    ]
    # Neither a ring nor datagrams carry as much: all that can were measured.
    result.rounds |= {(name, 1 << 20): [8.0] for name in ("inline", "rendezvous")}
    result.rounds["default", 1 << 20] = [10.0]
    (line,) = strategy_lines(result, [1 << 20], STRATEGIES, "strategy")
    assert line == "1 MiB: inline is the fastest strategy; the default takes 1.25 times as long"
    del result.rounds["rendezvous", 1 << 20]
    assert strategy_lines(result, [1 << 20], STRATEGIES, "strategy") == []
    times = {"a": {1: 1.0, 2: 5.0, 3: 9.0}, "b": {1: 2.0, 2: 4.0, 3: 8.0}}
    assert crossover(times, "a", "b") == 2
    assert crossover(times, "b", "a") is None


def test_the_crossover_moves_in_a_simulated_fabric() -> None:
    """Far away a rendezvous takes a round trip more; where inline waits for credits it wins."""
    near = measure_simulated([64, 64 << 10, 256 << 10], 5.0, False, calls=2)
    far = measure_simulated([64, 64 << 10, 256 << 10], 10_000.0, False, calls=2)
    assert near["rendezvous"][64] < 2 * near["inline"][64]
    assert far["rendezvous"][64] == pytest.approx(2 * far["inline"][64], rel=0.01)
    assert far["rendezvous"][64 << 10] > 1.9 * far["inline"][64 << 10]
    assert far["rendezvous"][256 << 10] < 0.75 * far["inline"][256 << 10]
    assert crossover(far, "inline", "rendezvous") == 256 << 10


def test_the_crossover_moves_with_the_load() -> None:
    """A request that is fetched waits behind the load's bytes twice: in its token and in its READ.
    Beyond the credits an inline one waits for the load in each round trip, too."""
    sizes = [64 << 10, 96 << 10, 128 << 10]
    free = measure_simulated(sizes, 5.0, False, calls=30)
    loaded = measure_simulated(sizes, 5.0, True, calls=30)
    assert crossover(free, "inline", "rendezvous") == 96 << 10
    assert crossover(loaded, "inline", "rendezvous") == 128 << 10
    for way in ("inline", "rendezvous"):
        for size in sizes:
            assert loaded[way][size] > 2 * free[way][size]
