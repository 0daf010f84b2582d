# SPDX-License-Identifier: Apache-2.0
"""python -m tests.soak: many processes use Verbena for long, and some of them are killed.

Ends with status 0 and writes its report, or says what was wrong and the seed that repeats it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.driver import Soak, SoakFailed
from tests.soak.plan import Shape
from tests.soak.report import write_report
from tests.support import ROOT


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make soak SOAK=…", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--qps", type=int, help="in all (1000 for each minute)")
    parser.add_argument("--seed", default=None, help="a schedule to repeat")
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "soak.md")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    seed = options.seed or os.urandom(4).hex()
    qps = options.qps or int(1000 * options.minutes)
    start = time.monotonic()
    print(f"soak: seed {seed}, {qps} queue pairs in {options.minutes:g} minutes", flush=True)
    with tempfile.TemporaryDirectory() as folder, Soak(seed, Shape(), folder) as soak:
        try:
            soak.run(options.minutes * 60, qps // 2)
            soak.end()
        except SoakFailed as failure:
            print(f"soak: FAILED after {soak.counts.talks} talks: {failure}", file=sys.stderr)
            print(f"soak: again with: make soak SOAK='--seed {seed} --qps {qps}'", file=sys.stderr)
            return 1
        write_report(options.report, soak, time.monotonic() - start)
    print(f"soak: passed, {soak.counts.qps} queue pairs; see {options.report}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
