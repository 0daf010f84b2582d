# SPDX-License-Identifier: Apache-2.0
"""Reservation of bandwidth or buffers on every link of a path, before data flows.

The InfiniBand Architecture has no such MAD: this is a protocol of Verbena's own, in a vendor class.
``ReservationAgent`` is at each host and switch, and ``LinkBudgets`` is the subnet manager's part.
"""

from __future__ import annotations

from .agent import Outcome, ReservationAgent
from .budgets import LinkBudgets
from .messages import RefusalReason, ReservationKind

__all__ = ["LinkBudgets", "Outcome", "RefusalReason", "ReservationAgent", "ReservationKind"]
