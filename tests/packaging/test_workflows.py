# SPDX-License-Identifier: Apache-2.0
"""What runs elsewhere: the workflows of this repository, and those that docs/ci.md shows.

`make lint` holds those of this repository against GitHub's schema. Here every command that they
name has to exist, and the page's workflows are held against the schemas. The steps of the page's
workflows are run. Of the steps that install something only the one runs that installs Verbena.
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
from dataclasses import dataclass
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


# What GitHub's runner starts for a step that names no shell, and for one that names bash.
GITHUB_SHELLS = {
    None: ["bash", "-e"],
    "bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail"],
}
GITLAB_SHELL = ["bash", "-eo", "pipefail"]


@dataclass
class Runner:
    """Runs a job's scripts in a folder of its own, each by a shell of its own."""

    folder: Path
    environment: dict[str, str]

    def run(
        self, shell: list[str], script: str, seconds: float = 100
    ) -> subprocess.CompletedProcess[str]:
        file = self.folder / "step.sh"
        file.write_text(script)
        return subprocess.run(
            [*own_network(), *shell, str(file)],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=seconds,
        )

    def must(self, shell: list[str], script: str, seconds: float = 100) -> str:
        done = self.run(shell, script, seconds)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    added = tmp_path / "env"
    return Runner(tmp_path, clean_environment() | {"PATH": path, "GITHUB_ENV": str(added)})


def github_step(runner: Runner, step: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """One step, with what $GITHUB_ENV had before; what it writes there is for the next."""
    named = of_page()[0].get("defaults", {}).get("run", {}).get("shell")
    added = Path(runner.environment["GITHUB_ENV"])
    added.write_text("")
    done = runner.run(GITHUB_SHELLS[step.get("shell", named)], step["run"])
    lines = added.read_text().splitlines()
    runner.environment |= dict(line.split("=", 1) for line in lines)
    return done


def github_steps() -> list[dict[str, Any]]:
    """Those of the page's workflow that run something and install nothing."""
    (job,) = of_page()[0]["jobs"].values()
    return [step for step in job["steps"] if "run" in step and not INSTALLS.search(step["run"])]


def run_with_tests(runner: Runner, tests: str) -> subprocess.CompletedProcess[str]:
    """The workflow up to its tests, which are these in place of the page's example."""
    for step in github_steps():
        ours = "Your tests" in step.get("name", "")
        if ours:
            assert step["run"].count("ibv_devinfo") == 1
            step["run"] = step["run"].replace("ibv_devinfo", tests)
        done = github_step(runner, step)
        if ours:
            return done
    raise AssertionError("the workflow has no tests")


@pytest.mark.debian
def test_the_steps_of_the_github_workflow_run(runner: Runner) -> None:
    for step in github_steps():
        done = github_step(runner, step)
        assert done.returncode == 0, f"{step['run']}\n{done.stdout}{done.stderr}"
    assert "verbena0" in done.stdout, "the last step has no prefix"


@pytest.mark.debian
def test_tests_that_fail_fail_the_github_job_and_leave_what_they_said(runner: Runner) -> None:
    assert run_with_tests(runner, "sh -c 'echo one; echo two >&2; exit 3'").returncode == 3
    assert (runner.folder / "logs" / "tests.txt").read_text() == "one\ntwo\n"


@pytest.mark.debian
def test_the_capture_of_the_github_job_has_what_its_tests_send(runner: Runner) -> None:
    program = "ibv_rc_pingpong -g 1 -e"
    done = run_with_tests(runner, f"verbena pair -- {program} -- {program} localhost")
    assert done.returncode == 0, done.stdout
    assert (runner.folder / "logs" / "rdma.pcapng").stat().st_size > 100_000


def test_the_github_job_keeps_its_logs_when_it_is_cancelled() -> None:
    """As it is when its time is over; failure() is false then."""
    (job,) = of_page()[0]["jobs"].values()
    (upload,) = [step for step in job["steps"] if "upload-artifact" in step.get("uses", "")]
    assert upload["if"] in ("${{ !success() }}", "always()")


def test_what_is_installed_is_a_commit() -> None:
    installed = re.findall(r"git\+https://\S+", "\n".join(map(str, of_page())))
    assert installed
    assert [one for one in installed if not one.split("'")[0].endswith("@COMMIT")] == []


def installs_verbena(workflow: Any) -> str:
    """The one command of the page's workflow that installs Verbena."""
    said = [*steps(workflow)] if "jobs" in workflow else workflow["rdma"]["script"]
    (command,) = [line for line in said if "pip install" in line]
    return str(command)


def test_the_page_names_the_source_in_a_variable_and_nowhere_else() -> None:
    """It has to be right for whoever has the repository, at any address."""
    github, gitlab = of_page()
    assert list(github["env"]) == list(gitlab["rdma"]["variables"]) == ["VERBENA"]
    assert [installs_verbena(each) for each in of_page()] == ['pip install "$VERBENA"'] * 2
    assert "verbena-rdma" not in (ROOT / "docs" / "ci.md").read_text()


@pytest.mark.not_sanitized("a build with sanitizers is never packaged")
@pytest.mark.timeout(400)
def test_a_job_installs_what_its_variable_names(runner: Runner) -> None:
    """Here that is this checkout. Nothing is fetched, and nothing gets into the tests' own
    environment: pip is told so by its variables. Both systems have the same command, and it
    builds for a minute, so it runs once."""
    (command,) = {installs_verbena(each) for each in of_page()}
    target = runner.folder / "installed"
    runner.environment |= {
        "VERBENA": str(ROOT),
        "PIP_TARGET": str(target),
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip's way to say that there is none
        "PIP_CONFIG_SETTINGS": "build-dir=build/venv",
    }
    runner.must(GITLAB_SHELL, command, seconds=380)
    assert (target / "verbena" / "lib" / "libibverbs.so.1").exists()


SCHEMAS = ["vendor.github-workflows", "vendor.gitlab-ci"]


def held_against(schema: str, workflow: Any, folder: Path) -> subprocess.CompletedProcess[str]:
    """What the schema says of it; YAML takes the key `on` for a boolean, so it is named again."""
    file = folder / "workflow.json"
    file.write_text(json.dumps({"on" if key is True else key: v for key, v in workflow.items()}))
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(file)]
    return subprocess.run(command, env=plain_environment(), capture_output=True, text=True)


@pytest.mark.parametrize("system", [0, 1], ids=SCHEMAS)
def test_the_pages_workflow_is_as_its_schema_wants_it(system: int, tmp_path: Path) -> None:
    done = held_against(SCHEMAS[system], of_page()[system], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("system", [0, 1], ids=SCHEMAS)
def test_a_workflow_with_a_wrong_key_is_refused(system: int, tmp_path: Path) -> None:
    workflow = of_page()[system]
    job = workflow["jobs"]["rdma"] if "jobs" in workflow else workflow["rdma"]
    job["scripts"] = job.pop("script", [])
    done = held_against(SCHEMAS[system], workflow, tmp_path)
    assert done.returncode == 1
    assert "scripts" in done.stdout or "rdma" in done.stdout


@pytest.mark.debian
def test_the_script_of_the_gitlab_job_runs(runner: Runner) -> None:
    script = [line for line in of_page()[1]["rdma"]["script"] if not INSTALLS.search(line)]
    assert "verbena0" in runner.must(GITLAB_SHELL, "\n".join(script))
