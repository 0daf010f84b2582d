# SPDX-License-Identifier: Apache-2.0
"""The messages that every connection exchanges, each packed by one call.

``CmConnection`` and ``CmRoute`` call these for records of cm_messages.py, whose constructors look
at each field by itself and take three times as long. What does not fit its field goes to the
constructor, which says what is wrong. The tests compare both for values of every kind.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ..cm_messages import CmDrep, CmDreq, CmPath, CmRep, CmReq, CmRtu, CmTransport
from ..codes import IbMtu, IbRate

if TYPE_CHECKING:
    from .settings import CmSettings

__all__ = ["quick_dreq", "quick_path", "quick_plain", "quick_rep", "quick_req"]

_PATH = struct.Struct(">HH16s16sIBBBB")
_REQ = struct.Struct(">IIQQ8xIIIIHBB44s44x92s")
_REP = struct.Struct(">II4xIIIBBBBQ196s")
_PLAIN = struct.Struct(">II224s")
_DREQ = struct.Struct(">III220s")


def quick_plain(
    kind: type[CmRtu | CmDrep], local_id: int, remote_id: int, private_data: bytes
) -> CmRtu | CmDrep:
    """Return an RTU or a DREP. Raises MadError."""
    if len(private_data) <= 224:
        try:
            return kind.unpack(_PLAIN.pack(local_id, remote_id, private_data))
        except struct.error:
            pass
    return kind(local_comm_id=local_id, remote_comm_id=remote_id, private_data=private_data)


def quick_dreq(local_id: int, remote_id: int, remote_qpn: int, private_data: bytes) -> CmDreq:
    """Return a DREQ. Raises MadError."""
    if len(private_data) <= 220 and not remote_qpn >> 24:
        try:
            return CmDreq.unpack(_DREQ.pack(local_id, remote_id, remote_qpn << 8, private_data))
        except struct.error:
            pass
    return CmDreq(
        local_comm_id=local_id,
        remote_comm_id=remote_id,
        remote_qpn=remote_qpn,
        private_data=private_data,
    )


def quick_path(
    lids: tuple[int, int],
    gids: tuple[bytes, bytes],
    flow_label: int,
    rate: IbRate,
    traffic_class: int,
    hop_limit: int,
    sl: int,
    subnet_local: bool,
    ack_timeout: int,
) -> CmPath:
    """Return a path of a REQ; LIDs and GIDs are the sender's and the receiver's.

    Raises MadError.
    """
    fits = not (flow_label >> 20 or rate >> 6 or (sl | subnet_local << 3) >> 4 or ack_timeout >> 5)
    if fits and len(gids[0]) == len(gids[1]) == 16:
        try:
            # fmt: off
            return CmPath.unpack(_PATH.pack(
                *lids, *gids, flow_label << 12 | rate, traffic_class, hop_limit,
                sl << 4 | subnet_local << 3, ack_timeout << 3,
            ))
            # fmt: on
        except struct.error:
            pass
    return CmPath(
        local_lid=lids[0],
        remote_lid=lids[1],
        local_gid=gids[0],
        remote_gid=gids[1],
        flow_label=flow_label,
        packet_rate=rate,
        traffic_class=traffic_class,
        hop_limit=hop_limit,
        sl=sl,
        subnet_local=subnet_local,
        local_ack_timeout=ack_timeout,
    )


def quick_req(
    local_id: int,
    ca_guid: int,
    service_id: int,
    qpn: int,
    starting_psn: int,
    transport: CmTransport,
    extended_transport: int,
    resources: tuple[int, int],
    retries: tuple[int, int],
    flow_control: bool,
    srq: bool,
    p_key: int,
    mtu: IbMtu,
    primary: CmPath,
    settings: CmSettings,
    vendor_id: int,
    private_data: bytes,
) -> CmReq:
    """Return a REQ. ``resources`` are those of the responder and the initiator's depth.

    ``retries`` are the transport's and those of RNR. Raises MadError.
    """
    wait, most = settings.response_timeout, settings.max_retries
    responder, initiator = resources
    retry, rnr = retries
    fits = not (
        (qpn | starting_psn | vendor_id) >> 24
        or (responder | initiator) >> 8
        or (retry | rnr | extended_transport) >> 3
        or wait >> 5
        or (most | mtu) >> 4
        or transport >> 2
        or (flow_control | srq) >> 1
    )
    if fits and len(private_data) <= 92:
        try:
            # fmt: off
            return CmReq.unpack(_REQ.pack(
                local_id, vendor_id, service_id, ca_guid, qpn << 8 | responder, initiator,
                wait << 3 | transport << 1 | flow_control, starting_psn << 8 | wait << 3 | retry,
                p_key, mtu << 4 | rnr, most << 4 | srq << 3 | extended_transport,
                primary.pack(), private_data,
            ))
            # fmt: on
        except struct.error:
            pass
    return CmReq(
        local_comm_id=local_id,
        vendor_id=vendor_id,
        service_id=service_id,
        local_ca_guid=ca_guid,
        local_qpn=qpn,
        responder_resources=responder,
        initiator_depth=initiator,
        remote_cm_response_timeout=wait,
        transport=transport,
        extended_transport=extended_transport,
        end_to_end_flow_control=flow_control,
        starting_psn=starting_psn,
        local_cm_response_timeout=wait,
        retry_count=retry,
        p_key=p_key,
        path_mtu=mtu,
        rnr_retry_count=rnr,
        max_cm_retries=most,
        srq=srq,
        primary=primary,
        private_data=private_data,
    )


def quick_rep(
    ids: tuple[int, int],
    qpn: int,
    eecn: int,
    starting_psn: int,
    resources: tuple[int, int],
    ack_delay: int,
    flow_control: bool,
    rnr_retry_count: int,
    srq: bool,
    ca_guid: int,
    vendor_id: int,
    private_data: bytes,
) -> CmRep:
    """Return a REP. ``ids`` are the sender's and the receiver's name of the connection.

    ``resources`` are those of the responder and the initiator's depth. Raises MadError.
    """
    local_id, remote_id = ids
    responder, initiator = resources
    fits = not (
        (qpn | eecn | starting_psn | vendor_id) >> 24
        or (responder | initiator) >> 8
        or ack_delay >> 5
        or rnr_retry_count >> 3
        or (flow_control | srq) >> 1
    )
    if fits and len(private_data) <= 196:
        try:
            # fmt: off
            return CmRep.unpack(_REP.pack(
                local_id, remote_id, qpn << 8 | vendor_id >> 16,
                eecn << 8 | vendor_id >> 8 & 0xFF, starting_psn << 8 | vendor_id & 0xFF,
                responder, initiator, ack_delay << 3 | flow_control,
                rnr_retry_count << 5 | srq << 4, ca_guid, private_data,
            ))
            # fmt: on
        except struct.error:
            pass
    return CmRep(
        local_comm_id=local_id,
        remote_comm_id=remote_id,
        local_qpn=qpn,
        local_eecn=eecn,
        starting_psn=starting_psn,
        responder_resources=responder,
        initiator_depth=initiator,
        target_ack_delay=ack_delay,
        end_to_end_flow_control=flow_control,
        rnr_retry_count=rnr_retry_count,
        srq=srq,
        local_ca_guid=ca_guid,
        vendor_id_high=vendor_id >> 16,
        vendor_id_middle=vendor_id >> 8 & 0xFF,
        vendor_id_low=vendor_id & 0xFF,
        private_data=private_data,
    )
