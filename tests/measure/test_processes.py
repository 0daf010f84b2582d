# SPDX-License-Identifier: Apache-2.0
"""Programs of a measurement: pinned, timed out, ended with all that they started."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from tests.support import ends
from verbena.measure import cores, processes, scripts, tcp
from verbena.measure.cores import Cores
from verbena.measure.processes import MeasureError, Program
from verbena.measure.side import Side

HERE = Cores(*[min(os.sched_getaffinity(0))] * 2)


def test_processor_lists() -> None:
    assert cores.parse_list("0-2,8\n") == {0, 1, 2, 8}


def test_pinned_returns_the_cores() -> None:
    before = os.sched_getaffinity(0)
    with cores.pinned(min(before)):
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before


def program(*words: str) -> Program:
    return Program(words, os.environ)


def test_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    child = tmp_path / "child"
    script = f"sleep 100 & echo $! > {child}; echo started; wait"
    with pytest.raises(MeasureError, match="did not end in time: started"):
        processes.run_alone(program("sh", "-c", script), HERE.first, 1.0)
    assert ends(int(child.read_text()))


def test_words_of_a_program_that_fails() -> None:
    with pytest.raises(MeasureError, match=r"sh failed with exit status 4: one \| two"):
        processes.run_alone(program("sh", "-c", "echo one; echo two >&2; exit 4"), HERE.first, 30)


def test_program_that_is_killed_is_named_by_signal() -> None:
    with pytest.raises(MeasureError, match="was ended by SIGSEGV and said nothing"):
        processes.run_alone(program("sh", "-c", "kill -SEGV $$"), HERE.first, 30)


def test_server_that_ends_before_it_listens() -> None:
    port = processes.free_port()
    with pytest.raises(MeasureError, match="sh failed with exit status 5: no device"):
        processes.run_server_and_client(
            program("sh", "-c", "echo no device; exit 5"), program("true"), port, HERE, 5
        )


@pytest.mark.parametrize("failing_one", [0, 1])
def test_pair_ends_when_one_fails(failing_one: int) -> None:
    pair = [program("sleep", "100"), program("sleep", "100")]
    pair[failing_one] = program("sh", "-c", "echo boom; exit 6")
    start = time.monotonic()
    with pytest.raises(MeasureError, match="sh failed with exit status 6: boom"):
        processes.run_together(pair[0], pair[1], HERE, 90)
    assert time.monotonic() - start < 60


def test_listening_is_seen_without_connecting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert processes.listens(port)
    assert not processes.listens(port)


def where(side: Side) -> list[str]:
    """What both processes say of their working directory."""
    here = os.getcwd()
    return [here, side.exchange(here)]


def test_a_function_is_found_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This file's module is known by pytest's path alone, and not by that of a new Python."""
    monkeypatch.chdir(tmp_path)
    assert scripts.run(where, HERE) == [str(tmp_path)] * 2


def test_a_function_that_fails_is_told_with_its_words() -> None:
    with pytest.raises(MeasureError, match="unexpected keyword argument 'colour'"):
        scripts.run(tcp.tcp_latency, HERE, colour=1)
