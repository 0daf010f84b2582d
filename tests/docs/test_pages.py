# SPDX-License-Identifier: Apache-2.0
"""Every block of every page runs as it is pasted, in the page's order, in one folder.

A block of Python goes to a prompt that keeps what the blocks before have defined, and the outcome
that the page shows behind it is compared. A block with a title is saved under that name. A shell
block has to succeed and to show something; if the page shows an outcome, its lines have to be said,
and the command may fail. What cannot be run is listed with its reason, and an entry that names no
block fails.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks, pages
from tests.docs.test_generated import load
from tests.support import ROOT, clean_environment, own_network

normal = load("marks").normal

SYNOPSIS = "a synopsis, with placeholders"
INSTALLS = "installs into the environment that runs the tests; its words are looked at below"
ACTIVATES = "of a checkout; the tests' environment is active already"
DEMO = "takes minutes; tests/cli/test_demo.py runs the demo"
GUEST = "needs the kernel's soft-RoCE driver; tests/roce/test_linux_guest.py runs it"
OPENSM = "needs OpenSM; tests/programs/test_opensm_live.py runs such a fabric"
WORKFLOW = "tests/packaging/test_workflows.py runs its steps"
# The beginning of a block, on a page, and why it is not run.
NOT_RUN = {
    ("README.md", "make demo "): DEMO,
    ("docs/getting-started.md", "make demo"): DEMO,
    ("docs/getting-started.md", ". .venv/bin/activate"): ACTIVATES,
    ("docs/getting-started.md", "pip install ."): INSTALLS,
    ("docs/learn/write.md", ". .venv/bin/activate"): ACTIVATES,
    ("docs/fabrics.md", "pip install "): INSTALLS,
    ("docs/simulation.md", "pip install "): INSTALLS,
    ("docs/running.md", "verbena run [--shared-heap]"): SYNOPSIS,
    ("docs/running.md", "verbena pair [OPTIONS"): SYNOPSIS,
    ("docs/running.md", "verbena env [OPTIONS"): SYNOPSIS,
    ("docs/ci.md", "name: rdma"): WORKFLOW,
    ("docs/ci.md", "rdma:"): WORKFLOW,
    ("docs/testing.md", "- uses: actions/setup-python"): WORKFLOW,
    ("docs/shared-heap.md", "verbena run --shared-heap -- PROGRAM"): SYNOPSIS,
    ("docs/live-fabric.md", "verbena fabric mine.toml"): OPENSM,
    ("docs/disks.md", "nvme discover"): "tests/nvmeof/test_linux_host.py does it on Linux",
    ("docs/roce.md", "rdma link add rxe0"): GUEST,
    ("docs/development.md", "cmake -S ."): "takes a minute; tests/native builds the same",
    ("docs/development.md", "return vb_decline("): "a line of C",
    ("docs/locks.md", "cmake -S ."): "takes a minute; the C tests of the suite are such a build",
    ("docs/locks.md", "verbena: a thread takes the lock"): "tests/native/test_lock_order.c has it",
}
WHOLE_PAGES = {
    "docs/model.md": "the model's own source, which tests/model runs",
    "docs/examples.md": "tests/examples runs its commands where the programs are",
}
# A step of the tutorial that goes on in the folder of an earlier one, with the files saved there.
GOES_ON_FROM = {"docs/learn/packets.md": "docs/learn/write.md"}
PRINTED = re.compile(r"^print\(.*\)  # (.*)$", re.MULTILINE)
STARTED = re.compile(r"# Python started with (\w+)=(\S+), and the lines of the beginning")


def exceptions(block: Block) -> list[tuple[str, str]]:
    """The entries of NOT_RUN that name it."""
    return [key for key in NOT_RUN if key[0] == block.page and block.first.startswith(key[1])]


def runnable(page: str) -> list[Block]:
    return [each for each in blocks(page) if not exceptions(each)]


RUN = [page for page in pages() if page not in WHOLE_PAGES and runnable(page)]
DEBUGGING = "docs/debugging.md"


def page_parameter(page: str) -> object:
    """The page, as it is known in reports."""
    reason = "gdb would run with the sanitizer's runtime, too, and does not get far with it"
    marks = [pytest.mark.not_sanitized(reason)] if page == DEBUGGING else []
    return pytest.param(page, id=page, marks=marks)


# ---- where they run ----------------------------------------------------------------------------


def environment() -> dict[str, str]:
    programs = Path(sys.executable).parent
    return clean_environment() | {"PATH": f"{programs}:{os.environ['PATH']}:/usr/sbin:/sbin"}


class Prompt:
    """A Python prompt in a process of its own (prompt.py)."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.process = subprocess.Popen(
            [
                *own_network(),
                sys.executable,
                "-W",
                "error",
                str(Path(__file__).with_name("prompt.py")),
            ],
            cwd=folder,
            env=environment() | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def paste(self, text: str) -> tuple[str, str]:
        """The error with which it ended, or "", and what it printed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(text) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        error, printed = json.loads(answer) if answer else ("the prompt has ended", "")
        return error, printed

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


class Reader:
    """Who reads a page and pastes its blocks, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python: Prompt | None = None
        self.beginning = ""

    def run(self, block: Block, shown: str | None) -> None:
        """`shown` is what the page shows as the outcome of the block."""
        if block.title:
            (self.folder / block.title).write_text(block.text + "\n")
        elif block.kind == "python":
            self.paste(block, shown)
        elif block.kind == "toml":
            tomllib.loads(block.text)
            (self.folder / "mine.toml").write_text(block.text)
        elif block.first.startswith("$ "):
            self.transcript(block, shown)
        elif block.kind == "shell":
            output = self.shell(block.text, block, status=None if shown else 0)
            assert output.strip(), f"{block} shows nothing"
            for line in (shown or "").split("\n"):
                assert normal(line) in normal(output), f"{block}: {output}"
        else:
            raise AssertionError(f"{block}: nobody knows how to run a block of {block.kind}")

    def paste(self, block: Block, shown: str | None) -> None:
        if self.python is None:
            self.python = Prompt(self.folder)
            self.beginning = block.text
        if started := STARTED.fullmatch(block.first):
            error, printed = self.paste_with(block.text, **{started[1]: started[2]})
        else:
            error, printed = self.python.paste(block.text)
        said = {normal(error), normal(f"{printed}\n{error}")}
        assert normal(shown or "") in said, f"{block}:\n{block.text}\n{printed}\n{error}"
        for comment in PRINTED.findall(block.text):
            assert comment in printed, f"{block}: {printed}"

    def paste_with(self, text: str, **variables: str) -> tuple[str, str]:
        prompt = Prompt(self.folder, **variables)
        try:
            prompt.paste(self.beginning)
            return prompt.paste(text)
        finally:
            prompt.end()

    def shell(self, text: str, block: Block, status: int | None = 0) -> str:
        done = subprocess.run(
            [*own_network(), "bash", "-e", "-o", "pipefail", "-c", text],
            cwd=self.folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        assert status is None or done.returncode == status, f"{block}: {done.stdout}"
        return done.stdout

    def transcript(self, block: Block, shown: str | None) -> None:
        """A command behind `$ `, and what it says, the whole or a part."""
        command, _, said = block.text.removeprefix("$ ").partition("\n")
        assert "\n$ " not in said, f"{block}: one command for each block"
        output = normal(self.shell(command, block, status=None))
        assert normal(said or shown or "") in output, f"{block}: {output}"
        assert said or shown, f"{block}: the page does not show what it says"

    def end(self) -> None:
        if self.python is not None:
            self.python.end()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path)
    yield made
    made.end()


# ---- the tests ---------------------------------------------------------------------------------


@pytest.mark.debian
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", [page_parameter(page) for page in RUN])
def test_the_blocks_of_a_page_run_in_order(page: str, reader: Reader) -> None:
    saved = blocks(GOES_ON_FROM[page]) if page in GOES_ON_FROM else []
    here = [block for block in saved if block.title] + runnable(page)
    for block, following in zip(here, [*here[1:], None], strict=True):
        if is_outcome(block):
            continue
        follows = following is not None and is_outcome(following) and following.follows
        reader.run(block, following.text if following and follows else None)


def is_outcome(block: Block) -> bool:
    return block.kind == "text" and not block.first.startswith("$ ")


@pytest.mark.timeout(300)
def test_what_starts_processes_runs_as_a_program(reader: Reader) -> None:
    """A reader may save it, too: processes that it starts import it again."""
    found = [block for block in runnable("docs/dask.md") if "LocalCluster(" in block.text]
    assert found
    for block in found:
        (reader.folder / "program.py").write_text(block.text + "\n")
        output = reader.shell(f"{shlex.quote(sys.executable)} program.py", block)
        assert "[3. 3. 3.]" in output


def test_an_outcome_stands_behind_its_block_or_among_the_errors() -> None:
    """README's error is one of those that the page of errors shows, word for word."""
    known = {normal(each.text) for each in blocks("docs/errors.md")}
    for page in RUN:
        for block in runnable(page):
            if is_outcome(block) and not block.follows:
                assert normal(block.text) in known, str(block)


def test_every_exception_is_still_needed() -> None:
    used = [key for page in pages() for block in blocks(page) for key in exceptions(block)]
    assert sorted(used) == sorted(NOT_RUN)
    assert set(WHOLE_PAGES) <= set(pages())


def test_what_pip_is_told_to_install_is_there() -> None:
    """No page, and no advice of an error, names a package that the index may not have."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    sources = [*(ROOT / "src" / "verbena").rglob("*.py"), *(ROOT / page for page in pages())]
    for path in sources:
        for said in re.findall(r"pip install ([^\n`;,)]+)", path.read_text()):
            if said.count('"') % 2:  # the string's own, behind the command
                said = said.rpartition('"')[0]
            words = shlex.split(said.rstrip(".\\")) if said.count("'") % 2 == 0 else []
            for word in words:
                assert not word.startswith("verbena"), f"{path}: {said}"
                extra = re.fullmatch(r"\.\[(\w+)\]", word)
                assert extra is None or extra[1] in extras, f"{path}: {said}"


@pytest.mark.parametrize("page", RUN)
def test_a_page_has_no_tabs_and_no_prompts_in_shell_blocks(page: str) -> None:
    """A `$ ` is for transcripts: every block of commands can be pasted as it is."""
    for block in runnable(page):
        assert "\t" not in block.text, str(block)
        lines = block.text.split("\n")
        assert block.first.startswith("$ ") or not any(line.startswith("$ ") for line in lines)
