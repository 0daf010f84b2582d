# SPDX-License-Identifier: Apache-2.0
"""Makes each common error happen and prints what Verbena says about it, as Markdown.

python docs/generate/errors.py          # rewrites the examples in docs/errors.md
python docs/generate/errors.py --print  # prints them
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from verbena import verbs
from verbena.verbs import AccessFlags, QPType

PAGE = Path(__file__).parent.parent / "errors.md"
ALL = (
    AccessFlags.LOCAL_WRITE
    | AccessFlags.REMOTE_WRITE
    | AccessFlags.REMOTE_READ
    | AccessFlags.REMOTE_ATOMIC
)


@dataclass
class Pair:
    """Two connected RC queue pairs of one process, and a region for each."""

    near: verbs.QP
    far: verbs.QP
    cq: verbs.CQ
    near_mr: verbs.MR
    far_mr: verbs.MR

    def failure(self) -> str:
        """The text of the CompletionError that the request just posted ends with."""
        (wc,) = self.cq.wait(1, timeout=30)
        try:
            wc.raise_for_status()
        except verbs.CompletionError as error:
            return str(error)
        raise AssertionError("the request was to fail and did not")


def pair(stack: ExitStack, *, far_access: int = ALL, qp_access: int = ALL) -> Pair:
    ctx = stack.enter_context(verbs.open_device())
    pd = ctx.alloc_pd()
    cq, far_cq = ctx.create_cq(16), ctx.create_cq(16)
    near = pd.create_qp(send_cq=cq, qp_type=QPType.RC)
    far = pd.create_qp(send_cq=far_cq, qp_type=QPType.RC)
    verbs.connect_pair(
        near, far, access=qp_access, timeout=8, retry_cnt=1, rnr_retry=1, min_rnr_timer=1
    )
    return Pair(near, far, cq, pd.alloc(8192, ALL), pd.alloc(4096, far_access))


def wrong_key(stack: ExitStack) -> str:
    ends = pair(stack)
    ends.near.write(ends.near_mr, ends.far_mr.addr, 0x5EED, length=64)
    return ends.failure()


def outside(stack: ExitStack) -> str:
    ends = pair(stack)
    ends.near.write(ends.near_mr, ends.far_mr.addr, ends.far_mr.rkey, length=8192)
    return ends.failure()


def no_access(stack: ExitStack) -> str:
    ends = pair(stack, far_access=AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_READ)
    ends.near.write(ends.near_mr, ends.far_mr.addr, ends.far_mr.rkey, length=64)
    return ends.failure()


def qp_access(stack: ExitStack) -> str:
    ends = pair(stack, qp_access=AccessFlags.REMOTE_WRITE)
    ends.near.read(ends.near_mr, ends.far_mr.addr, ends.far_mr.rkey, length=64)
    return ends.failure()


def misaligned(stack: ExitStack) -> str:
    ends = pair(stack)
    ends.near.fetch_add(ends.near_mr, ends.far_mr.addr + 4, ends.far_mr.rkey, 1)
    return ends.failure()


def too_short(stack: ExitStack) -> str:
    ends = pair(stack)
    ends.far.recv(ends.far_mr, length=16)
    ends.near.send(ends.near_mr, length=64)
    return ends.failure()


def not_ready(stack: ExitStack) -> str:
    ends = pair(stack)
    ends.near.send(ends.near_mr, length=64)
    return ends.failure()


def no_answer(stack: ExitStack) -> str:
    ends = pair(stack)
    ends.far.close()
    ends.near.write(ends.near_mr, ends.far_mr.addr, ends.far_mr.rkey, length=64)
    return ends.failure()


EXAMPLES: dict[str, Callable[[ExitStack], str]] = {
    "A key that names nothing": wrong_key,
    "Outside the region": outside,
    "The region does not grant it": no_access,
    "The queue pair does not grant it": qp_access,
    "An atomic that is not on 8 bytes": misaligned,
    "The receive request is too short": too_short,
    "No receive request": not_ready,
    "The peer is not there": no_answer,
}


def examples() -> str:
    """Every example as a title and a block."""
    parts = []
    for title, make in EXAMPLES.items():
        with ExitStack() as stack:
            parts.append(f"**{title}**\n\n```text\n{textwrap.fill(make(stack), 96)}\n```\n")
    return "\n".join(parts)


def replaced(page: str, made: str) -> str:
    """The page with what stands between its marks replaced."""
    head, begin, rest = page.partition("<!-- examples: made by generate/errors.py -->\n")
    _, end, tail = rest.partition("<!-- end of examples -->")
    if not begin or not end:
        raise ValueError("the page has no marks for the examples")
    return f"{head}{begin}\n{made}\n{end}{tail}"


if __name__ == "__main__":
    if "--print" in sys.argv[1:]:
        print(examples())
    else:
        PAGE.write_text(replaced(PAGE.read_text(), examples()))
