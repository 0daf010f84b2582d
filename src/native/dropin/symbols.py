# SPDX-License-Identifier: Apache-2.0
"""Make the linker's version script and the private symbols from symbols.csv.

scripts/native_sources.py writes them, and sees in `make lint` whether they are out of date.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
LICENCE = "SPDX-License-Identifier: Apache-2.0"
NOTE = "Made by symbols.py from symbols.csv."

# rdma-core renames its private node whenever a struct that providers see changes: the number is
# the release that did it, up to the next one.
PRIVATE_NODES = [15, 16, 17, 18, 19, 20, 21, 22, 25, 33, 34, 57, 59, 64, 65]
# The node that a look-up without a version gets; every distribution of today has it.
PRIVATE_DEFAULT = 34

TARGETS = {
    "error": "vb_dropin_stub_error",
    "minus1": "vb_dropin_stub_minus1",
    "null": "vb_dropin_stub_null",
    "void": "vb_dropin_stub_void",
    "data": "vb_stub_data",
    "register": "vb_dropin_stub_void",
}


@dataclass(frozen=True)
class Symbol:
    name: str
    node: str
    kind: str

    @property
    def private(self) -> bool:
        return self.node == "IBVERBS_PRIVATE"


def read_symbols(path: Path = HERE / "symbols.csv") -> list[Symbol]:
    """The table, in its order."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return [Symbol(row["name"], row["node"], row["kind"]) for row in csv.DictReader(lines)]


def private_versions(symbol: Symbol) -> Iterator[tuple[str, str]]:
    """Every name of a private symbol, each with its version as the assembler writes it."""
    for number in PRIVATE_NODES:
        if symbol.kind == "register":
            yield f"{symbol.name}_{number}", f"@@IBVERBS_PRIVATE_{number}"
        else:
            yield symbol.name, node_version(number)


def exported(symbols: list[Symbol]) -> set[tuple[str, str]]:
    """All (name, version node) pairs that the library must have."""
    pairs: set[tuple[str, str]] = set()
    for symbol in symbols:
        if symbol.private:
            pairs |= {(name, node.lstrip("@")) for name, node in private_versions(symbol)}
        else:
            pairs.add((symbol.name, symbol.node))
    return pairs


def version_script(symbols: list[Symbol]) -> str:
    """Public nodes inherit from the one before; the order of the table is their order."""
    nodes: dict[str, list[str]] = {}
    for symbol in symbols:
        if not symbol.private:
            names = nodes.setdefault(symbol.node, [])
            if symbol.kind == "call":
                names.append(symbol.name)
    lines = [f"/* {LICENCE} */", f"/* {NOTE} */"]
    before = ""
    for node, names in nodes.items():
        lines += ["", f"{node} {{", "    global:"]
        lines += [f"        {name};" for name in sorted(names)]
        if node == "IBVERBS_1.0":
            lines.append("    local: *;")
        inherits = before if node.startswith("IBVERBS_") else ""
        lines.append(f"}}{inherits};")
        before = f" {node}"
    lines += ["", *(f"IBVERBS_PRIVATE_{number} {{ }};" for number in PRIVATE_NODES)]
    return "\n".join(lines) + "\n"


def private_list(symbols: list[Symbol]) -> str:
    """Assembler directives by way of two macros; private.c includes this file."""
    versions = [f'    VB_VERSION(target, name, "{node_version(n)}")' for n in PRIVATE_NODES]
    lines = [
        f"// {LICENCE}",
        f"/* {NOTE} Only for private.c. */",
        "/* clang-format off */",
        "#define VB_PRIVATE(target, name) \\",
        " \\\n".join(versions),
        "",
    ]
    for symbol in symbols:
        lines += bindings(symbol)
    return "\n".join(lines) + "\n"


def node_version(number: int) -> str:
    return f"{'@@' if number == PRIVATE_DEFAULT else '@'}IBVERBS_PRIVATE_{number}"


def bindings(symbol: Symbol) -> list[str]:
    target = TARGETS.get(symbol.kind, f"vb_dropin_private_{symbol.name}")
    if symbol.kind == "register":
        pairs = private_versions(symbol)
        return [f'VB_VERSION({target}, {name}, "{version}")' for name, version in pairs]
    if symbol.private:
        return [f"VB_PRIVATE({target}, {symbol.name})"]
    if symbol.kind == "call":
        return []
    return [f'VB_VERSION({target}, {symbol.name}, "@{symbol.node}")']


def outputs() -> dict[Path, str]:
    symbols = read_symbols()
    return {
        HERE / "libibverbs.map": version_script(symbols),
        HERE / "private_symbols.h": private_list(symbols),
    }
