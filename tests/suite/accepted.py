# SPDX-License-Identifier: Apache-2.0
"""The cases of rdma-core's test-suite that may be skipped, and why. All others must pass.

An entry names cases of a file by a pattern (fnmatch) and the reason that the suite gives by a
regular expression. An entry that no skip needs any more fails the test too, unless it depends on
the machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tests.suite.rdma_core import Case

RAW_PACKETS = "raw packets: the device has no way past the transport"
STEERING = "flow steering works on raw packets"
RSS = "receive side scaling works on raw packets"
TAGS = "tag matching is offered by one vendor's adapters"
DMABUF = "DMA buffers of a graphics card"
HUGE_PAGES = "huge pages, of which the machine has none set aside"


@dataclass(frozen=True)
class Skip:
    """Cases of a file that may be skipped with such a reason. `machine`: elsewhere they may run."""

    file: str
    cases: str
    reason: str
    why: str
    machine: bool = False

    def covers(self, case: Case) -> bool:
        return (
            self.file == case.file
            and fnmatchcase(case.name, self.cases)
            and re.fullmatch(self.reason, case.reason) is not None
        )


NO_RAW_QP = "Create QP type 8 is not supported"
NO_HUGE_PAGES = "There are no huge pages of size 2M allocated"
NO_DMABUF = ".*(dmabuf|/dev/dri/render).*"

# What a software adapter may lack for good.
ACCEPTED = (
    Skip("test_flow", "*", NO_RAW_QP, STEERING),
    Skip("test_rss_traffic", "*", NO_RAW_QP, RSS),
    Skip("test_tag_matching", "*", "Extended CQ is not supported", TAGS),
    Skip("test_qp", "*_raw_*", "Create Raw Packet QP with.* is not supported", RAW_PACKETS),
    Skip("test_mr", "DmaBuf*", NO_DMABUF, DMABUF, machine=True),
    Skip("test_odp", "*_huge_*", NO_HUGE_PAGES, HUGE_PAGES, machine=True),
    Skip("test_parent_domain", "*_huge_*", NO_HUGE_PAGES, HUGE_PAGES, machine=True),
)


def why(case: Case) -> str | None:
    """Why the case may be skipped; None: it may not."""
    return next((skip.why for skip in ACCEPTED if skip.covers(case)), None)


def unneeded(file: str, cases: Iterable[Case]) -> list[Skip]:
    """The entries of a file that none of its cases needs."""
    skipped = [case for case in cases if case.outcome == "skipped"]
    entries = [skip for skip in ACCEPTED if skip.file == file and not skip.machine]
    return [entry for entry in entries if not any(entry.covers(case) for case in skipped)]
