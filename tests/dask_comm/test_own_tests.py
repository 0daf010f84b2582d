# SPDX-License-Identifier: Apache-2.0
"""distributed's own comm tests, as its authors wrote them, over verbena.dask_comm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="no package distributed; the extra dask has it")

from tests.dask_comm.suite import run, skip_if_too_old, sources

LEAST = 22  # tests that are not left out (LEFT_OUT of as_tcp.py): 24 of release 2022.12.1


@pytest.mark.parametrize("carrier", ["direct", "roce"])
def test_the_comm_tests_of_distributed(carrier: str, tmp_path: Path) -> None:
    found = sources()
    done = run(found, tmp_path, carrier)
    if done.returncode:
        skip_if_too_old(found)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, done.stdout
    assert int(passed[1]) >= LEAST
    assert "skipped" not in done.stdout, done.stdout
