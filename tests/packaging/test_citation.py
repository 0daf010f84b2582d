# SPDX-License-Identifier: Apache-2.0
"""CITATION.cff names the release that pyproject.toml is of."""

from __future__ import annotations

import re
import tomllib

from tests.support import ROOT


def test_the_citation_has_the_version_of_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited is not None
    assert cited[1] == version
