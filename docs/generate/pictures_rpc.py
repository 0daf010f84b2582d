# SPDX-License-Identifier: Apache-2.0
"""The picture of how requests and responses of verbena.rpc travel. Called by pictures.py."""

from __future__ import annotations

from pen import Pen

# Title, what precedes, then (from the client?, text, kind) for each arrow.
STRATEGIES: tuple[tuple[str, str, tuple[tuple[bool, str, str], ...]], ...] = (
    ("inline", "small requests", ((True, "SEND: bytes", "bytes"),)),
    ("ring", "a server that polls", ((True, "WRITE: bytes", "bytes"),)),
    (
        "rendezvous",
        "large requests",
        ((True, "SEND: address, key", "ask"), (False, "READ", "ask"), (True, "bytes", "bytes")),
    ),
    ("datagram", "many clients", ((True, "UD SEND: bytes", "bytes"),)),
    (
        "write",
        "large responses",
        ((False, "WRITE: bytes", "bytes"), (False, "SEND", "ask")),
    ),
)


def rpc_strategies() -> Pen:
    pen = Pen(
        860,
        320,
        "Five strategies between a client and a server: inline, one SEND with the bytes; ring, a "
        "WRITE into the server's memory; rendezvous, a SEND with an address, and a READ by the "
        "server; datagram, one UD SEND; write, for responses: a WRITE and then a SEND.",
    )
    for number, (name, says, arrows) in enumerate(STRATEGIES):
        left = 22 + 166 * number
        pen.word(left, 34, name, "title")
        pen.word(left, 54, says, "small")
        for x, side in ((left, "client"), (left + 146, "server")):
            pen.line((x + 3, 84), (x + 3, 296), tip=False, dashed=True)
            pen.word(x, 76, side, "small", "" if side == "client" else "end")
        y = 120
        for is_client, text, kind in arrows:
            begin, end = (left + 6, left + 146) if is_client else (left + 146, left + 6)
            pen.message(begin, end, y, text, kind=kind, drop=12)
            y += 66
        if name == "ring":
            pen.box(left + 90, 156, 64, 60, "memory", title="ring", lines=["slots"])
        elif name == "datagram":
            pen.box(left + 46, 156, 108, 60, "verbs", title="one UD QP", lines=["for all clients"])
        elif name == "inline":
            pen.box(left + 58, 156, 96, 60, "memory", title="receives", lines=["of one SRQ"])
    return pen


PICTURES = (rpc_strategies,)
