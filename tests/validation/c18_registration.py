# SPDX-License-Identifier: Apache-2.0
"""C18: what registering memory costs."""

from __future__ import annotations

from collections.abc import Iterator

from tests.validation.row import Confidence, Figure, Row, Scope, at_least, between, equal, near
from verbena.host.hca import HcaCosts, connected

GHZ = 3.0
PAGE = 4096
# Bytes registered, seconds: of pages that have to be allocated, and of pages that are present
ABSENT = (500e9, 87.0)
PRESENT = ((256e9, 20.0), (500e9, 49.2))


def cycles(pages: int, page: int = PAGE) -> int:
    """Processor time of registering so many pages of 4096 bytes, by pages of ``page``."""
    left, _ = connected(ghz=GHZ)
    before = sum(left.driver.spent.values())
    left.register(0, pages * PAGE, page=page)
    return sum(left.driver.spent.values()) - before


def measure(scope: Scope) -> Iterator[Figure]:
    costs = HcaCosts()
    page_us = costs.registration_page / GHZ / 1000
    absent = ABSENT[1] / (ABSENT[0] / PAGE) * 1e6
    yield near("a page, as reported with its allocation", page_us, absent, 0.1, "us")
    least, most = (seconds / (size / PAGE) * 1e6 for size, seconds in PRESENT)
    yield between("over the reports for pages that are present", page_us / most, 1.0, 2.0)
    yield between("or", page_us / least, 1.0, 2.5)
    for pages in scope.pick((1, 100), (1, 10, 100, 1000)):
        law = costs.registration + pages * costs.registration_page
        yield equal(f"{pages} pages", cycles(pages), law, "cycles")
    law = costs.registration + costs.registration_page
    yield equal("512 pages of 4 KiB as one of 2 MiB", cycles(512, 2 << 20), law, "cycles")
    copying = PAGE / 10e9 * 1e6
    yield between("a page's copy at 10 GB/s", copying, 0.40, 0.42, "us")
    pages = 1000
    once = cycles(pages) / GHZ / 1000 / (pages * copying)
    yield at_least("registered for use once, over copying", once, 1.5)
    yield between("uses after which it has paid", once, 1, 2)


ROW = Row(
    number="C18",
    title="Registering memory",
    setup="The driver's default costs at 3 GHz; the tables' entries are written and the pages "
    "pinned, whatever their number.",
    expected="a + b pages, with b = 0.67 us for a page of 4 KiB. Reports: 500 GB in 87 s with "
    "allocation and in 49 s without (github.com/kvcache-ai/Mooncake issue 848 and pull request "
    "855), 256 GB in more than 20 s (github.com/ofiwg/libfabric issue 4738). A copy of a page "
    "takes 0.41 us at 10 GB/s.",
    fails="registration is free, or does not grow with the pages.",
    meaning="For memory that is used once copying into a registered buffer is cheaper; from the "
    "second use on registration is.",
    measure=measure,
    confidence=Confidence.TEXT,
    quick=True,
    missing="what huge pages cost: here a page of 2 MiB costs what one of 4 KiB does, and a GPU's "
    "runtime became only 2.5 times faster with them (github.com/ROCm/mori pull request 679).",
)
