# SPDX-License-Identifier: Apache-2.0
"""The site's link to the source is that of the package. Called by mkdocs at its start.

pyproject.toml says once where the project lives (project.urls, Source or Repository); without that
the site has no such link. It is an entry of the navigation and not the theme's repo_url, for which
each reader's browser would ask the host of the source for numbers.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
NAMES = ("source", "repository", "homepage")


def source_address(project: dict[str, Any]) -> str | None:
    urls = {name.lower(): address for name, address in project.get("urls", {}).items()}
    return next((urls[name] for name in NAMES if name in urls), None)


def on_config(config: Any) -> Any:
    address = source_address(tomllib.loads(PROJECT.read_text())["project"])
    if address:
        config.nav = [*config.nav, {"Source": address}]
    return config
