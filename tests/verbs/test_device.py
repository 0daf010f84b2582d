# SPDX-License-Identifier: Apache-2.0
"""Finding, opening and querying devices, and choosing the library."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest

from tests.verbs.side import DEVICE
from verbena import verbs
from verbena.verbs import library


def test_the_list_has_the_device() -> None:
    assert DEVICE in [device.name for device in verbs.get_device_list()]


def test_a_device_says_what_it_is() -> None:
    device = next(found for found in verbs.get_device_list() if found.name == DEVICE)
    assert device.dev_name == "uverbs0"
    assert device.node_type == verbs.NodeType.CA
    assert device.transport_type == verbs.TransportType.IB
    assert device.guid != 0


def test_open_device_without_a_name_opens_the_first() -> None:
    with verbs.open_device() as ctx:
        assert ctx.name == verbs.get_device_list()[0].name


def test_an_unknown_device_is_named_beside_those_that_exist() -> None:
    with pytest.raises(verbs.VerbsError, match=f"'mlx5_9'.*{DEVICE}") as caught:
        verbs.open_device("mlx5_9")
    assert caught.value.errno == errno.ENODEV


def test_device_attributes_are_those_of_a_modern_adapter(ctx: verbs.Context) -> None:
    attr = ctx.query_device()
    assert attr.max_qp >= 1 << 16
    assert attr.max_sge >= 32
    assert attr.max_qp_rd_atom == attr.max_qp_init_rd_atom == 128
    assert attr.phys_port_cnt == 1
    assert attr.atomic_cap != verbs.AtomicCap.NONE
    assert attr.node_guid == ctx.device.guid


def test_the_port_is_an_active_ethernet_port(ctx: verbs.Context) -> None:
    attr = ctx.query_port(1)
    assert attr.state == verbs.PortState.ACTIVE
    assert attr.link_layer == verbs.LinkLayer.ETHERNET
    assert attr.max_mtu == verbs.MTU.MTU_4096
    assert verbs.MTU.MTU_256 <= attr.active_mtu <= attr.max_mtu
    assert attr.max_msg_sz >= (1 << 31) - 1


@pytest.mark.parametrize("port_num", [0, 2])
def test_a_port_that_does_not_exist_is_einval(ctx: verbs.Context, port_num: int) -> None:
    with pytest.raises(verbs.VerbsError, match="ports count from 1") as caught:
        ctx.query_port(port_num)
    assert caught.value.errno == errno.EINVAL


def test_gid_0_is_an_address_and_1_is_made_from_the_guid(ctx: verbs.Context) -> None:
    table = ctx.query_gid_table()
    first, second = ctx.query_gid_ex(1, 0), ctx.query_gid_ex(1, 1)
    assert first.gid in [entry.gid for entry in table[2:]]
    assert second.gid.subnet_prefix == 0xFE80 << 48
    assert {entry.gid_type for entry in table} == {verbs.GidType.ROCE_V2}


def test_the_gid_table_has_no_empty_entry(ctx: verbs.Context) -> None:
    table = ctx.query_gid_table()
    assert len(table) >= 2
    assert all(entry.gid for entry in table)


def test_a_gid_beyond_the_table_is_an_error(ctx: verbs.Context) -> None:
    with pytest.raises(verbs.VerbsError, match="gid_tbl_len"):
        ctx.query_gid(1, 1 << 16)


def test_the_pkey_table_has_the_default_key(ctx: verbs.Context) -> None:
    assert ctx.query_pkey(1, 0) == 0xFFFF


def test_a_gid_prints_as_an_address() -> None:
    gid = verbs.Gid(bytes(10) + b"\xff\xff\x0a\x00\x00\x01")
    assert str(gid) == "0000:0000:0000:0000:0000:ffff:0a00:0001"
    assert gid.is_ipv4_mapped


def test_a_file_that_is_no_libibverbs_is_refused() -> None:
    with pytest.raises(verbs.VerbsError, match="lacks ibv_get_device_list"):
        verbs.get_device_list("libm.so.6")


def test_a_misspelt_library_says_what_it_can_be() -> None:
    with pytest.raises(verbs.VerbsError, match="'packaged', 'system' or the path"):
        verbs.get_device_list("packagd")


def test_a_library_that_does_not_exist_is_named() -> None:
    with pytest.raises(verbs.VerbsError, match="/nowhere/"):
        verbs.get_device_list("/nowhere/libibverbs.so.1")


def test_the_same_library_is_one_object() -> None:
    assert library.load() is library.load()
    assert library.load().is_verbena


def test_describe_names_the_device(ctx: verbs.Context) -> None:
    described = ctx.describe()
    assert described is not None
    assert described["device"] == DEVICE


def test_importing_loads_neither_numpy_nor_asyncio() -> None:
    program = (
        "import sys, verbena.verbs as v; v.open_device().close();"
        "sys.exit(bool({'numpy', 'asyncio'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_short_gid_table_is_told_without_the_reason_of_another_call(ctx: verbs.Context) -> None:
    with pytest.raises(verbs.VerbsError):
        ctx.query_port(7)
    with pytest.raises(verbs.VerbsError, match="more GIDs than max_entries"):
        ctx.query_gid_table(1)
