# SPDX-License-Identifier: Apache-2.0
"""`verbena step`: lessons and files, printed at once or by keys."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support import verbena_command
from verbena.cli.step import Steps, walk
from verbena.host.lessons import LESSONS, Frame, frames_of, lesson_of_file


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = verbena_command("step", *words)
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )


def frames(name: str) -> list[Frame]:
    return list(frames_of(LESSONS[name].build()))


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_is_the_same_each_time_and_in_order_of_time(name: str) -> None:
    first = frames(name)
    assert first == frames(name)
    assert [one.at for one in first] == sorted(one.at for one in first)
    assert all(one.says.endswith(".") for one in first)


def test_a_key_is_polled_until_it_comes() -> None:
    loads = [one for one in frames("keyboard") if "movzx" in one.what]
    assert ["with 0x41" in one.says for one in loads] == [False] * (len(loads) - 1) + [True]
    assert len(loads) > 2


def test_by_dma_the_bytes_are_there_before_the_interrupt() -> None:
    found = [one.what.split(",")[0] for one in frames("disk-dma") if "mov" not in one.what]
    assert found[-6:] == [
        "PCIe to memory: MWr", "PCIe to memory: MSI", "interrupt 46", "iretq", "cli", "hlt"
    ]  # fmt: skip


def test_word_by_word_each_word_is_asked_for() -> None:
    found = frames("disk-pio")
    asked = [one for one in found if "PCIe to the device: MRd" in one.what]
    assert len(asked) == 4
    assert asked[1].at - asked[0].at > 900_000
    assert not any("DMA" in one.says for one in found)


def test_a_block_of_another_computer_s_disk_is_copied_by_no_processor() -> None:
    made = frames("disk-remote")
    at = {
        text: next(n for n, one in enumerate(made) if text in str(one))
        for text in (
            "mov  [rbx], rax", "wire: SEND", "on its way to the Disk of the right computer",
            "the Disk of the right computer writes 32 bytes to memory at 0x5000",
            "wire: WRITE WITH IMM", "the Hca of the left computer writes 32 bytes to memory",
            "interrupt 46", "rcx is 0xa7a6a5a4a3a2a1a0",
        )
    }  # fmt: skip
    assert list(at.values()) == sorted(at.values())
    assert not any("answers the load" in str(one) for one in made)


def test_a_doorbell_reaches_the_other_computer_s_memory() -> None:
    """In order: the store, its transaction, the frame, the DMA there, the interrupt there."""
    found = [f"{one.what}; {one.says}" for one in frames("doorbell")]
    wanted = (
        "mov  [rbx], rax",
        "PCIe to the device: MWr",
        "wire: WRITE WITH IMM",
        "right computer writes 64 bytes to memory at 0x4000",
        "right computer sends its interrupt",
    )
    places = [next(n for n, text in enumerate(found) if each in text) for each in wanted]
    assert places == sorted(places)


def test_keys_go_on_back_and_to_a_number() -> None:
    words = iter(["n", "", "p", "5", "999", "x", "q"])
    said: list[str] = []
    walk(Steps(LESSONS["disk-dma"], 100), lambda _: next(words), said.append)
    numbers = [int(each.split()[0]) for each in said if each.split()[0].isdecimal()]
    assert numbers == [1, 2, 3, 2, 5, 5, 5]
    assert sum("no such step" in each for each in said) == 1


def test_keys_beyond_the_most_steps_name_the_instruction() -> None:
    words = iter(["3", "4", "4", "q"])
    said: list[str] = []
    walk(Steps(lesson_of_file("x", "nop\nagain: jmp again"), 3), lambda _: next(words), said.append)
    behind = [each for each in said if "no such step" in each]
    assert behind == 2 * [
        "there is no such step: it is before the first, or behind the last that may be shown: core "
        "0 is at 0x1001: again: jmp again. --most shows more than 3 steps, if that is no loop "
        "without end"
    ]


def all_of(terminal: int) -> bytes:
    """What a terminal was told, whose other end is closed: reading it ends in EIO."""
    read = b""
    with suppress(OSError):
        while chunk := os.read(terminal, 65536):
            read += chunk
    return read


def test_in_a_terminal_it_waits_for_keys() -> None:
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        verbena_command("step", "keyboard"), stdin=inner, stdout=inner, stderr=inner
    )
    os.close(inner)
    os.write(outer, b"n\nq\n")
    assert process.wait(30) == 0
    text = all_of(outer).decode()
    assert "   2  " in text
    assert "   3  " not in text
    os.close(outer)


def test_elsewhere_it_prints_all() -> None:
    done = run("disk-dma")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" us  ") == len(frames("disk-dma"))


@pytest.mark.parametrize("options", [[], ["--timeline", "steps.json"]])
def test_a_reader_that_has_seen_enough(tmp_path: Path, options: list[str]) -> None:
    """As `head`: the command ends without a word, by the status of SIGPIPE."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)  # less than is printed, so that it waits
    process = subprocess.Popen(
        verbena_command("step", "disk-remote", "--all", *options),
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 128 + 13


def test_a_file_has_its_comments_as_sentences(tmp_path: Path) -> None:
    file = tmp_path / "add.asm"
    file.write_text("mov rax, 7 ; seven is enough\nhlt\n")
    done = run(str(file))
    assert done.returncode == 0
    assert "Seven is enough. rax is 0x7." in done.stdout


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [
        (
            "nop\nagain: jmp again ; for ever\n",
            0,
            "... and more: core 0 is at 0x1001: again: jmp again. --most shows more than "
            "20 steps, if that is no loop without end",
        ),
        ("fly rax\n", 1, "line 1"),
        ("mov al, [0x900000]\n", 1, "nothing answers a read"),
    ],
)
def test_programs_that_do_not_end_well(tmp_path: Path, text: str, status: int, says: str) -> None:
    file = tmp_path / "program.asm"
    file.write_text(text)
    done = run(str(file), "--most", "20")
    assert done.returncode == status
    assert says in done.stdout + done.stderr


def test_an_unknown_name_says_which_lessons_there_are() -> None:
    done = run("walk")
    assert done.returncode == 1
    assert "disk-dma" in done.stderr


def test_backwards_by_running_again() -> None:
    lesson = lesson_of_file("x", "inc rax\ninc rax\nhlt\n")
    assert Steps(lesson, 10).get(2) == Steps(lesson, 10).get(2)
    assert Steps(lesson, 10).get(0) is None


@pytest.mark.parametrize("name", LESSONS)
def test_the_timeline_of_a_lesson(name: str, tmp_path: Path) -> None:
    steps = Steps(LESSONS[name], 2000)
    shown = list(steps.rest())
    steps.timeline.write(tmp_path / "lesson.json")
    events = json.loads((tmp_path / "lesson.json").read_text())["traceEvents"]
    last = max(event["ts"] for event in events if event["ph"] == "X")
    assert shown[-1].at / 1e6 <= last + 1


def test_the_timeline_of_a_program_that_faults(tmp_path: Path) -> None:
    """What came before the fault is shown and written."""
    program, timeline = tmp_path / "p.asm", tmp_path / "t.json"
    program.write_text("mov eax, 1\nmov ebx, 2\nmov rax, [0x300000]\nhlt\n")
    done = run(str(program), "--timeline", str(timeline))
    assert done.returncode == 1
    assert "mov ebx, 2" in done.stdout
    assert "nothing answers a read" in done.stderr
    assert json.loads(timeline.read_text())["traceEvents"]


def test_the_folder_of_a_timeline_is_made(tmp_path: Path) -> None:
    path = tmp_path / "none" / "x.json"
    done = run("keyboard", "--most", "2", "--timeline", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(path.read_text())["traceEvents"]


@pytest.mark.parametrize("text", ["", "; only a comment\n"])
def test_a_file_without_instructions_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "empty.asm").write_text(text)
    done = run(str(tmp_path / "empty.asm"), "--most", "3")
    assert done.returncode == 1
    assert "empty.asm has no instruction: it is empty, or has only comments" in done.stderr


def test_a_timeline_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """It is found before the first step."""
    (tmp_path / "file").write_text("")
    done = run("keyboard", "--most", "2", "--timeline", str(tmp_path / "file" / "x.json"))
    assert done.returncode == 1
    assert done.stderr == (
        f"verbena step: {tmp_path}/file: the folder cannot be made: File exists\n"
    )
    assert done.stdout == ""


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "code.bin").write_bytes(b"\xf4\xff\xfe")
    done = run(str(tmp_path / "code.bin"))
    assert done.returncode == 1
    assert "code.bin is no text, and so no assembly" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("lesson", "driver"), [("disk-pio", False), ("disk-remote", True)])
def test_at_its_end_it_says_which_costs_it_used(lesson: str, driver: bool) -> None:
    done = run(lesson)
    _, _, costs = done.stdout.partition("\n\nCosts that were used\n")
    names = [line.split()[0] for line in costs.splitlines()]
    of_driver = ["python_driver"] if driver else []
    assert names == [
        "cost", "program", *of_driver, "pcie_round_trip", "pcie_rate", "disk_medium"
    ]  # fmt: skip
    assert "load over a link; half for each way; pcie-bench" in costs


def test_a_program_that_only_computes_used_machine_code_alone(tmp_path: Path) -> None:
    file = tmp_path / "add.asm"
    file.write_text("mov rax, 7\nhlt\n")
    steps = Steps(lesson_of_file("add", file.read_text()), 10)
    assert [*steps.rest()]
    assert steps.costs()[0].name == "program"
    assert not [one for one in steps.costs() if one.how == "charged"]
