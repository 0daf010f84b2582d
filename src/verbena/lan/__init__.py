# SPDX-License-Identifier: Apache-2.0
"""Ethernet: stations on a shared cable, on a hub or behind switches, in virtual time."""

from verbena.lan.csma import Csma
from verbena.lan.errors import LanError
from verbena.lan.frame import BROADCAST, MTU, Frame, mac_address, mac_text
from verbena.lan.lan import Lan
from verbena.lan.medium import Cable, Hub
from verbena.lan.port import Port, PortCounters
from verbena.lan.spanning_tree import SpanningTree, TreeTimes
from verbena.lan.station import Station
from verbena.lan.switch import LearningSwitch
from verbena.lan.tree_port import PortState
from verbena.lan.wire import Wire

__all__ = [
    "BROADCAST",
    "MTU",
    "Cable",
    "Csma",
    "Frame",
    "Hub",
    "Lan",
    "LanError",
    "LearningSwitch",
    "Port",
    "PortCounters",
    "PortState",
    "SpanningTree",
    "Station",
    "TreeTimes",
    "Wire",
    "mac_address",
    "mac_text",
]
