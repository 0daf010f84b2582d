# SPDX-License-Identifier: Apache-2.0
"""Fail when a static function of src/native shares its name with another one.

gdb, perf, ctags and grep know a static function by its name alone: `break take` would stop in ten
files. A name that would repeat starts with that of its file: `multicast_join`.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
NATIVE = ROOT / "src" / "native"

# A function at the left margin, with the attributes that may stand before its name.
STATIC = re.compile(
    r"^static\b(?:__attribute__\(\([^;={]*?\)\)|[^;={(])*?\b(?!__attribute__)(\w+)\(", re.MULTILINE
)


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
    return 1 if shared else 0


if __name__ == "__main__":
    sys.exit(main())
