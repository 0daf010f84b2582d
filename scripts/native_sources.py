# SPDX-License-Identifier: Apache-2.0
"""Write the sources and tables that src/native makes of its own lists.

python scripts/native_sources.py          rewrite them (make generated)
python scripts/native_sources.py --check  fail if one is not what its list says (make lint)

Each generator has a function outputs(): the text of each file by its path.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

NATIVE = Path(__file__).parent.parent / "src" / "native"
GENERATORS = ("dropin/symbols.py", "hca/sentences.py", "lock/ranks.py")


def outputs() -> dict[Path, str]:
    """Return the texts of all generators, by path."""
    made: dict[Path, str] = {}
    for generator in GENERATORS:
        made |= runpy.run_path(str(NATIVE / generator))["outputs"]()
    return made


def main(arguments: list[str]) -> int:
    if "--check" not in arguments:
        for path, text in outputs().items():
            path.write_text(text)
        return 0
    stale = [path.name for path, text in outputs().items() if path.read_text() != text]
    if stale:
        print(f"{', '.join(stale)}: out of date, run: make generated")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
