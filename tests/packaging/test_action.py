# SPDX-License-Identifier: Apache-2.0
"""action.yml, the GitHub Action for other projects, and the devcontainer."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import yaml

from tests.support import ROOT, clean_environment

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
DEVCONTAINER = ROOT / ".devcontainer" / "devcontainer.json"


def test_the_action_has_the_form_that_github_wants() -> None:
    tool = Path(sys.executable).with_name("check-jsonschema")
    command = [tool, "--builtin-schema", "vendor.github-actions", ROOT / "action.yml"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    used = str(ACTION["runs"])
    assert all(f"inputs.{name} " in used for name in ACTION["inputs"])


def test_the_last_step_of_the_action(tmp_path: Path) -> None:
    """The first one installs; after this one a program of a later step finds the device."""
    defaults = {name: each["default"] for name, each in ACTION["inputs"].items()}
    step = ACTION["runs"]["steps"][-1]
    written = tmp_path / "env"
    environment = clean_environment() | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "GITHUB_ENV": str(written),
        "OPTIONS": defaults["options"],
        "CARRIER": defaults["carrier"],
    }
    run = ["bash", "-eo", "pipefail", "-c", step["run"]]
    done = subprocess.run(run, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = dict(line.split("=", 1) for line in written.read_text().splitlines() if "=" in line)
    assert lines["VERBENA_CARRIER"] == "auto"
    assert lines["VERBENA_LOG"] == "errors"
    assert "verbena" in lines["LD_PRELOAD"]


def test_the_devcontainer_names_what_there_is() -> None:
    described = json.loads(DEVCONTAINER.read_text())
    words = shlex.split(described["postCreateCommand"])
    script = next(word for word in words if word.startswith("scripts/"))
    step = words[words.index(script) + 1]
    assert f"setup-debian.sh {step}" in (ROOT / script).read_text()
    target = words[words.index("make") + 1]
    done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True)
    assert done.returncode == 0
