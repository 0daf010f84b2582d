# SPDX-License-Identifier: Apache-2.0
"""Messages of communication management (IBA 12.6), which are the data of a ``CmMad``.

Connection managers build and read them. "Local" is the sender of the message and "remote" its
receiver, in the path of a REQ, too. Private data is always padded to its full length.
"""

from __future__ import annotations

from typing import Any

from .attribute_ids import CmMessageId
from .codes import Code, IbMtu, IbRate, quick_members
from .record import Record, bits, code, flag, gid_field, guid_field, key, lid_field, octets, part

__all__ = [
    "CM_MESSAGES",
    "AprStatus",
    "CmApr",
    "CmDrep",
    "CmDreq",
    "CmLap",
    "CmMra",
    "CmPath",
    "CmRej",
    "CmRep",
    "CmReq",
    "CmRtu",
    "CmTransport",
    "MraOf",
    "RejOf",
    "RejReason",
    "SidrRep",
    "SidrReq",
    "SidrStatus",
    "cm_timeout_ms",
    "cm_timeout_seconds",
]


@quick_members
class CmTransport(Code):
    """TransportServiceType of a REQ."""

    RC = 0
    UC = 1
    RD = 2
    EXTENDED = 3, "ExtendedTransportType says which: 1 is XRC."


@quick_members
class MraOf(Code):
    """MessageMRAed: the message whose answer takes longer."""

    REQ = 0
    REP = 1
    LAP = 2


@quick_members
class RejOf(Code):
    """MessageRejected: the message that is refused."""

    REQ = 0
    REP = 1
    NONE = 2, "No message: the connection is abandoned."


@quick_members
class RejReason(Code):
    """Reason of a REJ, and what its receiver can do (IBA 12.6.7.2)."""

    NO_QP = 1, "The passive side has no QP left; close connections there, or try later."
    NO_EEC = 2, "The passive side has no EE context left."
    NO_RESOURCES = 3, "The passive side lacks memory or another resource; try later."
    TIMEOUT = 4, "The sender gave up waiting for an answer; ARI is its CA's GUID."
    UNSUPPORTED = 5, "The request asks for something that the passive side does not support."
    INVALID_COMM_ID = 6, "A communication ID names no connection; the connection is gone."
    INVALID_COMM_INSTANCE = 7, "The communication IDs belong to another connection."
    INVALID_SERVICE_ID = 8, "Nothing listens for the ServiceID; check address, port and server."
    INVALID_TRANSPORT_TYPE = 9, "The service has another transport type."
    STALE_CONNECTION = 10, "The QP is still connected, or was a moment ago; try again with another."
    RDC_DOES_NOT_EXIST = 11, "The reliable datagram channel does not exist."
    PRIMARY_REMOTE_GID = 12, "The primary path's remote GID is no GID here; ARI may have one."
    PRIMARY_REMOTE_LID = 13, "The primary path's remote LID is no LID here; ARI may have one."
    INVALID_PRIMARY_SL = 14, "The primary path's service level is not accepted; ARI may have one."
    INVALID_PRIMARY_TRAFFIC_CLASS = 15, "The primary path's traffic class is not accepted."
    INVALID_PRIMARY_HOP_LIMIT = 16, "The primary path's hop limit is not accepted."
    INVALID_PRIMARY_PACKET_RATE = 17, "The primary path's rate is more than the port does."
    ALTERNATE_REMOTE_GID = 18, "The alternate path's remote GID is no GID here."
    ALTERNATE_REMOTE_LID = 19, "The alternate path's remote LID is no LID here."
    INVALID_ALTERNATE_SL = 20, "The alternate path's service level is not accepted."
    INVALID_ALTERNATE_TRAFFIC_CLASS = 21, "The alternate path's traffic class is not accepted."
    INVALID_ALTERNATE_HOP_LIMIT = 22, "The alternate path's hop limit is not accepted."
    INVALID_ALTERNATE_PACKET_RATE = 23, "The alternate path's rate is more than the port does."
    PORT_AND_CM_REDIRECT = 24, "Send the REQ to the CM that ARI names."
    PORT_REDIRECT = 25, "Connect to the port that ARI names."
    INVALID_PATH_MTU = 26, "The path MTU is too large; ARI has the largest."
    INSUFFICIENT_RESPONDER_RESOURCES = 27, "The peer wants more READs at once than there may be."
    CONSUMER_REJECT = 28, "The program refused; its private data may say why."
    RNR_RETRY = 29, "The RNR retry count is not accepted."
    DUPLICATE_COMM_ID = 30, "The local communication ID is in use with this peer; use another."
    CLASS_VERSION = 31, "The CM's class version is not supported."
    INVALID_PRIMARY_FLOW_LABEL = 32, "The primary path's flow label is not accepted."
    INVALID_ALTERNATE_FLOW_LABEL = 33, "The alternate path's flow label is not accepted."
    VENDOR_OPTION = 35, "The options of the enhanced connection establishment do not fit."


@quick_members
class SidrStatus(Code):
    """Status of a SIDR_REP (IBA 12.11.2)."""

    VALID = 0, "QPN and Q_Key are valid."
    UNSUPPORTED = 1, "Nothing listens for the ServiceID; check address, port and server."
    REJECTED = 2, "The program refused, or ended."
    NO_QP = 3, "The service has no QP left."
    REDIRECT = 4, "The additional information says where the service is."
    UNSUPPORTED_VERSION = 5, "The class version is not supported."


class AprStatus(Code):
    """Status of an APR (IBA 12.6.12)."""

    OK = 0, "The alternate path is loaded."
    INVALID_COMM_ID = 1, "A communication ID names no connection."
    UNSUPPORTED = 2, "Alternate paths are not supported."
    REJECTED = 3, "The program refused."
    REDIRECT = 4, "The additional information names another port."
    DUPLICATE = 5, "The path is the one in use."
    ENDPOINT_MISMATCH = 6, "The path leads to another endpoint than the connection's."
    PATH_REJECTED = 7, "A component of the path is not accepted."


def cm_timeout_seconds(exponent: int) -> float:
    """Return the seconds of a 5-bit CM timeout: 4.096 µs times 2 to the power of it."""
    return 4.096e-6 * float(1 << exponent)


def cm_timeout_ms(exponent: int) -> int:
    """Return Linux's approximation of a CM timeout, in ms: 2^(exponent - 8), and at least 1."""
    return 1 << max(exponent - 8, 0)


class CmPath(Record, size=44):
    """A path of a REQ. On RoCE both LIDs are 0xffff, and the GIDs say all (IBA 12.6.5)."""

    local_lid: int = lid_field(0, "LID of the sender.")
    remote_lid: int = lid_field(2, "LID of the receiver.")
    local_gid: bytes = gid_field(4, "GID of the sender.")
    remote_gid: bytes = gid_field(20, "GID of the receiver.")
    flow_label: int = key(36, 20, "Flow label of the connection's packets.")
    packet_rate: IbRate = code(39, 2, 6, IbRate, "Static rate of the path.")
    traffic_class: int = bits(40, 0, 8, "Traffic class of the connection's packets.")
    hop_limit: int = bits(41, 0, 8, "Hop limit of the connection's packets.")
    sl: int = bits(42, 0, 4, "Service level of the connection's packets.")
    subnet_local: bool = flag(42, 4, "The path stays within the subnet.")
    local_ack_timeout: int = bits(43, 0, 5, "Time code of the ACK timeout of the sender's QP.")


class CmReq(Record, size=232, attribute=CmMessageId.REQ):
    """REQ: request for communication (IBA 12.6.5)."""

    local_comm_id: int = key(0, 32, "Chosen by the sender, to name the connection.")
    vendor_id: int = key(5, 24, "Vendor of enhanced connection establishment; 0: none.")
    service_id: int = key(8, 64, "The service that is asked for.")
    local_ca_guid: int = guid_field(16, "GUID of the sender's CA.")
    local_qkey: int = key(28, 32, "Q_Key of a datagram QP.")
    local_qpn: int = key(32, 24, "The sender's QP.")
    responder_resources: int = bits(35, 0, 8, "READs and atomics it can serve at once.")
    local_eecn: int = key(36, 24, "The sender's EE context, for reliable datagrams.")
    initiator_depth: int = bits(39, 0, 8, "READs and atomics it wants to have out at once.")
    remote_eecn: int = key(40, 24, "The receiver's EE context, for reliable datagrams.")
    remote_cm_response_timeout: int = bits(43, 0, 5, "Time code within which the peer answers.")
    transport: CmTransport = code(43, 5, 2, CmTransport, "The kind of QP.")
    end_to_end_flow_control: bool = flag(43, 7, "The sender's QP gives credits.")
    starting_psn: int = key(44, 24, "PSN with which the receiver begins to send.")
    local_cm_response_timeout: int = bits(47, 0, 5, "Time code within which the sender answers.")
    retry_count: int = bits(47, 5, 3, "Transport retries of the sender's QP.")
    p_key: int = key(48, 16, "Partition of the connection.", 0xFFFF)
    path_mtu: IbMtu = code(50, 0, 4, IbMtu, "Largest payload of the connection's packets.")
    rdc_exists: bool = flag(50, 4, "A reliable datagram channel exists.")
    rnr_retry_count: int = bits(50, 5, 3, "RNR retries of the sender's QP; 7: no limit.")
    max_cm_retries: int = bits(51, 0, 4, "Times that a message is sent again.")
    srq: bool = flag(51, 4, "The sender's QP has a shared receive queue.")
    extended_transport: int = bits(51, 5, 3, "The kind of QP if transport says so; 1: XRC.")
    primary: CmPath = part(52, CmPath, "The path.")
    alternate: CmPath = part(96, CmPath, "The path to migrate to; all zero: none.")
    private_data: bytes = octets(140, 92, "Of the program, or of the RDMA IP CM service.")


class CmMra(Record, size=232, attribute=CmMessageId.MRA):
    """MRA: message receipt acknowledgement (IBA 12.6.6)."""

    local_comm_id: int = key(0, 32, "The sender's name of the connection.")
    remote_comm_id: int = key(4, 32, "The receiver's name of the connection.")
    message: MraOf = code(8, 0, 2, MraOf, "The message that was received.")
    service_timeout: int = bits(9, 0, 5, "Time code until the answer comes.")
    private_data: bytes = octets(10, 222, "Of the program.")


class CmRej(Record, size=232, attribute=CmMessageId.REJ):
    """REJ: reject (IBA 12.6.7)."""

    local_comm_id: int = key(0, 32, "The sender's name of the connection; 0 if it has none.")
    remote_comm_id: int = key(4, 32, "The receiver's name of the connection.")
    message: RejOf = code(8, 0, 2, RejOf, "The message that is refused.")
    ari_length: int = bits(9, 0, 7, "Valid bytes of the additional information.")
    reason: RejReason = code(10, 0, 16, RejReason, "Why.")
    ari: bytes = octets(12, 72, "Additional rejection information, as the reason says.")
    private_data: bytes = octets(84, 148, "Of the program.")


class CmRep(Record, size=232, attribute=CmMessageId.REP):
    """REP: reply to request for communication (IBA 12.6.8)."""

    local_comm_id: int = key(0, 32, "Chosen by the sender, to name the connection.")
    remote_comm_id: int = key(4, 32, "The receiver's name of the connection.")
    local_qkey: int = key(8, 32, "Q_Key of a datagram QP.")
    local_qpn: int = key(12, 24, "The sender's QP.")
    vendor_id_high: int = key(15, 8, "Vendor of enhanced connection establishment, bits 23 to 16.")
    local_eecn: int = key(16, 24, "The sender's EE context, or the QP of an XRC target.")
    vendor_id_middle: int = key(19, 8, "Bits 15 to 8 of it.")
    starting_psn: int = key(20, 24, "PSN with which the receiver begins to send.")
    vendor_id_low: int = key(23, 8, "Bits 7 to 0 of it.")
    responder_resources: int = bits(24, 0, 8, "READs and atomics it can serve at once.")
    initiator_depth: int = bits(25, 0, 8, "READs and atomics it will have out at once.")
    target_ack_delay: int = bits(26, 0, 5, "Time code within which the sender's CA sends an ACK.")
    failover_accepted: int = bits(26, 5, 2, "0: the alternate path is accepted, or none was asked.")
    end_to_end_flow_control: bool = flag(26, 7, "The sender's QP gives credits.")
    rnr_retry_count: int = bits(27, 0, 3, "RNR retries of the sender's QP; 7: no limit.")
    srq: bool = flag(27, 3, "The sender's QP has a shared receive queue.")
    local_ca_guid: int = guid_field(28, "GUID of the sender's CA.")
    private_data: bytes = octets(36, 196, "Of the program.")


class CmRtu(Record, size=232, attribute=CmMessageId.RTU):
    """RTU: ready to use (IBA 12.6.9)."""

    local_comm_id: int = key(0, 32, "The sender's name of the connection.")
    remote_comm_id: int = key(4, 32, "The receiver's name of the connection.")
    private_data: bytes = octets(8, 224, "Of the program.")


class CmDreq(Record, size=232, attribute=CmMessageId.DREQ):
    """DREQ: request for communication release (IBA 12.6.10)."""

    local_comm_id: int = key(0, 32, "The sender's name of the connection.")
    remote_comm_id: int = key(4, 32, "The receiver's name of the connection.")
    remote_qpn: int = key(8, 24, "The receiver's QP or EE context.")
    private_data: bytes = octets(12, 220, "Of the program.")


class CmDrep(Record, size=232, attribute=CmMessageId.DREP):
    """DREP: reply to request for communication release (IBA 12.6.11)."""

    local_comm_id: int = key(0, 32, "The sender's name of the connection.")
    remote_comm_id: int = key(4, 32, "The receiver's name of the connection.")
    private_data: bytes = octets(8, 224, "Of the program.")


class SidrReq(Record, size=232, attribute=CmMessageId.SIDR_REQ):
    """SIDR_REQ: service ID resolution request (IBA 12.11.1)."""

    request_id: int = key(0, 32, "Chosen by the sender; the reply repeats it.")
    p_key: int = key(4, 16, "Partition of the service.", 0xFFFF)
    service_id: int = key(8, 64, "The service that is asked for.")
    private_data: bytes = octets(16, 216, "Of the program, or of the RDMA IP CM service.")


class SidrRep(Record, size=232, attribute=CmMessageId.SIDR_REP):
    """SIDR_REP: service ID resolution response (IBA 12.11.2)."""

    request_id: int = key(0, 32, "That of the request.")
    status: SidrStatus = code(4, 0, 8, SidrStatus, "Whether there is such a service.")
    info_length: int = bits(5, 0, 8, "Valid bytes of the additional information.")
    qpn: int = key(8, 24, "The service's QP.")
    service_id: int = key(12, 64, "The service.")
    qkey: int = key(20, 32, "Q_Key of the service's QP.")
    info: bytes = octets(24, 72, "Additional information, as the status says.")
    private_data: bytes = octets(96, 136, "Of the program.")


class CmLap(Record, size=232, attribute=CmMessageId.LAP):
    """LAP: load alternate path (IBA 12.8.1)."""

    local_comm_id: int = key(0, 32, "The sender's name of the connection.")
    remote_comm_id: int = key(4, 32, "The receiver's name of the connection.")
    remote_qpn: int = key(12, 24, "The receiver's QP or EE context.")
    remote_cm_response_timeout: int = bits(15, 0, 5, "Time code within which the peer answers.")
    alternate_local_lid: int = lid_field(20, "LID of the sender.")
    alternate_remote_lid: int = lid_field(22, "LID of the receiver.")
    alternate_local_gid: bytes = gid_field(24, "GID of the sender.")
    alternate_remote_gid: bytes = gid_field(40, "GID of the receiver.")
    flow_label: int = key(56, 20, "Flow label of the alternate path.")
    traffic_class: int = bits(59, 0, 8, "Traffic class of the alternate path.")
    hop_limit: int = bits(60, 0, 8, "Hop limit of the alternate path.")
    packet_rate: IbRate = code(61, 2, 6, IbRate, "Static rate of the alternate path.")
    sl: int = bits(62, 0, 4, "Service level of the alternate path.")
    subnet_local: bool = flag(62, 4, "The path stays within the subnet.")
    local_ack_timeout: int = bits(63, 0, 5, "Time code of the ACK timeout of the sender's QP.")
    private_data: bytes = octets(64, 168, "Of the program.")


class CmApr(Record, size=232, attribute=CmMessageId.APR):
    """APR: alternate path response (IBA 12.8.2)."""

    local_comm_id: int = key(0, 32, "The sender's name of the connection.")
    remote_comm_id: int = key(4, 32, "The receiver's name of the connection.")
    info_length: int = bits(8, 0, 8, "Valid bytes of the additional information.")
    status: AprStatus = code(9, 0, 8, AprStatus, "Whether the path is loaded.")
    info: bytes = octets(12, 72, "Additional information, as the status says.")
    private_data: bytes = octets(84, 148, "Of the program.")


CM_MESSAGES: dict[int, type[Any]] = {
    message.ATTRIBUTE: message
    for message in (
        *(CmReq, CmMra, CmRej, CmRep, CmRtu, CmDreq, CmDrep),
        *(SidrReq, SidrRep, CmLap, CmApr),
    )
}
