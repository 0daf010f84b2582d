# SPDX-License-Identifier: Apache-2.0
"""Write rules.inc: the fault rules of the tests in C, as Verbena's parser makes them.

    python tests/native/rules.py                  # after the form of records has changed
    python tests/native/rules.py "drop 3%" ...    # adds rules

tests/wrap/test_fault_rules.py sees to it that the file is what this would write.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from verbena import _fault_rules

FILE = Path(__file__).with_name("rules.inc")


def words() -> list[str]:
    """The rules in the file."""
    lines = FILE.read_text().splitlines()
    return [json.loads(line.rstrip(",")).partition("|")[2] for line in lines]


def written(texts: list[str]) -> str:
    """The file for these rules: strings of C, which those of JSON are, too."""
    return "".join(f"{json.dumps(_fault_rules.records(text))},\n" for text in sorted(set(texts)))


if __name__ == "__main__":
    FILE.write_text(written([*words(), *sys.argv[1:]]))
