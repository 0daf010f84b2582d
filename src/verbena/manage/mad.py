# SPDX-License-Identifier: Apache-2.0
"""Management datagrams (MADs): the common header, and the layout of each class's 256 bytes.

Agents call ``parse_mad`` with the 256 bytes of a packet, read the attribute with
``mad.attribute(PortInfo)``, and answer with ``mad.response(record)``. The classes here know no
attribute: those are in the modules of each class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeVar

from .attribute_ids import CLASS_VERSIONS, Method, MgmtClass, response_method
from .errors import MadError
from .record import Record, bits, code, key, lid_field, octets

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import Buffer

__all__ = [
    "GENERAL_QKEY",
    "MAD_BYTES",
    "PERMISSIVE_LID",
    "RETURNING",
    "CmMad",
    "CongestionMad",
    "DirectedSmp",
    "GeneralMad",
    "LidRoutedSmp",
    "MadHeader",
    "PerformanceMad",
    "RmppHeader",
    "RmppMad",
    "SaHeader",
    "SaMad",
    "Smp",
    "VendorMad",
    "parse_mad",
]

MAD_BYTES = 256
GENERAL_QKEY = 0x80010000  # of QP 1 (IBA 3.5.3)
PERMISSIVE_LID = 0xFFFF
RETURNING = 0x8000  # in Status: D, the direction of a directed-route SMP

_R = TypeVar("_R", bound=Record)


class MadHeader(Record, size=24):
    """The header of every MAD (IBA 13.4.2). Bytes 6 and 7 differ between classes.

    ``DATA_AT`` and ``DATA_BYTES`` say where the attribute is in the MADs of a subclass.
    """

    DATA_AT: ClassVar[int] = 24
    DATA_BYTES: ClassVar[int] = 0

    base_version: int = bits(0, 0, 8, "Version of the header; 1.", 1)
    mgmt_class: MgmtClass = code(1, 0, 8, MgmtClass, "Class, which decides the rest.")
    class_version: int = bits(2, 0, 8, "Version of the class's MADs.", 1)
    method: Method = code(3, 0, 8, Method, "What is asked; bit 7 marks a response.", Method.GET)
    status: int = bits(
        4, 0, 16, "Zero in a request; bit 15 is the direction of a directed-route SMP.", show="#x"
    )
    transaction_id: int = key(8, 64, "Chosen by the requester; the response repeats it.")
    attribute_id: int = key(16, 16, "What the MAD is about; its meaning depends on the class.")
    attribute_modifier: int = key(20, 32, "Which part of the attribute, as the attribute says.")

    @property
    def is_response(self) -> bool:
        """Whether it answers another MAD."""
        return self.method.is_response

    @property
    def status_code(self) -> int:
        """Status without the direction bit."""
        return self.status & 0x7FFF

    def attribute(self, kind: type[_R]) -> _R:
        """Return the attribute that the MAD carries, as this kind of record. Raises MadError."""
        return kind.unpack(self._raw, self.DATA_AT)

    def with_attribute(self, record: Record, modifier: int | None = None) -> Self:
        """Return a copy with this attribute and its AttributeID; the rest of the data is zero.

        Raises MadError if it does not fit.
        """
        changed = self._carrying(record)
        if modifier is not None:
            self.put(changed, 0, attribute_modifier=modifier)
        return self.unpack(changed)

    def _carrying(self, record: Record) -> bytearray:
        data, room = record.pack(), self.DATA_BYTES
        if len(data) > room:
            raise MadError(
                f"{type(record).__name__} has {len(data)} bytes, and {type(self).__name__} has"
                f" room for {room}"
            )
        changed = bytearray(self._raw)
        changed[self.DATA_AT : self.DATA_AT + room] = data.ljust(room, b"\0")
        if record.ATTRIBUTE:
            self.put(changed, 0, attribute_id=record.ATTRIBUTE)
        return changed

    def response(self, record: Record | None = None, status: int = 0) -> Self:
        """Return the response to this request, with the method that answers its method.

        Without a record it has the request's data. The response to a directed-route SMP has the
        direction bit, and keeps its path, hop pointer and DrSLID and DrDLID as the request has
        them: who sends it moves the pointer (IBA 14.2.2). Raises MadError.
        """
        changed = bytearray(self._raw) if record is None else self._carrying(record)
        self.put(changed, 0, method=response_method(self.method), status=status)
        return self.unpack(changed)


class GeneralMad(MadHeader, size=MAD_BYTES):
    """A MAD of a class that has no layout of its own here."""

    DATA_BYTES: ClassVar[int] = 232

    class_specific: int = bits(6, 0, 16, "As the class says.")
    data: bytes = octets(24, 232, "As the class says.")


class Smp(MadHeader, size=MAD_BYTES):
    """What both kinds of subnet management packets have (IBA 14.2.1)."""

    DATA_AT: ClassVar[int] = 64
    DATA_BYTES: ClassVar[int] = 64

    m_key: int = key(24, 64, "Management key; it must be the port's, as M_KeyProtectBits say.")
    data: bytes = octets(64, 64, "The attribute.")


class LidRoutedSmp(Smp):
    """A LID-routed SMP (IBA 14.2.1.1)."""

    mgmt_class: MgmtClass = code(
        1, 0, 8, MgmtClass, "Class: SubnLIDRouted.", MgmtClass.SUBN_LID_ROUTED
    )


class DirectedSmp(Smp):
    """A directed-route SMP, which follows a path of port numbers (IBA 14.2.1.2).

    Both paths have entry 0 unused; entry n is the port by which hop n leaves.
    """

    mgmt_class: MgmtClass = code(
        1, 0, 8, MgmtClass, "Class: SubnDirectedRoute.", MgmtClass.SUBN_DIRECTED_ROUTE
    )
    hop_pointer: int = bits(6, 0, 8, "The hop that the packet has reached.")
    hop_count: int = bits(7, 0, 8, "Hops of the initial path, 0 to 63.")
    dr_slid: int = lid_field(32, "LID before the directed part; permissive: none.", 0xFFFF)
    dr_dlid: int = lid_field(34, "LID behind the directed part; permissive: none.", 0xFFFF)
    initial_path: bytes = octets(128, 64, "Ports by which the request leaves each hop.")
    return_path: bytes = octets(192, 64, "Ports by which the request came, filled on the way.")

    @property
    def is_returning(self) -> bool:
        """The direction bit: it is on its way back."""
        return bool(self.status & RETURNING)

    @property
    def path(self) -> tuple[int, ...]:
        """The ports of the initial path, without the unused entry."""
        return tuple(self.initial_path[1 : min(self.hop_count, 63) + 1])

    def along(self, ports: tuple[int, ...] | list[int]) -> Self:
        """Return a copy whose initial path has these ports. Raises MadError for more than 63."""
        if len(ports) > 63:
            raise MadError(f"a directed route has at most 63 hops, and this one {len(ports)}")
        return self.replace(hop_count=len(ports), initial_path=bytes((0, *ports)))

    def response(self, record: Record | None = None, status: int = 0) -> Self:
        """See ``MadHeader.response``."""
        return super().response(record, status | RETURNING)


class RmppHeader(MadHeader, size=36):
    """The header of a class with the reliable multi-packet protocol, RMPP (IBA 13.6.2).

    In an ACK ``payload_length`` is NewWindowLast; in a STOP or ABORT both numbers are reserved.
    """

    rmpp_version: int = bits(24, 0, 8, "1 in packets of the protocol, 0 where it is not used.")
    rmpp_type: int = bits(25, 0, 8, "1 DATA, 2 ACK, 3 STOP, 4 ABORT; 0 without RMPP.")
    rmpp_resp_time: int = bits(26, 0, 5, "Time code of a response; 31 if there is none.")
    rmpp_flags: int = bits(26, 5, 3, "1 active, 2 first segment, 4 last segment.")
    rmpp_status: int = bits(27, 0, 8, "0, or why a transfer was stopped or aborted.")
    segment_number: int = bits(28, 0, 32, "DATA: the segment, from 1. ACK: the last one received.")
    payload_length: int = bits(32, 0, 32, "DATA: bytes, see there. ACK: NewWindowLast.")


class RmppMad(RmppHeader, size=MAD_BYTES):
    """A MAD of any class with RMPP, for the protocol's use."""

    DATA_AT: ClassVar[int] = 36
    DATA_BYTES: ClassVar[int] = 220


class SaHeader(RmppHeader, size=56):
    """The headers of subnet administration (IBA 15.2.1), before a table of any length."""

    DATA_AT: ClassVar[int] = 56

    mgmt_class: MgmtClass = code(1, 0, 8, MgmtClass, "Class: SubnAdm.", MgmtClass.SUBN_ADM)
    class_version: int = bits(2, 0, 8, "Version of the class's MADs; 2.", 2)
    class_specific: int = bits(6, 0, 16, "Reserved.")
    sm_key: int = key(36, 64, "Key of a trusted requester, else 0.")
    attribute_offset: int = bits(44, 0, 16, "Size of one record of a table, in units of 8 bytes.")
    component_mask: int = key(48, 64, "Bit i selects component i of the attribute.")


class SaMad(SaHeader, size=MAD_BYTES):
    """A MAD of subnet administration (IBA 15.2.1)."""

    DATA_BYTES: ClassVar[int] = 200

    data: bytes = octets(56, 200, "The attribute, or the first bytes of a table.")


class PerformanceMad(MadHeader, size=MAD_BYTES):
    """A MAD of performance management (IBA 16.1.1)."""

    DATA_AT: ClassVar[int] = 64
    DATA_BYTES: ClassVar[int] = 192

    mgmt_class: MgmtClass = code(1, 0, 8, MgmtClass, "Class: PerfMgt.", MgmtClass.PERFORMANCE)
    class_specific: int = bits(6, 0, 16, "Reserved.")
    data: bytes = octets(64, 192, "The attribute.")


class CmMad(MadHeader, size=MAD_BYTES):
    """A MAD of communication management (IBA 12.6); its method is always Send.

    The modifier of a REQ and a REP has the options of enhanced connection establishment.
    """

    DATA_BYTES: ClassVar[int] = 232

    mgmt_class: MgmtClass = code(
        1, 0, 8, MgmtClass, "Class: ComMgt.", MgmtClass.COMMUNICATION_MANAGEMENT
    )
    class_version: int = bits(2, 0, 8, "Version of the class's MADs; 2.", 2)
    method: Method = code(3, 0, 8, Method, "Send, in every message.", Method.SEND)
    class_specific: int = bits(6, 0, 16, "Reserved.")
    data: bytes = octets(24, 232, "The message.")


class CongestionMad(MadHeader, size=MAD_BYTES):
    """A MAD of congestion control (IBA annex A10)."""

    DATA_AT: ClassVar[int] = 64
    DATA_BYTES: ClassVar[int] = 192

    mgmt_class: MgmtClass = code(
        1, 0, 8, MgmtClass, "Class: CongestionControl.", MgmtClass.CONGESTION_CONTROL
    )
    class_version: int = bits(2, 0, 8, "Version of the class's MADs; OpenSM sends 2.", 2)
    class_specific: int = bits(6, 0, 16, "Reserved.")
    cc_key: int = key(24, 64, "Congestion control key; it must be the port's for a Set.")
    log_data: bytes = octets(32, 32, "Reserved but for a log of events.")
    data: bytes = octets(64, 192, "The attribute.")


class VendorMad(RmppMad):
    """A MAD of a vendor class 0x30 to 0x4f, with the vendor's OUI (IBA 16.5)."""

    DATA_AT: ClassVar[int] = 40
    DATA_BYTES: ClassVar[int] = 216

    class_specific: int = bits(6, 0, 16, "Reserved.")
    oui: int = key(37, 24, "The vendor's organisationally unique identifier.")
    data: bytes = octets(40, 216, "As the vendor says.")


_LAYOUTS: dict[int, type[MadHeader]] = {
    MgmtClass.SUBN_LID_ROUTED: LidRoutedSmp,
    MgmtClass.SUBN_DIRECTED_ROUTE: DirectedSmp,
    MgmtClass.SUBN_ADM: SaMad,
    MgmtClass.PERFORMANCE: PerformanceMad,
    MgmtClass.COMMUNICATION_MANAGEMENT: CmMad,
    MgmtClass.CONGESTION_CONTROL: CongestionMad,
    **dict.fromkeys(range(0x30, 0x50), VendorMad),
}
assert all(
    layout.FIELDS["class_version"].default == CLASS_VERSIONS[MgmtClass(number)]
    for number, layout in _LAYOUTS.items()
    if number in CLASS_VERSIONS
)


def parse_mad(data: Buffer) -> MadHeader:
    """Return the MAD of a packet in the layout of its class; ``GeneralMad`` for another class.

    Raises MadError unless there are 256 bytes and BaseVersion is 1.
    """
    raw = bytes(data)
    if len(raw) != MAD_BYTES:
        raise MadError(f"a MAD has {MAD_BYTES} bytes, and this one {len(raw)}")
    if raw[0] != 1:
        raise MadError(f"BaseVersion is {raw[0]}, and MADs of version 1 alone are known")
    return _LAYOUTS.get(raw[1], GeneralMad).unpack(raw)
