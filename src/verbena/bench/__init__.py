# SPDX-License-Identifier: Apache-2.0
"""`verbena bench`: Verbena and its peers, measured in one run on two pinned cores.

A **case** (perftest, ucx, scripts) measures one number once. A **goal** is a row of the report: our
case, a peer's, and the bound on their ratio. The **runner** repeats all cases in turn, so that a
noisy minute hits ours and the peer's alike, and takes medians.
"""

from __future__ import annotations


def main(arguments: list[str]) -> int:
    """Run `verbena bench` and return its exit status."""
    from verbena.bench import command

    return command.main(arguments)
