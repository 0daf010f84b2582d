# SPDX-License-Identifier: Apache-2.0
"""The M_Key: who may get and set what, the lease, violations and trap 256."""

from __future__ import annotations

import pytest

from tests.manage.agents.managing import ask, change, get, put
from tests.manage.agents.small_subnets import managed
from verbena.manage.agents import Drop, Subnet
from verbena.manage.attribute_ids import SmpAttribute
from verbena.manage.notices import BadMKeyTrap, TrapNumber
from verbena.manage.smp_attributes import NodeInfo, PortInfo

KEY, WRONG = 0x1234, 0x99
PATH = (1, 3, 1)  # to h3
# M_KeyProtectBits, whether a Get with a wrong key is answered, and whether it shows the key.
PROTECTION = [(0, True, True), (1, True, False), (2, False, False), (3, False, False)]


@pytest.mark.parametrize(("bits", "answered", "shown"), PROTECTION)
@pytest.mark.parametrize("key", [0, WRONG])
def test_protection(bits: int, answered: bool, shown: bool, key: int) -> None:
    subnet, _, _ = managed()
    assert change(subnet, "h1", PATH, 1, m_key=0, m_key_protect_bits=bits) == 0
    info = get(subnet, "h1", PortInfo, PATH, 1)
    assert info.m_key == 0
    set_key(subnet)
    response = ask(subnet, "h1", PortInfo, PATH, 1, m_key=key)
    assert (response is not None) == answered
    if response is not None:
        assert response.attribute(PortInfo).m_key == (KEY if shown else 0)
    assert change(subnet, "h1", PATH, 1, m_key=key) is None
    right = ask(subnet, "h1", PortInfo, PATH, 1, m_key=KEY)
    assert right is not None
    assert right.attribute(PortInfo).m_key == KEY
    assert right.attribute(PortInfo).m_key_violations == (1 if answered else 2)
    assert change(subnet, "h1", PATH, 1, m_key=KEY, subnet_timeout=3) == 0


def set_key(subnet: Subnet, **more: int) -> None:
    """Give h3 its key; the fields of the Set are those of a Get."""
    info = get(subnet, "h1", PortInfo, PATH, 1).replace(port_state=0, port_physical_state=0)
    assert put(subnet, "h1", info.replace(m_key=KEY, **more), PATH, 1) == 0


def test_a_violation_is_reported() -> None:
    subnet, lids, program = managed()
    set_key(subnet, m_key_protect_bits=2)
    assert ask(subnet, "h1", NodeInfo, PATH, 5, m_key=WRONG) is None
    assert subnet.drops[Drop.M_KEY] == 1
    (trap,) = program.traps()
    assert trap.trap_number == TrapNumber.BAD_M_KEY
    assert trap.issuer_lid == lids["h3"]
    detail = trap.detail
    assert isinstance(detail, BadMKeyTrap)
    assert (detail.method, detail.attribute_id) == (1, SmpAttribute.NODE_INFO)
    assert (detail.attribute_modifier, detail.m_key) == (5, WRONG)
    assert (detail.dr_notice, detail.dr_hop_count) == (True, 3)
    assert detail.dr_return_path[:3] == bytes((1, 3, 1))


def test_the_lease_ends_the_protection_but_not_the_key() -> None:
    subnet, _, _ = managed()
    set_key(subnet, m_key_protect_bits=2, m_key_lease_period=10)
    subnet.advance(100)
    assert ask(subnet, "h1", PortInfo, PATH, 1) is None  # this begins the lease
    subnet.advance(109.9)
    assert ask(subnet, "h1", PortInfo, PATH, 1) is None
    subnet.advance(110)
    response = ask(subnet, "h1", PortInfo, PATH, 1)
    assert response is not None
    info = response.attribute(PortInfo)
    assert (info.m_key, info.m_key_protect_bits) == (KEY, 0)
    assert change(subnet, "h1", PATH, 1, lid=77) is None


def test_the_right_key_renews_the_lease() -> None:
    subnet, _, _ = managed()
    set_key(subnet, m_key_protect_bits=2, m_key_lease_period=10)
    assert ask(subnet, "h1", PortInfo, PATH, 1) is None
    subnet.advance(9)
    assert ask(subnet, "h1", PortInfo, PATH, 1, m_key=KEY) is not None
    subnet.advance(11)
    assert ask(subnet, "h1", PortInfo, PATH, 1) is None


def test_the_key_of_a_switch_is_that_of_port_0() -> None:
    subnet, _, _ = managed()
    assert change(subnet, "h1", (1, 3), 0, m_key=0) == 0
    info = get(subnet, "h1", PortInfo, (1, 3), 0).replace(port_state=0, m_key=KEY)
    assert put(subnet, "h1", info.replace(port_physical_state=0), (1, 3), 0) == 0
    assert change(subnet, "h1", (1, 3), 1) is None
    assert change(subnet, "h1", (1, 3), 1, m_key=KEY) == 0


def test_a_port_of_an_adapter_is_protected_from_those_at_another_one() -> None:
    subnet = Subnet()
    subnet.add_adapter("sm")
    subnet.add_adapter("two", ports=2)
    subnet.connect("sm", 1, "two", 1)
    assert change(subnet, "sm", (1,), 2, lid=7) == 0
    info = get(subnet, "sm", PortInfo, (1,), 2).replace(port_state=0, port_physical_state=0)
    assert put(subnet, "sm", info.replace(m_key=KEY), (1,), 2) == 0
    assert change(subnet, "sm", (1,), 2, lid=8) is None
    assert change(subnet, "sm", (1,), 1, lid=8) == 0
    assert change(subnet, "sm", (1,), 2, m_key=KEY, lid=8) == 0
    assert get(subnet, "sm", PortInfo, (1,), 2).m_key_violations == 1
