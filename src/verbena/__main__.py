# SPDX-License-Identifier: Apache-2.0
"""`python -m verbena` runs the program `verbena`, also where its folder is not in PATH."""

from __future__ import annotations

import sys

from verbena.cli import main

if __name__ == "__main__":
    sys.exit(main())
