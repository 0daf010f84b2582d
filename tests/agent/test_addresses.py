# SPDX-License-Identifier: Apache-2.0
"""The host's addresses, whose GIDs the device has a moment later than the kernel."""

from __future__ import annotations

import random
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from verbena.agent.host_addresses import HostAddresses
from verbena.manage.cm import CmError, CmRefusal, RdmaCm
from verbena.manage.cm.addresses import CmAddress
from verbena.manage.cm.routes import CmDevice, CmPort

LOCAL = CmAddress.ip("127.0.0.1")
ELSEWHERE = CmAddress.ip("192.0.2.77")
INTERFACE = socket.if_nametoindex("lo")


class LateDevice:
    """Has the GID of an address from the look number ``since`` on."""

    def __init__(self, since: int) -> None:
        self.looks = 0
        self._since = since

    def query_gid_table(self) -> list[Any]:
        self.looks += 1
        entry = SimpleNamespace(gid=LOCAL.gid, ndev_ifindex=INTERFACE, port_num=1)
        return [entry] if self.looks > self._since else []


def test_a_new_address_is_waited_for() -> None:
    found = HostAddresses(LateDevice(since=3)).interface_of(LOCAL)  # type: ignore[arg-type]
    assert found is not None
    assert (found.port, found.gid) == (1, LOCAL.gid)


def test_an_address_that_the_device_never_gets() -> None:
    found = HostAddresses(LateDevice(since=10**6)).interface_of(LOCAL)  # type: ignore[arg-type]
    assert found is not None
    assert found.port == 0


def test_the_ipv6_loopback_address_is_reached_by_the_ipv4_one() -> None:
    host = HostAddresses(LateDevice(since=0))  # type: ignore[arg-type]
    found = host.interface_of(CmAddress.ip("::1"))
    assert found is not None
    assert (found.port, found.gid) == (1, LOCAL.gid)


def test_another_host_s_address_is_not_waited_for() -> None:
    device = LateDevice(since=10**6)
    assert HostAddresses(device).interface_of(ELSEWHERE) is None  # type: ignore[arg-type]
    assert device.looks == 1


def test_the_connection_manager_hears_of_a_gid_before_the_device_s_event() -> None:
    known: set[bytes] = set()
    host = HostAddresses(
        LateDevice(since=0),  # type: ignore[arg-type]
        lambda gid: gid in known,
        lambda: known.add(LOCAL.gid),
    )
    host.interface_of(LOCAL)
    assert known == {LOCAL.gid}


def test_an_interface_that_has_gone_reaches_nobody() -> None:
    gone = SimpleNamespace(
        query_gid_table=lambda: [SimpleNamespace(gid=LOCAL.gid, ndev_ifindex=1 << 30, port_num=1)]
    )
    host = HostAddresses(gone)  # type: ignore[arg-type]
    assert not host.reaches(LOCAL, ELSEWHERE, 1)


def test_ethernet_has_no_addresses_of_af_ib() -> None:
    """libfabric would take them for the device's, and bind to them in place of IP addresses."""
    host: Any = HostAddresses(LateDevice(since=0))  # type: ignore[arg-type]
    device = CmDevice(1, ports=(CmPort(gids=(LOCAL.gid,)),))
    manager = RdmaCm(device, host, random.Random(1).getrandbits)
    number = manager.create_id(manager.open_channel(), space=0x13F)
    with pytest.raises(CmError) as caught:
        manager.bind(number, CmAddress.ib(LOCAL.gid))
    assert caught.value.refusal is CmRefusal.NO_DEVICE
    manager.bind(
        number, CmAddress.ib(service_id=0x106 << 16)
    )  # by which librdmacm finds out that there is AF_IB
