# SPDX-License-Identifier: Apache-2.0
"""What runs elsewhere: the workflows of this repository, and those that docs/ci.md shows.

`make lint` holds them against the schemas. Here every command that they name has to exist, and the
steps of the page's workflows are run, but for those that install something.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.blocks import blocks
from tests.support import ROOT, clean_environment, own_network, plain_environment
from verbena import cli

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
INSTALLS = re.compile(r"\b(apt-get|dnf|pip) ")


def of_page() -> list[Any]:
    """The workflow for GitHub and the one for GitLab."""
    return [yaml.safe_load(block.text) for block in blocks("docs/ci.md") if block.kind == "yaml"]


def steps(workflow: Any) -> Iterator[str]:
    for job in workflow["jobs"].values():
        yield from (step["run"] for step in job["steps"] if "run" in step)


def scripts() -> list[str]:
    """All that these workflows have the shell do."""
    github, gitlab = of_page()
    ours = [step for path in WORKFLOWS for step in steps(yaml.safe_load(path.read_text()))]
    return [*ours, *steps(github), *gitlab["rdma"]["script"]]


# A command of this project's, and what it is told first.
OURS = re.compile(r"(?:^|[\s(/])(verbena|make) ([a-z]\S*)", re.MULTILINE)
ALL = sorted({found for script in scripts() for found in OURS.findall(script)})


def test_there_are_workflows_that_test_and_build_wheels() -> None:
    assert [path.name for path in WORKFLOWS] == ["test.yml", "wheels.yml"]
    assert {("make", "test"), ("verbena", "doctor"), ("verbena", "env")} <= set(ALL)
    assert any("cibuildwheel" in script.split() for script in scripts())


def test_the_compilers_are_gcc_from_12_on_and_clang() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]
    matrix = jobs["compilers"]["strategy"]["matrix"]["include"]
    assert {"gcc-12", "gcc-13", "gcc-14", "gcc", "clang"} <= {each["compiler"] for each in matrix}
    assert "_FORTIFY_SOURCE=3" in jobs["compilers"]["env"]["CFLAGS"]
    assert {"debian:bookworm", "ubuntu:24.04"} <= set(jobs["suite"]["strategy"]["matrix"]["image"])


@pytest.mark.parametrize(("program", "told"), ALL, ids=str)
def test_a_command_exists(program: str, told: str) -> None:
    if program == "verbena":
        assert told in {command.name for command in cli.COMMANDS}
        return
    made = ["make", "--dry-run", told]
    done = subprocess.run(made, cwd=ROOT, env=plain_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_options_of_the_build_exist() -> None:
    options = (ROOT / "CMakeLists.txt").read_text()
    named = re.findall(r"-D(VERBENA_\w+)", "\n".join(scripts()))
    assert named
    assert [name for name in named if f"option({name} " not in options] == []


def test_what_runs_in_a_wheels_container_exists() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    for command in config["test-command"]:
        for path in re.findall(r"\{project\}/(\S+)", command):
            assert (ROOT / path).exists()
        assert shlex.split(command)[1] in {each.name for each in cli.COMMANDS}


# ---- the page's workflows, as their systems run them --------------------------------------------


def shell(script: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [*own_network(), "bash", "-e", "-o", "pipefail", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


def runner() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return clean_environment() | {"PATH": path}


@pytest.mark.debian
def test_the_steps_of_the_github_workflow_run(tmp_path: Path) -> None:
    """Each step is a shell of its own, with what $GITHUB_ENV had before."""
    added = tmp_path / "env"
    environment = runner() | {"GITHUB_ENV": str(added)}
    said = ""
    for step in steps(of_page()[0]):
        if INSTALLS.search(step):
            continue
        added.write_text("")
        said = shell(step, environment)
        lines = added.read_text().splitlines()
        environment |= dict(line.split("=", 1) for line in lines)
    assert "verbena0" in said, "the last step has no prefix"


@pytest.mark.debian
def test_the_script_of_the_gitlab_job_runs() -> None:
    script = [line for line in of_page()[1]["rdma"]["script"] if not INSTALLS.search(line)]
    assert "verbena0" in shell("\n".join(script), runner())
