# SPDX-License-Identifier: Apache-2.0
"""Our headers lay out memory as the installed <infiniband/verbs.h> does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.abi.headers import macros, read_header, values
from tests.support import ROOT

THEIRS = "<infiniband/verbs.h>"
OURS = '"abi/verbs.h"'
OUR_FOLDER = f"-I{ROOT / 'src' / 'native'}"

# Structs that newer releases made longer; a program and a library of different ages meet there.
GROWN = {"struct ibv_port_attr", "struct ibv_qp_ex", "struct verbs_context"}
# This one grows at its front, so that only distances to its end mean anything.
FROM_THE_END = "struct verbs_context"


@dataclass(frozen=True)
class Fact:
    name: str
    expression: str


def installed_header() -> None:
    if not Path("/usr/include/infiniband/verbs.h").exists():
        pytest.skip("libibverbs-dev is not installed; scripts/setup-debian.sh test brings it")


def public(name: str) -> bool:
    return name.split()[-1].lstrip("_").startswith(("ibv_", "verbs_context"))


def kernel_names() -> dict[str, str]:
    """Names that rdma-core spells ibv_… and defines as a kernel struct."""
    return {
        kernel: name
        for name, kernel in macros(THEIRS).items()
        if name.startswith("ibv_") and kernel.startswith("ib_uverbs_")
    }


def their_records() -> dict[str, list[str]]:
    rename = kernel_names()
    records = {}
    for record, fields in read_header(THEIRS).fields.items():
        kind, tag = record.split()
        name = f"{kind} {rename.get(tag, tag)}"
        if public(name):
            records[name] = fields
    return records


def their_constants() -> list[str]:
    constants = {name for name in read_header(THEIRS).constants if name.startswith("IBV_")}
    numeric = {
        name
        for name, text in macros(THEIRS).items()
        if name.startswith("IBV_") and "(" + text != text and "void" not in text
    }
    return sorted(constants | numeric)


def size_facts() -> list[Fact]:
    return [Fact(f"sizeof {name}", f"sizeof({name})") for name in sorted(their_records())]


def offset_facts() -> list[Fact]:
    facts = []
    for record, fields in sorted(their_records().items()):
        for name in fields:
            offset = f"offsetof({record}, {name})"
            if record == FROM_THE_END:
                offset += f" - offsetof({record}, context)"
            facts.append(Fact(f"{record}.{name}", offset))
    return facts


def differences(facts: list[Fact], folder: Path) -> list[str]:
    expressions = [fact.expression for fact in facts]
    theirs = values(THEIRS, expressions, folder)
    ours = values(OURS, expressions, folder, OUR_FOLDER)
    return [
        f"{fact.name}: {mine}, not {other}"
        for fact, mine, other in zip(facts, ours, theirs, strict=True)
        if mine != other
    ]


def test_the_reader_finds_what_there_is() -> None:
    installed_header()
    records = their_records()
    assert len(records) > 100
    assert sum(len(fields) for fields in records.values()) > 600
    assert len(their_constants()) > 400
    assert "wr.rdma.rkey" in records["struct ibv_send_wr"]
    assert "imm_data" in records["struct ibv_wc"]
    assert "poll_cq" in records["struct ibv_context_ops"]


def test_sizes(tmp_path: Path) -> None:
    installed_header()
    facts = [fact for fact in size_facts() if fact.name.removeprefix("sizeof ") not in GROWN]
    assert differences(facts, tmp_path) == []


def test_offsets(tmp_path: Path) -> None:
    installed_header()
    assert differences(offset_facts(), tmp_path) == []


def test_constants(tmp_path: Path) -> None:
    installed_header()
    facts = [Fact(name, name) for name in their_constants()]
    assert differences(facts, tmp_path) == []


def test_grown_structs_only_grew(tmp_path: Path) -> None:
    installed_header()
    expressions = [f"sizeof({name})" for name in sorted(GROWN)]
    theirs = values(THEIRS, expressions, tmp_path)
    ours = values(OURS, expressions, tmp_path, OUR_FOLDER)
    assert all(mine >= other for mine, other in zip(ours, theirs, strict=True))


def test_path_record(tmp_path: Path) -> None:
    installed_header()
    fields = read_header("<infiniband/sa.h>", "-include", "infiniband/verbs.h").fields
    record = "struct ibv_sa_path_rec"
    expressions = [f"sizeof({record})"]
    expressions += [f"offsetof({record}, {name})" for name in fields[record]]
    theirs = values("<infiniband/sa.h>", expressions, tmp_path, "-include", "infiniband/verbs.h")
    assert values('"abi/path.h"', expressions, tmp_path, OUR_FOLDER) == theirs
