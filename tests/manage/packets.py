# SPDX-License-Identifier: Apache-2.0
"""MADs to test with: our captures of Linux, and the vectors that are kept beside the project."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.wire.shared import VECTORS, frames, refusal
from verbena import wire

CAPTURES = sorted((Path(__file__).parent / "captures").glob("*.pcap"))
OPENSM = VECTORS / "traces" / "opensm_mads.json"
LACKING_OPENSM = (
    f"{OPENSM}, which is no part of this project, is missing;"
    " VERBENA_SHARED names the folder of one who has vectors/traces in it"
)


def mads_of_capture(capture: Path) -> Iterator[bytes]:
    """The MADs of a pcap file of RoCE v2, in their order."""
    for frame in frames(capture):
        if refusal(frame) is None:
            packet = wire.parse(frame)
            if packet.dest_qp == 1:
                yield packet.payload


@cache
def opensm_trace() -> list[dict[str, Any]]:
    """What OpenSM, infiniband-diags and ibsim said to each other; empty where it is not kept."""
    if not OPENSM.exists():
        return []
    found: list[dict[str, Any]] = json.loads(OPENSM.read_text())["mads"]
    return found
