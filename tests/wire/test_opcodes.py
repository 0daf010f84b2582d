# SPDX-License-Identifier: Apache-2.0
"""The table of opcodes against the specification's, written down here once more."""

from __future__ import annotations

import pytest

from verbena import wire

LENGTHS = {"rdeth": 4, "deth": 8, "xrceth": 4, "feth": 4, "reth": 16, "atomiceth": 28, "aeth": 4}
LENGTHS |= {"atomicacketh": 8, "immdt": 4, "ieth": 4}

# Low five bits, name, headers of RC, which transports beside RC (u: UC, r: RD, x: XRC), kinds.
OPERATIONS = """
00 SEND_FIRST        -                  urx send,first,payload
01 SEND_MIDDLE       -                  urx send,payload
02 SEND_LAST         -                  urx send,last,payload
03 SEND_LAST_IMM     immdt              urx send,last,payload
04 SEND_ONLY         -                  urx send,first,last,payload
05 SEND_ONLY_IMM     immdt              urx send,first,last,payload
06 WRITE_FIRST       reth               urx write,first,payload
07 WRITE_MIDDLE      -                  urx write,payload
08 WRITE_LAST        -                  urx write,last,payload
09 WRITE_LAST_IMM    immdt              urx write,last,payload
0a WRITE_ONLY        reth               urx write,first,last,payload
0b WRITE_ONLY_IMM    reth,immdt         urx write,first,last,payload
0c READ_REQUEST      reth               rx  read,first,last
0d READ_RESP_FIRST   aeth               rx  response,first,payload
0e READ_RESP_MIDDLE  -                  rx  response,payload
0f READ_RESP_LAST    aeth               rx  response,last,payload
10 READ_RESP_ONLY    aeth               rx  response,first,last,payload
11 ACKNOWLEDGE       aeth               rx  response,first,last
12 ATOMIC_ACK        aeth,atomicacketh  rx  response,first,last
13 CMP_SWAP          atomiceth          rx  atomic,first,last
14 FETCH_ADD         atomiceth          rx  atomic,first,last
16 SEND_LAST_INV     ieth               x   send,last,payload
17 SEND_ONLY_INV     ieth               x   send,first,last,payload
1c FLUSH             feth,reth          x   first,last
1d ATOMIC_WRITE      reth               x   atomic-write,first,last,payload
"""
WORDS = {
    "IMM": "with Immediate",
    "INV": "with Invalidate",
    "RESP": "Response",
    "ACK": "Acknowledge",
    "CMP": "Cmp",
    "FETCH": "Fetch",
}
UPPER = {"SEND", "WRITE", "READ", "FLUSH"}

Row = tuple[str, set[str], tuple[str, ...]]


def expected() -> dict[int, Row]:
    """Opcode to name, kinds and headers in their order."""
    table: dict[int, Row] = {
        0x55: ("RD_RESYNC", {"first", "last"}, ("rdeth", "deth")),
        0x64: ("UD_SEND_ONLY", {"send", "first", "last", "payload"}, ("deth",)),
        0x65: ("UD_SEND_ONLY_IMM", {"send", "first", "last", "payload"}, ("deth", "immdt")),
        0x80: ("CNP_IB", {"first", "last"}, ()),
        0x81: ("CNP", {"first", "last", "payload"}, ()),
    }
    for line in OPERATIONS.strip().splitlines():
        low, name, listed, transports, kinds = line.split()
        code, kind = int(low, 16), set(kinds.split(","))
        headers = () if listed == "-" else tuple(listed.split(","))
        response = "response" in kind
        table[code] = (f"RC_{name}", kind, headers)
        if "u" in transports:
            table[0x20 + code] = (f"UC_{name}", kind, headers)
        if "r" in transports:
            added: tuple[str, ...] = ("rdeth",) if response else ("rdeth", "deth")
            table[0x40 + code] = (f"RD_{name}", kind, added + headers)
        if "x" in transports:
            added = () if response else ("xrceth",)
            table[0xA0 + code] = (f"XRC_{name}", kind, added + headers)
    return table


EXPECTED = expected()


@pytest.mark.parametrize("opcode", range(256))
def test_row(opcode: int) -> None:
    row = wire.opcode_info(opcode)
    if opcode not in EXPECTED:
        assert row is None
        assert wire.opcode_name(opcode) == f"{opcode:#04x}"
        return
    name, kinds, headers = EXPECTED[opcode]
    assert row is not None
    assert (wire.opcode_name(opcode), set(row.kinds), row.headers) == (name, kinds, headers)
    assert row.length == 12 + sum(LENGTHS[header] for header in headers)


def spelled(name: str) -> str:
    """The table's longer name, from the short one."""
    words = [WORDS.get(word, word if word in UPPER else word.title()) for word in name.split("_")]
    text = " ".join([name.split("_")[0], *words[1:]])
    text = text.replace("Cmp Swap", "CmpSwap").replace("Fetch Add", "FetchAdd")
    return text.replace("Atomic WRITE", "ATOMIC WRITE").replace("Resync", "RESYNC")


@pytest.mark.parametrize("opcode", sorted(set(EXPECTED) - {0x80, 0x81}))
def test_long_name(opcode: int) -> None:
    row = wire.opcode_info(opcode)
    assert row is not None
    assert row.name == spelled(EXPECTED[opcode][0])


def test_long_names_of_congestion() -> None:
    infiniband, roce = wire.opcode_info(0x80), wire.opcode_info(0x81)
    assert infiniband is not None
    assert roce is not None
    assert (infiniband.name, roce.name) == ("CNP InfiniBand", "CNP RoCE")


@pytest.mark.parametrize("opcode", [-1, 256])
def test_an_opcode_has_a_byte(opcode: int) -> None:
    with pytest.raises(OverflowError):
        wire.opcode_info(opcode)
