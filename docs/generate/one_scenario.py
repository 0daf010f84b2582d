# SPDX-License-Identifier: Apache-2.0
"""Draws docs/images/one-scenario.svg: the scenario of docs/learn/scenario.md and its changes.

python docs/generate/one_scenario.py

The scenario and the changes are read from the page, so that the picture shows what a reader runs.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

from scenarios import HEIGHT, WIDTH, Line, chart, chart_style

from verbena.sim import Scenario, ScenarioResult

DOCS = Path(__file__).parent.parent
PAGE = DOCS / "learn" / "scenario.md"
PICTURE = DOCS / "images" / "one-scenario.svg"
TITLED = re.compile(r'^```toml title="bottleneck.toml"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^    (verbena sim bottleneck\.toml(?:.*\\\n)*.*)$", re.MULTILINE)
NAMES = ("8 MiB", "256 KiB", "pauses", "ECN")  # of the page's first commands, in its order


def results() -> list[ScenarioResult]:
    """Return the results of the page's first commands."""
    page = PAGE.read_text()
    titled = TITLED.search(page)
    assert titled, f"{PAGE} has no bottleneck.toml"
    scenario = Scenario.parse(titled[1])
    commands = COMMAND.findall(page)[: len(NAMES)]
    return [scenario.changed(changes(command)).run() for command in commands]


def changes(command: str) -> dict[str, object]:
    words = shlex.split(command)
    settings = [words[at + 1] for at, word in enumerate(words) if word == "--set"]
    return dict(value(setting) for setting in settings)


def value(setting: str) -> tuple[str, object]:
    """Parse KEY=VALUE as --set does: TOML, or else text."""
    key, _, text = setting.partition("=")
    try:
        return key, tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return key, text


def picture() -> str:
    queues: list[Line] = []
    done: list[Line] = []
    for name, result in zip(NAMES, results(), strict=True):
        times = result.times / 1e9
        queues.append((name, times, result.queue(result.link("s0-h4")) / 1024))
        bytes_ = result.delivered.sum(axis=1)
        done.append((name, result.delivered_at / 1e9, bytes_ / (1 << 20)))
    charts = [
        chart("the queue of s0-h4", "ms", "KiB", queues),
        chart("delivered", "ms", "MiB", done),
    ]
    parts = [
        f'<g transform="translate({(WIDTH + 20) * number} 0)">\n{body}\n</g>'
        for number, body in enumerate(charts)
    ]
    width, height = 2 * WIDTH + 20, HEIGHT + 36
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" '
            'aria-label="The queue and the bytes delivered, over time, of four runs">',
            "<!-- SPDX-License-Identifier: Apache-2.0. Made by docs/generate/one_scenario.py. -->",
            f"<style>{chart_style()}</style>",
            *parts,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    PICTURE.write_text(picture())
