# SPDX-License-Identifier: Apache-2.0
"""An RDMA adapter as a device of a computer, its driver, and a cable between two of them."""

from verbena.host.hca.device import Hca, Refusal
from verbena.host.hca.driver import Completion, CompletionQueue, HcaCosts, HcaDriver
from verbena.host.hca.formats import CompletionEntry, HcaOpcode, HcaStatus, SendRequest
from verbena.host.hca.packets import Packet, Reply
from verbena.host.hca.pages import DemandPages, PageSource, ResidentPages
from verbena.host.hca.pair import Node, add_node, connected
from verbena.host.hca.posting import QueuePair
from verbena.host.hca.queues import QpState
from verbena.host.hca.regions import Region
from verbena.host.hca.tables import HcaAccess
from verbena.host.hca.wire import Wire

__all__ = [
    "Completion",
    "CompletionEntry",
    "CompletionQueue",
    "DemandPages",
    "Hca",
    "HcaAccess",
    "HcaCosts",
    "HcaDriver",
    "HcaOpcode",
    "HcaStatus",
    "Node",
    "Packet",
    "PageSource",
    "QpState",
    "QueuePair",
    "Refusal",
    "Region",
    "Reply",
    "ResidentPages",
    "SendRequest",
    "Wire",
    "add_node",
    "connected",
]
