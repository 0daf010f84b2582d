# SPDX-License-Identifier: Apache-2.0
"""IPv4 between many networks: ARP, forwarding, ICMP, UDP, and the routing protocols.

Everything runs in virtual time on one agenda, without sockets of the operating system. ``Internet``
builds one.
"""

from verbena.internet.errors import (
    AddressError,
    InternetError,
    MessageTooLongError,
    NoRouteError,
    NotConvergedError,
    PacketError,
)
from verbena.internet.icmp import Message
from verbena.internet.interface import EthernetInterface, Interface
from verbena.internet.internet import Internet
from verbena.internet.ipv4 import Datagram, Protocol
from verbena.internet.links import LineSettings, Link, LinkEnd, PointToPoint, Segment
from verbena.internet.network import Network
from verbena.internet.network_capture import NetworkCapture
from verbena.internet.node import Node
from verbena.internet.probes import Hop, PathMtu, PingReply
from verbena.internet.table import Origin, Route, RoutingTable
from verbena.internet.udp_sockets import UdpArrival, UdpSocket

__all__ = [
    "AddressError",
    "Datagram",
    "EthernetInterface",
    "Hop",
    "Interface",
    "Internet",
    "InternetError",
    "LineSettings",
    "Link",
    "LinkEnd",
    "Message",
    "MessageTooLongError",
    "Network",
    "NetworkCapture",
    "NoRouteError",
    "Node",
    "NotConvergedError",
    "Origin",
    "PacketError",
    "PathMtu",
    "PingReply",
    "PointToPoint",
    "Protocol",
    "Route",
    "RoutingTable",
    "Segment",
    "UdpArrival",
    "UdpSocket",
]
