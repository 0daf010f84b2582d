# SPDX-License-Identifier: Apache-2.0
"""Print the requirements of some optional-dependency groups of pyproject.toml, one a line.

The Makefile installs these without installing Verbena itself, which is built separately.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def requirements(groups: list[str]) -> list[str]:
    """The project's own dependencies, then those of each group."""
    path = Path(__file__).parent.parent / "pyproject.toml"
    project = tomllib.loads(path.read_text())["project"]
    found: list[str] = list(project["dependencies"])
    for group in groups:
        found += project["optional-dependencies"][group]
    return found


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))
