# SPDX-License-Identifier: Apache-2.0
"""Numbers of the common MAD header: classes, methods, statuses and the attributes of each class.

The formats' modules and agents import them. The same AttributeID means another attribute in another
class (IBA 13.4.8).
"""

from __future__ import annotations

from .codes import Code, quick_members

__all__ = [
    "CLASS_VERSIONS",
    "RESPONSE_BIT",
    "CmMessageId",
    "CongestionAttribute",
    "Method",
    "MgmtClass",
    "PerformanceAttribute",
    "SaAttribute",
    "SaStatus",
    "SmpAttribute",
    "StatusCode",
    "response_method",
    "status_text",
]

RESPONSE_BIT = 0x80  # in the method


@quick_members
class MgmtClass(Code):
    """MgmtClass of the header (IBA 13.4.4)."""

    SUBN_LID_ROUTED = 0x01
    SUBN_ADM = 0x03
    PERFORMANCE = 0x04
    BOARD_MANAGEMENT = 0x05
    DEVICE_MANAGEMENT = 0x06
    COMMUNICATION_MANAGEMENT = 0x07
    SNMP = 0x08
    CONGESTION_CONTROL = 0x21
    OPENIB_PING = 0x32, "Vendor class with OUI 0x001405: ibping."
    SUBN_DIRECTED_ROUTE = 0x81

    @property
    def is_vendor(self) -> bool:
        """A class of a vendor: 0x09 to 0x0f, or 0x30 to 0x4f with an OUI and RMPP."""
        return 0x09 <= self <= 0x0F or self.has_oui

    @property
    def has_oui(self) -> bool:
        """A vendor class of the second range, whose MADs have an OUI and an RMPP header."""
        return 0x30 <= self <= 0x4F

    @property
    def is_smp(self) -> bool:
        """A class of QP 0."""
        return self in (0x01, 0x81)

    @property
    def has_rmpp(self) -> bool:
        """Its MADs have an RMPP header at byte 24."""
        return self in (0x03, 0x06) or self.has_oui


# ClassVersion of each class's MADs; that of congestion control is what OpenSM and Mellanox send.
CLASS_VERSIONS = {
    MgmtClass.SUBN_LID_ROUTED: 1,
    MgmtClass.SUBN_DIRECTED_ROUTE: 1,
    MgmtClass.SUBN_ADM: 2,
    MgmtClass.PERFORMANCE: 1,
    MgmtClass.BOARD_MANAGEMENT: 1,
    MgmtClass.DEVICE_MANAGEMENT: 1,
    MgmtClass.COMMUNICATION_MANAGEMENT: 2,
    MgmtClass.SNMP: 1,
    MgmtClass.CONGESTION_CONTROL: 2,
    MgmtClass.OPENIB_PING: 1,
}


class Method(Code):
    """Method of the header; bit 7 marks a response (IBA 13.4.5, 15.2.2)."""

    GET = 0x01
    SET = 0x02
    SEND = 0x03
    TRAP = 0x05
    REPORT = 0x06
    TRAP_REPRESS = 0x07
    GET_TABLE = 0x12
    GET_TRACE_TABLE = 0x13
    GET_MULTI = 0x14
    DELETE = 0x15
    GET_RESP = 0x81
    REPORT_RESP = 0x86
    GET_TABLE_RESP = 0x92
    GET_MULTI_RESP = 0x94
    DELETE_RESP = 0x95

    @property
    def is_response(self) -> bool:
        """The response bit is set, or it is TrapRepress, which answers a Trap."""
        return bool(self & RESPONSE_BIT) or self == 0x07


_RESPONSES: dict[int, Method] = {
    Method.GET: Method.GET_RESP,
    Method.SET: Method.GET_RESP,
    Method.TRAP: Method.TRAP_REPRESS,
    Method.REPORT: Method.REPORT_RESP,
    Method.GET_TABLE: Method.GET_TABLE_RESP,
    Method.GET_TRACE_TABLE: Method.GET_TABLE_RESP,
    Method.GET_MULTI: Method.GET_MULTI_RESP,
    Method.DELETE: Method.DELETE_RESP,
}


def response_method(method: int) -> Method:
    """Return the method that answers ``method``: GetResp for Get and for Set (IBA 13.4.5).

    For a method without a row in the specification it is the same one with the response bit.
    """
    return _RESPONSES.get(method) or Method(method | RESPONSE_BIT)


class StatusCode(Code):
    """Status of the header, without the class-specific upper byte (IBA 13.4.7)."""

    OK = 0
    BUSY = 0x01, "The responder is busy; send the request again later."
    REDIRECT = 0x02, "Another port serves the class; ClassPortInfo of the response has it."
    BAD_VERSION = 0x04, "The responder does not support this BaseVersion or ClassVersion."
    METHOD_UNSUPPORTED = 0x08, "The class has no such method here."
    METHOD_ATTRIBUTE_UNSUPPORTED = 0x0C, "The method does not apply to this attribute."
    INVALID_VALUE = 0x1C, "A field of the attribute, or its modifier, has a value out of range."


class SaStatus(Code):
    """The upper byte of an SA response's Status (IBA 15.2.3)."""

    OK = 0
    NO_RESOURCES = 1, "The SA lacks memory or another resource; try again later."
    REQUEST_INVALID = 2, "The request is malformed, or its ComponentMask does not fit it."
    NO_RECORDS = 3, "No record matches the query."
    TOO_MANY_RECORDS = 4, "Several records match, and Get returns one: use GetTable."
    INVALID_GID = 5, "A GID of the request is not in the subnet."
    INSUFFICIENT_COMPONENTS = 6, "The ComponentMask lacks components that the request needs."
    DENIED = 7, "The requester may not do this, for instance for lack of a common partition."
    PRIORITY_SUGGESTED = 8, "The SA proposes another priority; the request was not carried out."

    @property
    def status(self) -> int:
        """Status of the header with this code."""
        return self << 8


def status_text(status: int, mgmt_class: int = 0) -> str:
    """Return a sentence for a Status; bit 15, the direction of an SMP, is not looked at."""
    status &= 0x7FFF
    if not status:
        return "success"
    said = []
    if low := status & 0x1C:
        said.append(StatusCode(low))
    said += [StatusCode(bit) for bit in (StatusCode.BUSY, StatusCode.REDIRECT) if status & bit]
    texts = [f"{code.name}: {code.meaning}" for code in said]
    if high := status >> 8:
        specific = SaStatus(high) if mgmt_class == MgmtClass.SUBN_ADM else None
        texts.append(f"{specific.name}: {specific.meaning}" if specific else f"class {high:#04x}")
    return f"{status:#06x} {' '.join(texts)}".rstrip()


class SmpAttribute(Code):
    """AttributeID of SMPs (IBA 14.2.5)."""

    NOTICE = 0x0002
    NODE_DESCRIPTION = 0x0010
    NODE_INFO = 0x0011
    SWITCH_INFO = 0x0012
    GUID_INFO = 0x0014
    PORT_INFO = 0x0015
    P_KEY_TABLE = 0x0016
    SL_TO_VL = 0x0017
    VL_ARBITRATION = 0x0018
    LINEAR_FORWARDING = 0x0019
    RANDOM_FORWARDING = 0x001A
    MULTICAST_FORWARDING = 0x001B
    SM_INFO = 0x0020
    VENDOR_DIAG = 0x0030
    LED_INFO = 0x0031
    MELLANOX_EXTENDED_PORT_INFO = 0xFF90


class SaAttribute(Code):
    """AttributeID of subnet administration (IBA 15.2.5)."""

    CLASS_PORT_INFO = 0x0001
    NOTICE = 0x0002
    INFORM_INFO = 0x0003
    NODE_RECORD = 0x0011
    PORT_INFO_RECORD = 0x0012
    SL_TO_VL_RECORD = 0x0013
    SWITCH_INFO_RECORD = 0x0014
    LINEAR_FORWARDING_RECORD = 0x0015
    RANDOM_FORWARDING_RECORD = 0x0016
    MULTICAST_FORWARDING_RECORD = 0x0017
    SM_INFO_RECORD = 0x0018
    LINK_RECORD = 0x0020
    GUID_INFO_RECORD = 0x0030
    SERVICE_RECORD = 0x0031
    P_KEY_TABLE_RECORD = 0x0033
    PATH_RECORD = 0x0035
    VL_ARBITRATION_RECORD = 0x0036
    MC_MEMBER_RECORD = 0x0038
    TRACE_RECORD = 0x0039
    MULTI_PATH_RECORD = 0x003A
    SERVICE_ASSOCIATION_RECORD = 0x003B
    INFORM_INFO_RECORD = 0x00F3


class PerformanceAttribute(Code):
    """AttributeID of performance management (IBA 16.1.3)."""

    CLASS_PORT_INFO = 0x0001
    PORT_SAMPLES_CONTROL = 0x0010
    PORT_SAMPLES_RESULT = 0x0011
    PORT_COUNTERS = 0x0012
    PORT_RCV_ERROR_DETAILS = 0x0015
    PORT_XMIT_DISCARD_DETAILS = 0x0016
    PORT_OP_RCV_COUNTERS = 0x0017
    PORT_FLOW_CTL_COUNTERS = 0x0018
    PORT_VL_OP_PACKETS = 0x0019
    PORT_VL_OP_DATA = 0x001A
    PORT_VL_XMIT_FLOW_CTL_UPDATE_ERRORS = 0x001B
    PORT_VL_XMIT_WAIT_COUNTERS = 0x001C
    PORT_COUNTERS_EXTENDED = 0x001D
    PORT_SAMPLES_RESULT_EXTENDED = 0x001E
    PORT_EXTENDED_SPEEDS_COUNTERS = 0x001F
    SWITCH_PORT_VL_CONGESTION = 0x0030
    PORT_RCV_CON_CTRL = 0x0031
    PORT_SL_RCV_FECN = 0x0032
    PORT_SL_RCV_BECN = 0x0033
    PORT_XMIT_CON_CTRL = 0x0034
    PORT_VL_XMIT_TIME_CONG = 0x0035
    PORT_XMIT_DATA_SL = 0x0036
    PORT_RCV_DATA_SL = 0x0037


@quick_members
class CmMessageId(Code):
    """AttributeID of communication management, the kind of a message (IBA 12.6)."""

    CLASS_PORT_INFO = 0x0001
    REQ = 0x0010, "Asks for a connection."
    MRA = 0x0011, "A message was received; its answer will take longer."
    REJ = 0x0012, "Refuses or abandons a connection."
    REP = 0x0013, "Accepts a connection."
    RTU = 0x0014, "The REP was received: the connection is established."
    DREQ = 0x0015, "Asks to end a connection."
    DREP = 0x0016, "The connection has ended."
    SIDR_REQ = 0x0017, "Asks for the QP of a datagram service."
    SIDR_REP = 0x0018, "Names the QP of a datagram service, or says why there is none."
    LAP = 0x0019, "Proposes an alternate path."
    APR = 0x001A, "Answers a LAP."


class CongestionAttribute(Code):
    """AttributeID of congestion control (IBA annex A10)."""

    CLASS_PORT_INFO = 0x0001
    NOTICE = 0x0002
    CONGESTION_INFO = 0x0011
    CONGESTION_KEY_INFO = 0x0012
    CONGESTION_LOG = 0x0013
    SWITCH_CONGESTION_SETTING = 0x0014
    SWITCH_PORT_CONGESTION_SETTING = 0x0015
    CA_CONGESTION_SETTING = 0x0016
    CONGESTION_CONTROL_TABLE = 0x0017
    TIME_STAMP = 0x0018
