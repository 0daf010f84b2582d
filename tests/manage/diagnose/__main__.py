# SPDX-License-Identifier: Apache-2.0
"""Writes the table of docs/diagnose.md.

``make generated`` calls ``python -m tests.manage.diagnose``.
"""

from __future__ import annotations

from tests.manage.diagnose import planted
from tests.manage.diagnose.test_planted_faults import PAGE, SEEDS

if __name__ == "__main__":
    made = planted.table([planted.trial(seed) for seed in SEEDS])
    PAGE.write_text(planted.page_with(PAGE.read_text(), made))
