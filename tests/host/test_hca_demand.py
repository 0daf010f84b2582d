# SPDX-License-Identifier: Apache-2.0
"""Regions on demand that have more pages than their source has frames: requests make progress."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from verbena.host.hca import HcaStatus, Node, Region, connected
from verbena.host.hca.pages import DemandPages, NoFrame

PAGE = 4096
BASE, FRAMES, VIRTUAL = 0x100000, 0x600000, 0x10_0000_0000
MS = 10**9


class Paged:
    """Two nodes, of which one has a region of ``count`` pages on demand, and the other memory."""

    def __init__(self, count: int, frames: int, *, is_remote: bool) -> None:
        self.left, self.right = connected(ram=8 << 20)
        side, other = (self.right, self.left) if is_remote else (self.left, self.right)
        self.pages = DemandPages(side.computer, FRAMES, frames)
        self.size = count * PAGE
        self.there = side.driver.register(VIRTUAL, self.size, pages=self.pages, on_demand=True)
        self.flat = other.register(BASE, self.size)
        self.other: Node = other
        random = Random(count)
        self.pages.write(VIRTUAL, random.randbytes(self.size))
        other.computer.write(BASE, random.randbytes(self.size))
        self.local: Region = self.flat if is_remote else self.there
        self.remote: Region = self.there if is_remote else self.flat

    def register_again(self) -> None:
        """Let the region of the right node be one to which no page fault has come yet."""
        self.there.deregister()
        self.there = self.right.driver.register(
            VIRTUAL, self.size, pages=self.pages, on_demand=True
        )

    def contents(self) -> tuple[bytes, bytes]:
        """Of the region on demand and of the other."""
        return self.pages.read(VIRTUAL, self.size), self.other.computer.read(BASE, self.size)

    def finish(self) -> list[HcaStatus]:
        self.left.run(self.left.computer.now + 100 * MS)
        return [one.entry.status for one in self.left.cq.poll()]


@pytest.mark.parametrize("is_remote", [False, True])
@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize(("count", "frames"), [(2, 1), (9, 8), (16, 8), (64, 3)])
def test_a_request_of_more_pages_than_frames_comes_to_its_end(
    count: int, frames: int, is_read: bool, is_remote: bool
) -> None:
    paged = Paged(count, frames, is_remote=is_remote)
    there, flat = paged.contents()
    if is_read:
        paged.left.qp.read(paged.local, paged.remote)
    else:
        paged.left.qp.write(paged.local, paged.remote)
    assert paged.finish() == [HcaStatus.SUCCESS]
    moved = there if is_read == is_remote else flat
    assert paged.contents() == (moved, moved)


@pytest.mark.parametrize("is_remote", [False, True])
def test_several_reads_of_more_pages_than_frames_make_progress(is_remote: bool) -> None:
    """Their parts begin anywhere in a page, and those of different reads are under way at once."""
    paged = Paged(16, 3, is_remote=is_remote)
    there, flat = paged.contents()
    bounds = [0, 1000, 20_000, 50_003, paged.size]
    for begin, end in pairwise(bounds):
        paged.left.qp.read(
            paged.local, paged.remote, end - begin, into_offset=begin, source_offset=begin
        )
    assert paged.finish() == [HcaStatus.SUCCESS] * 4
    moved = there if is_remote else flat
    assert paged.contents() == (moved, moved)


def test_a_read_whose_region_goes_while_its_pages_come_is_refused() -> None:
    """The packets before are sent; the refusal says why."""
    paged = Paged(16, 2, is_remote=True)
    paged.left.qp.read(paged.local, paged.remote)
    paged.left.run(paged.left.computer.now + MS // 2)
    assert paged.left.cq.poll() == []
    paged.there.deregister()
    assert paged.finish() == [HcaStatus.REM_ACCESS_ERR]
    assert "its region is deregistered" in paged.right.hca.refusals[0].why


@pytest.mark.parametrize("us", [6, 8, 12])
def test_a_read_looks_again_for_a_page_that_leaves_while_its_bytes_are_sent(us: int) -> None:
    """Its frame has the bytes of another page then, which are not the peer's to see."""
    paged = Paged(64, 64, is_remote=True)
    paged.register_again()
    expected, _ = paged.contents()
    paged.left.qp.read(paged.local, paged.there)
    paged.left.run(paged.left.computer.now + us * MS // 1000)
    paged.pages.evict(VIRTUAL + 63 * PAGE)
    paged.pages.write(VIRTUAL + 100 * PAGE, b"x" * PAGE)
    assert paged.finish() == [HcaStatus.SUCCESS]
    assert paged.contents() == (expected, expected)


def test_a_read_goes_on_when_most_of_its_pages_leave_while_its_bytes_are_sent() -> None:
    """It had all frames, and has two from then on: more pages are asked for ahead than those."""
    paged = Paged(64, 64, is_remote=True)
    paged.register_again()
    expected, _ = paged.contents()
    paged.left.qp.read(paged.local, paged.there)
    paged.left.run(paged.left.computer.now + 8 * MS // 1000)
    page = 64
    while page < 64 + 62:
        try:
            paged.pages.write(VIRTUAL + page * PAGE, b"x" * PAGE)
        except NoFrame:  # the adapter reads the others now
            paged.left.run(paged.left.computer.now + MS // 1000)
            continue
        paged.pages.pin(VIRTUAL + page * PAGE)
        page += 1
    assert paged.left.cq.poll() == []
    assert paged.finish() == [HcaStatus.SUCCESS]
    assert paged.other.computer.read(BASE, paged.size) == expected
