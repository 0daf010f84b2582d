# SPDX-License-Identifier: Apache-2.0
"""Fail when a static function's name in src/native is not unique, or lacks its room's prefix.

`make lint` runs this. gdb, perf, ctags and grep find a static function by its name alone: `break
take` would stop in ten files. So a static name occurs in one file; a name that would be repeated
starts with that of its file, as multicast_join does. Every other function begins with the prefix of
its room. The room hca has no prefix: its functions begin with the verbs object that they belong to
(vb_qp_, vb_cq_), and with no other room's prefix.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
NATIVE = ROOT / "src" / "native"

# A function at the left margin, with the attributes that may stand before its name.
STATIC = re.compile(
    r"^static\b(?:__attribute__\(\([^;={]*?\)\)|[^;={(])*?\b(?!__attribute__)(\w+)\(", re.MULTILINE
)


# A function at the left margin that begins with vb_, and what stands before it.
SHARED = re.compile(r"^(?!typedef|return|extern)[A-Za-z_][^;{}=#/]*?\b(vb_\w+)\(", re.MULTILINE)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)

PREFIXES = {
    "direct": "vb_direct_",
    "dropin": "vb_dropin_",
    "event": "vb_world_",
    "host": "vb_host_",
    "lock": "vb_lock_",
    "memory": "vb_memory_",
    "port": "vb_port_",
    "preload": "vb_preload_",
    "roce": "vb_roce_",
    "sim": "vb_sim_",
    "cable": "vb_cable_",
    "cpu": "vb_cpu_",
    "tcp": "vb_tcp_",
    "transport": "vb_engine_",
    "wire": "vb_wire_",
    "wrap": "vb_wrap_",
}
WITHOUT_PREFIX = {"abi", "hca"}


def prefix_problems() -> Iterator[str]:
    """Functions whose names do not begin as their room's names do."""
    every = tuple(PREFIXES.values())
    for path in sorted(NATIVE.rglob("*.[ch]")):
        room = path.relative_to(NATIVE).parts[0]
        if room not in PREFIXES and room not in WITHOUT_PREFIX:
            yield f"{room}: has no prefix in {Path(__file__).name}"
            continue
        for name in SHARED.findall(COMMENT.sub(" ", path.read_text())):
            wanted = PREFIXES.get(room)
            if wanted and not name.startswith(wanted):
                yield f"{path.relative_to(ROOT)}: {name}() should begin with {wanted}"
            elif not wanted and name.startswith(every):
                yield f"{path.relative_to(ROOT)}: {name}() has the prefix of another room"


def files_of_names() -> dict[str, set[Path]]:
    found: dict[str, set[Path]] = defaultdict(set)
    for path in sorted(NATIVE.rglob("*.[ch]")):
        for name in STATIC.findall(path.read_text()):
            found[name].add(path.relative_to(ROOT))
    return found


def main() -> int:
    shared = {name: paths for name, paths in files_of_names().items() if len(paths) > 1}
    for name, paths in sorted(shared.items()):
        print(f"{name}() is static in several files: {', '.join(map(str, sorted(paths)))}")
    if shared:
        print("Start each name with that of its file, such as multicast_join.")
    problems = sorted(set(prefix_problems()))
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if shared or problems else 0


if __name__ == "__main__":
    sys.exit(main())
