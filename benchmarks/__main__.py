# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks`, from the top folder of a checkout."""

from __future__ import annotations

import sys

from benchmarks import command
from verbena.cli import guarded

if __name__ == "__main__":
    sys.exit(guarded("benchmarks", lambda: command.main(sys.argv[1:])))
