# SPDX-License-Identifier: Apache-2.0
"""Which record an attribute of a class is. Those who show or check any MAD call ``attribute_of``.

An agent, which knows what it is asked, calls ``mad.attribute(PortInfo)`` instead.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import congestion_attributes, pma_counters, smp_attributes
from .attribute_ids import CongestionAttribute, MgmtClass, SaAttribute
from .class_port_info import ClassPortInfo
from .cm_messages import CM_MESSAGES
from .congestion_attributes import read_log
from .mad import CongestionMad, MadHeader, VendorMad
from .notices import CcNotice, Notice, NoticeReport
from .record import Record
from .sa_records import SA_RECORDS
from .vendor_ping import OPENIB_OUI, PingData

__all__ = ["attribute_kind", "attribute_of"]


def _by_id(records: Iterable[object]) -> dict[int, type[Record]]:
    return {
        record.ATTRIBUTE: record
        for record in records
        if isinstance(record, type) and issubclass(record, Record) and record.ATTRIBUTE
    }


_SMP = _by_id([Notice, *vars(smp_attributes).values()])
_CLASS_PORT_INFO: dict[int, type[Record]] = {ClassPortInfo.ATTRIBUTE: ClassPortInfo}
_KINDS: dict[int, dict[int, type[Record]]] = {
    MgmtClass.SUBN_LID_ROUTED: _SMP,
    MgmtClass.SUBN_DIRECTED_ROUTE: _SMP,
    MgmtClass.SUBN_ADM: _CLASS_PORT_INFO | SA_RECORDS | {SaAttribute.NOTICE: NoticeReport},
    MgmtClass.PERFORMANCE: _CLASS_PORT_INFO | _by_id(vars(pma_counters).values()),
    MgmtClass.COMMUNICATION_MANAGEMENT: _CLASS_PORT_INFO | CM_MESSAGES,
    MgmtClass.CONGESTION_CONTROL: {
        **_CLASS_PORT_INFO,
        **_by_id([CcNotice, *vars(congestion_attributes).values()]),
    },
}


def attribute_kind(mgmt_class: int, attribute_id: int) -> type[Record] | None:
    """Return the record of an attribute of a class, or None for one that has none here."""
    if attribute_id == ClassPortInfo.ATTRIBUTE and mgmt_class not in _KINDS:
        return ClassPortInfo if not MgmtClass(mgmt_class).is_smp else None
    return _KINDS.get(mgmt_class, {}).get(attribute_id)


def attribute_of(mad: MadHeader) -> Record | None:
    """Return the attribute that a MAD carries, or None if it has none here.

    Of a table of subnet administration it is the first record; of a log of congestion control it
    depends on the type in the log.
    """
    if isinstance(mad, CongestionMad) and mad.attribute_id == CongestionAttribute.CONGESTION_LOG:
        return read_log(mad)
    if isinstance(mad, VendorMad) and mad.oui == OPENIB_OUI and not mad.attribute_id:
        return mad.attribute(PingData)
    kind = attribute_kind(mad.mgmt_class, mad.attribute_id)
    return mad.attribute(kind) if kind else None
