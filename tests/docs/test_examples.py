# SPDX-License-Identifier: Apache-2.0
"""The Python examples of the documentation run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

PAGES = (
    *("README.md", "docs/getting-started.md", "docs/python.md", "docs/faults.md"),
    *("docs/fabrics.md", "docs/simulation.md"),
)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = [
    pytest.param(block, id=f"{page}:{number}")
    for page in PAGES
    for number, block in enumerate(BLOCK.findall((ROOT / page).read_text()), 1)
]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_examples(page: str) -> None:
    assert BLOCK.search((ROOT / page).read_text())


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
