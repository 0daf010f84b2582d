# SPDX-License-Identifier: Apache-2.0
"""Counters of the connection manager's messages, as Linux has them in sysfs.

``ports/N/cm_rx_msgs/req`` is ``received["req"]``, and so on. The connection manager counts; the
files are for its owner to make. Unlike Linux, which counts an answer to a duplicate twice, every
MAD that is sent counts once in ``sent``.
"""

from __future__ import annotations

from collections import Counter

from ..attribute_ids import CmMessageId
from .refusals import CmRefusal

__all__ = ["CM_COUNTER_NAMES", "CmCounters"]

CM_COUNTER_NAMES = {
    int(message): str(message.name).lower()
    for message in CmMessageId
    if message is not CmMessageId.CLASS_PORT_INFO
}
"""The file's name by AttributeID: req, mra, rej, rep, rtu, dreq, drep, sidr_req, ..."""


class CmCounters:
    """The four groups of Linux, and what was refused. A name that never occurred counts 0."""

    def __init__(self) -> None:
        self.received: Counter[str] = Counter()  # cm_rx_msgs
        self.sent: Counter[str] = Counter()  # cm_tx_msgs, retries included
        self.duplicates: Counter[str] = Counter()  # cm_rx_duplicates
        self.retries: Counter[str] = Counter()  # cm_tx_retries
        self.refused: Counter[CmRefusal] = Counter()  # MADs that changed nothing

    def files(self) -> dict[str, int]:
        """Return the value of each file below ``ports/N``, such as ``cm_rx_msgs/req``."""
        groups = {
            "cm_rx_duplicates": self.duplicates,
            "cm_rx_msgs": self.received,
            "cm_tx_msgs": self.sent,
            "cm_tx_retries": self.retries,
        }
        return {
            f"{group}/{name}": counter[name]
            for group, counter in groups.items()
            for name in CM_COUNTER_NAMES.values()
        }
