# SPDX-License-Identifier: Apache-2.0
"""A verbs program that carries out the code that a test writes to its standard input, one JSON
string a line, and answers with what the code has left in ``result`` (tests/subnet_process/live.py).
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

from verbena import verbs
from verbena.verbs import AHAttr, QPType

ACCESS = (
    verbs.AccessFlags.LOCAL_WRITE
    | verbs.AccessFlags.REMOTE_WRITE
    | verbs.AccessFlags.REMOTE_READ
    | verbs.AccessFlags.REMOTE_ATOMIC
)
BYTES = 1 << 16


class Names(dict[str, Any]):
    """What the code has: a QP of ``kind`` with a CQ, and memory."""

    def open(self, kind: str = "RC", pkey_index: int = 0, port: int = 1) -> None:
        """Make the QP and bring it to INIT."""
        self.setdefault("context", verbs.open_device("verbena0"))
        context = self["context"]
        pd = self.setdefault("pd", context.alloc_pd())
        cq = self["cq"] = context.create_cq(256)
        self["mr"] = pd.alloc(BYTES, ACCESS)
        self["qp"] = pd.create_qp(send_cq=cq, recv_cq=cq, qp_type=QPType[kind])
        access = ACCESS if kind != "UD" else 0
        self["qp"].to_init(access=access, pkey_index=pkey_index, port=port)
        if kind == "UD":
            self["qp"].to_rtr()
            self["qp"].to_rts()

    def connect(
        self,
        number: int,
        lid: int,
        timeout: int = 12,
        retry_cnt: int = 7,
        rnr_retry: int = 7,
        min_rnr_timer: int = 12,
        mtu: int = 1024,
        port: int = 1,
        address: dict[str, Any] | None = None,
    ) -> None:
        """Connect the QP to another one."""
        given = {"dlid": lid, "is_global": False, "port_num": port} | (address or {})
        path_mtu = verbs.MTU[f"MTU_{mtu}"]
        kind = self["qp"].qp_type
        terms, rnr = {"timeout": timeout, "retry_cnt": retry_cnt, "rnr_retry": rnr_retry}, {}
        if kind == QPType.UC:
            terms = {}
        else:
            rnr = {"min_rnr_timer": min_rnr_timer}
        self["qp"].to_rtr(dest_qp_num=number, ah_attr=AHAttr(**given), path_mtu=path_mtu, **rnr)
        self["qp"].to_rts(**terms)

    def done(self, count: int = 1, seconds: float = 30) -> list[str]:
        """The statuses of the next completions, with the sentences of those that failed."""
        found = []
        for wc in self["cq"].wait(count, seconds):
            try:
                wc.raise_for_status()
                found.append("SUCCESS")
            except verbs.CompletionError as error:
                found.append(f"{wc.status.name}: {error}")
        return found

    def events(self, count: int, seconds: float = 10) -> list[str]:
        """The names of the next asynchronous events."""
        found = []
        for _ in range(count):
            event = self["context"].get_async_event(seconds)
            if event is None:
                break
            found.append(event.event_type.name)
        return found


def main() -> None:
    names = Names()
    names.update(verbs=verbs, AHAttr=AHAttr, open_qp=names.open, connect=names.connect)
    names.update(done=names.done, events=names.events)
    for line in sys.stdin:
        names["result"] = None
        error = ""
        try:
            exec(json.loads(line), names)
        except Exception:
            error = traceback.format_exc()
        print(json.dumps([names["result"], error]), flush=True)


main()
