# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/ run by the commands of docs/examples.md, and say what that shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks
from tests.support import ROOT, clean_environment, own_network

PAGE = "docs/examples.md"
EXAMPLES = ROOT / "examples"
INCLUDED = re.compile(r'--8<-- "(.+)"')


def parts() -> list[tuple[Block, Block, Block]]:
    """The commands of each program, what they say, and the program."""
    here = blocks(PAGE)
    return [
        (block, here[at + 1], here[at + 2])
        for at, block in enumerate(here)
        if block.kind == "shell"
    ]


def program(block: Block) -> Path:
    included = INCLUDED.fullmatch(block.text)
    assert included, f"{block} includes no program"
    return ROOT / included[1]


@pytest.mark.debian
@pytest.mark.parametrize("part", parts(), ids=lambda part: program(part[2]).name)
def test_a_program_says_what_the_page_shows(
    part: tuple[Block, Block, Block], tmp_path: Path
) -> None:
    commands, shown, source = part
    assert source.first.endswith(f'{program(source).relative_to(ROOT)}"')
    (tmp_path / "examples").symlink_to(EXAMPLES)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [*own_network(), "bash", "-e", "-o", "pipefail", "-c", commands.text],
        cwd=tmp_path,
        env=clean_environment() | {"PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # The two sides' lines come in the order in which they are written, which differs.
    assert sorted(done.stdout.splitlines()) == sorted(shown.text.splitlines())
    assert done.stderr == ""


def test_processes_of_an_example_write_whole_lines() -> None:
    """Each write is one packet of this pipe, so a line in pieces is seen in every run."""
    reads, writes = os.pipe2(os.O_DIRECT)
    done = subprocess.run(
        [sys.executable, EXAMPLES / "all_reduce.py"],
        env=clean_environment() | {"PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=writes,
        timeout=100,
    )
    os.close(writes)
    with open(reads, "rb", buffering=0) as pipe:
        pieces = list(iter(lambda: pipe.read(4096), b""))
    assert done.returncode == 0
    assert sorted(pieces) == [b"rank %d: every element is 10.0\n" % rank for rank in range(4)]


def test_an_example_with_several_processes_closes_its_sockets() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / "all_reduce.py"],
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.timeout(200)
def test_an_example_with_several_processes_says_the_same_many_times() -> None:
    command = f"{sys.executable} {EXAMPLES / 'all_reduce.py'} | sort"
    environment = clean_environment() | {"PYTHONUNBUFFERED": "1"}
    said = {
        subprocess.run(
            ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=60
        ).stdout
        for _ in range(4)
    }
    assert said == {"".join(f"rank {rank}: every element is 10.0\n" for rank in range(4))}


def test_the_page_names_what_a_program_needs_besides() -> None:
    """A fabric is a graph of networkx, which the extra `sim` brings."""
    sections = (ROOT / "docs" / "examples.md").read_text().split("\n## ")
    for program in (ROOT / "examples").glob("*.py"):
        if "verbena import fabrics" in program.read_text():
            (section,) = [each for each in sections if f"python examples/{program.name}" in each]
            assert "pip install '.[sim]'" in section


def test_the_page_has_every_program() -> None:
    found = {path for suffix in ("py", "c", "h") for path in EXAMPLES.rglob(f"*.{suffix}")}
    named = INCLUDED.findall((ROOT / PAGE).read_text())
    assert sorted(ROOT / name for name in named) == sorted(found)
    assert len(parts()) == 23


@pytest.mark.debian
@pytest.mark.parametrize("source", sorted(EXAMPLES.glob("c/*.c")), ids=lambda path: path.name)
def test_a_program_in_c_has_no_warnings(source: Path, tmp_path: Path) -> None:
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    command = ["cc", *flags, "-c", source, "-o", tmp_path / "out.o"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
