# SPDX-License-Identifier: Apache-2.0
"""Node-name maps: files with a name for each node GUID, as OpenSM and infiniband-diags read them.

The subnet manager names nodes with them, and programs write them for infiniband-diags. A line is
``0xGUID "name"``; what follows ``#`` outside of the quotes is a comment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..codes import guid_text
from ..errors import MadError

__all__ = ["read_node_names", "write_node_names"]

_LINE = re.compile(r'\s*(?P<guid>0[xX][0-9a-fA-F]{1,16})\s+"(?P<name>[^"]*)"\s*(?:#.*)?')


def read_node_names(text: str) -> dict[int, str]:
    """Return the names by GUID. The last line of a GUID counts.

    Raises MadError, which names the line, for one that is neither a name nor a comment.
    """
    found: dict[int, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        matched = _LINE.fullmatch(line)
        if not matched:
            raise MadError(f'line {number}: {line.strip()!r} is not 0xGUID "name"')
        found[int(matched["guid"], 16)] = matched["name"]
    return found


def write_node_names(names: Mapping[int, str]) -> str:
    """Return the text of a map, ordered by GUID. Raises MadError for a name with a quote."""
    lines = []
    for guid, name in sorted(names.items()):
        if '"' in name or "\n" in name:
            raise MadError(f"the name {name!r} of {guid_text(guid)} has a quote or a line break")
        lines.append(f'0x{guid:016x} "{name}"\n')
    return "".join(lines)
