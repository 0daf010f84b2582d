# SPDX-License-Identifier: Apache-2.0
"""A host and a target in processes of their own, directly and by packets; packets that are lost."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nvmeof.conftest import HOST, MIB, NQN, ChildTarget, image

pytestmark = pytest.mark.over_roce
HOST_CHILD = str(Path(__file__).with_name("host_child.py"))


def verify(port: int, namespace: int = 1, **variables: str) -> str:
    environment = os.environ | variables | {"NVME_PORT": str(port), "NVME_NSID": str(namespace)}
    done = subprocess.run(
        [sys.executable, HOST_CHILD, HOST, NQN, "verify", "60"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("namespace", [1, 2], ids=["file", "memory"])
@pytest.mark.parametrize("carrier", ["direct", "roce"])
def test_two_processes(tmp_path: Path, carrier: str, namespace: int) -> None:
    with ChildTarget(image(tmp_path), 16 * MIB, carrier=carrier) as target:
        assert "VERIFIED" in verify(target.port, namespace, VERBENA_CARRIER=carrier)


@pytest.mark.parametrize("loss", ["2%"])
def test_packets_that_are_lost(tmp_path: Path, loss: str) -> None:
    """RC sends them again: the connection stays, and every byte is right."""
    with ChildTarget(image(tmp_path), 16 * MIB, carrier="roce") as target:
        said = verify(target.port, VERBENA_CARRIER="roce", VERBENA_FAULT=f"seed 1; drop {loss}")
        assert "VERIFIED" in said
        assert "reconnects=0" in said
        assert re.search(r"acted [1-9]", said), said
