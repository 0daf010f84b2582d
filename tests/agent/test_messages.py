# SPDX-License-Identifier: Apache-2.0
"""What the agent reads: its messages as C has them, and commands of librdmacm, good and bad."""

from __future__ import annotations

import contextlib
import errno
import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import ROOT
from verbena.agent import messages, ucm_answers
from verbena.agent.messages import Hello, Request, Role
from verbena.agent.rdma_cm_device import parse_sockaddr
from verbena.agent.ucm_commands import ConnParam, UcmError, UcmNumber, parse_command
from verbena.manage.cm.addresses import CmAddress
from verbena.manage.cm.routes import CmRoute
from verbena.manage.sa_records import PathRecord

HEADER = ROOT / "src/native/preload/paths/manager/agent.h"


def constant(name: str) -> int:
    found = re.search(rf"\b{name}\s*=?\s*(0x[0-9a-f]+|\d+)", HEADER.read_text())
    assert found is not None, name
    return int(found[1], 0)


def test_both_sides_have_the_same_numbers() -> None:
    assert constant("VB_AGENT_MAGIC") == messages.MAGIC
    assert constant("VB_AGENT_VERSION") == messages.VERSION
    assert 4 * 4 + 8 + constant("VB_AGENT_PORTS") == messages.LONGEST_HELLO
    assert 16 + constant("VB_AGENT_COMMAND") == messages.LONGEST_REQUEST
    assert len(messages.answer()) == 4 * 4 + 16 + 6 * 4 + 8
    assert constant("VB_AGENT_MESSAGE") == messages.LONGEST_MESSAGE
    assert constant("VB_AGENT_EVENT") == messages.EVENT_MESSAGE
    flags = ("TAKE_BACK", "AGAIN", "REMEMBER", "FORGET", "CHANGED")
    assert all(constant(f"VB_AGENT_{each}") == messages.AnswerFlag[each] for each in flags)


def hello(text: bytes, role: int = 1) -> bytes:
    head = struct.pack("=IIIIQ", messages.MAGIC, messages.VERSION, role, 0, 77)
    return head + text.ljust(constant("VB_AGENT_PORTS"), b"\0")


def test_a_hello_names_the_program_s_ports() -> None:
    found = Hello.parse(hello(b"0 1 00000000000000aa ethernet 0 eth0\n1 2 bb infiniband 8 \n"))
    assert found is not None
    assert (found.role, found.inode) == (Role.DEVICE, 77)
    first, second = found.ports
    assert (first.guid, first.is_ethernet, first.netdev) == (0xAA, True, "eth0")
    assert (second.device, second.number, second.lid, second.netdev) == (1, 2, 8, "")


@given(st.binary(max_size=1100))
def test_any_bytes_as_a_hello_or_a_request(data: bytes) -> None:
    assert Hello.parse(data) is None or data[:4] == struct.pack("=I", messages.MAGIC)
    made = Request.parse(data)
    assert (made is None) == (len(data) < 16)


@given(st.binary(max_size=constant("VB_AGENT_PORTS")))
def test_any_bytes_as_ports(text: bytes) -> None:
    found = Hello.parse(hello(text))
    assert found is None or len(found.ports) <= len(text)


@given(st.binary(max_size=600))
def test_any_bytes_as_a_command(data: bytes) -> None:
    with contextlib.suppress(UcmError):
        parse_command(data)


def command(number: int, body: bytes, room: int = 0, length: int | None = None) -> bytes:
    return struct.pack("=IHH", number, len(body) if length is None else length, room) + body


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\0" * 7, errno.EINVAL),
        (command(99, b""), errno.EINVAL),
        (command(UcmNumber.GET_OPTION, bytes(16)), errno.ENOSYS),
        (command(UcmNumber.LISTEN, bytes(4)), errno.EINVAL),
        (command(UcmNumber.LISTEN, bytes(8), length=9), errno.EINVAL),
        (command(UcmNumber.CREATE_ID, bytes(24), room=3), errno.ENOSPC),
        (command(UcmNumber.INIT_QP_ATTR, bytes(16), room=143), errno.ENOSPC),
    ],
)
def test_refused_commands(data: bytes, expected: int) -> None:
    with pytest.raises(UcmError) as caught:
        parse_command(data)
    assert caught.value.errno == expected


def test_the_fields_of_a_command() -> None:
    body = struct.pack("=QQHB5x", 0x1234, 0, 0x106, 2)
    found = parse_command(command(UcmNumber.CREATE_ID, body, room=4))
    assert (found["uid"], found["port_space"], found["qp_type"]) == (0x1234, 0x106, 2)


def test_private_data_has_its_length() -> None:
    raw = struct.pack("=II256s8B", 5, 6, b"private", 4, 0, 1, 2, 0, 7, 7, 1)
    param = ConnParam.unpack(raw)
    assert (param.qp_num, param.private_data, param.valid) == (5, b"priv", 1)


@pytest.mark.parametrize(
    "address",
    [
        CmAddress.ip("10.1.2.3", 7174),
        CmAddress.ip("fe80::1", 7, 3),
        CmAddress.ib(bytes(range(16)), 0x1061C06, p_key=0xFFFF),
    ],
    ids=str,
)
def test_addresses_keep_their_value(address: CmAddress) -> None:
    assert parse_sockaddr(ucm_answers.sockaddr(address).ljust(128, b"\0")) == address


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x63\0" + bytes(26), b"\x02\0\0"])
def test_addresses_of_other_families(data: bytes) -> None:
    with pytest.raises(UcmError):
        parse_sockaddr(data)


def test_the_sizes_of_what_programs_read() -> None:
    assert len(ucm_answers.event(1, 2, 3)) == 336
    assert len(ucm_answers.event(1, 2, 3, room=324)) == 324
    assert len(ucm_answers.query_route(1, [], b"", b"", 1)) == 208
    assert len(ucm_answers.query_addr(1, 0, b"", b"", 1)) == ucm_answers.QUERY_ADDR_BYTES
    assert len(ucm_answers.query_path([bytes(64)] * 9, 8 + 72 * 2)) == 8 + 72 * 2


@given(
    st.tuples(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF), st.integers(0, 0xFFFFF)),
    st.tuples(st.integers(0, 255), st.integers(0, 255), st.integers(0, 15), st.integers(0, 0xFFFF)),
    st.tuples(st.integers(1, 5), st.integers(2, 22), st.integers(0, 31)),
)
def test_a_path_is_a_path_record(
    lids: tuple[int, int, int], hops: tuple[int, int, int, int], codes: tuple[int, int, int]
) -> None:
    dlid, slid, flow_label = lids
    hop_limit, traffic_class, sl, p_key = hops
    mtu, rate, life = codes
    same = {
        "dgid": bytes(range(16)),
        "sgid": bytes(range(16, 32)),
        "dlid": dlid,
        "slid": slid,
        "flow_label": flow_label,
        "hop_limit": hop_limit,
        "traffic_class": traffic_class,
        "sl": sl,
        "p_key": p_key,
        "mtu": mtu,
        "rate": rate,
    }
    route = CmRoute(port=1, packet_life=life, **same)  # type: ignore[arg-type]
    record = PathRecord(reversible=True, numb_path=1, packet_life_time=life, **same)
    assert ucm_answers.path_record(route) == record.pack()
