# SPDX-License-Identifier: Apache-2.0
"""README.md names every Debian package that `make test` installs (scripts/setup-debian.sh)."""

from __future__ import annotations

import re

from tests.support import ROOT


def packages(name: str) -> list[str]:
    """The words of a bash array of setup-debian.sh, without comments and other arrays."""
    script = (ROOT / "scripts" / "setup-debian.sh").read_text()
    found = re.search(rf"^{name}=\((.*?)\)(?: #.*)?$", script, re.MULTILINE | re.DOTALL)
    assert found, f"setup-debian.sh has no {name}"
    words = re.sub(r"#.*", "", found[1]).split()
    return [word for word in words if not word.startswith('"$')]


def test_the_readme_names_what_the_tests_install() -> None:
    row = next(
        line
        for line in (ROOT / "README.md").read_text().splitlines()
        if line.startswith("| Debian packages")
    )
    named = set(re.findall(r"`([^`]+)`", row))
    assert named == {*packages("demo_packages"), *packages("test_packages")}
