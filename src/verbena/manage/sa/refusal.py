# SPDX-License-Identifier: Apache-2.0
"""Why subnet administration refuses a request: a status for the requester, a sentence for people.

Every part of the SA raises ``SaRefusal``; ``SubnetAdministration`` answers with the status.
"""

from __future__ import annotations

from ..attribute_ids import SaStatus

__all__ = ["SaRefusal"]


class SaRefusal(Exception):
    """A request that cannot be answered as it was asked. ``status`` is that of the response."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status.status if isinstance(status, SaStatus) else int(status)
