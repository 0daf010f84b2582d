# SPDX-License-Identifier: Apache-2.0
"""Agents of vendor classes: the server of ibping, and ibsysstat's, which refuses politely.

``general_services.py`` has them in its table. Both classes are OpenIB's; MADs of another OUI are
another vendor's and belong to programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..attribute_ids import Method, StatusCode
from ..mad import VendorMad
from ..vendor_ping import OPENIB_OUI, PingData

if TYPE_CHECKING:
    from .node_agent import NodeAgent
    from .node_ports import NodePort

__all__ = ["answer_ping", "answer_sysstat"]

GET = int(Method.GET)
MOST_NAME = 215


def answer_ping(node: NodeAgent, port: NodePort, mad: bytes) -> bytes | None:
    """Answer ibping with the node's name."""
    request = VendorMad.unpack(mad)
    if request.oui != OPENIB_OUI:
        return None
    if request.method != GET or request.attribute_id:
        return request.response(status=StatusCode.METHOD_ATTRIBUTE_UNSUPPORTED).pack()
    name = node.name.encode()[:MOST_NAME].decode(errors="ignore").replace("\0", "")
    return request.response(PingData(host=name)).pack()


def answer_sysstat(node: NodeAgent, port: NodePort, mad: bytes) -> bytes | None:
    """Refuse ibsysstat with status 0xC, as nobody serves it here."""
    request = VendorMad.unpack(mad)
    if request.oui != OPENIB_OUI:
        return None
    return request.response(status=StatusCode.METHOD_ATTRIBUTE_UNSUPPORTED).pack()
