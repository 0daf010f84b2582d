# SPDX-License-Identifier: Apache-2.0
"""The same bytes moved in several ways, and what each costs: processor, copies, bus, time."""

from verbena.host.comparison.recording import Recording
from verbena.host.comparison.rows import Crossing, Row, Side
from verbena.host.comparison.settings import Setup
from verbena.host.comparison.ways import WAYS, Way, compare_ways

__all__ = ["WAYS", "Crossing", "Recording", "Row", "Setup", "Side", "Way", "compare_ways"]
