# SPDX-License-Identifier: Apache-2.0
"""Management of InfiniBand and RoCE without input and output: packets, messages and protocols.

Nothing here has a socket, a clock or a thread: bytes and times are parameters and results.
``mad`` has the common header and each class's layout, and ``record`` is how formats are declared.
Formats are in ``smp_attributes``, ``notices``, ``sa_records``, ``class_port_info``,
``pma_counters``, ``cm_messages``, ``ip_cm``, ``congestion_attributes`` and ``vendor_ping``;
``codes`` and ``attribute_ids`` have their enumerations, and ``sa_query`` the queries of subnet
administration. ``attributes`` finds the record of any MAD. Bytes and values that no format allows
raise ``MadError``.

``sm`` is a subnet manager, ``sa`` its subnet administration, and ``reservation`` a protocol of
Verbena's own; they need networkx, and the others do not.
"""

from __future__ import annotations

from .errors import MadError

__all__ = ["MadError"]
