# SPDX-License-Identifier: Apache-2.0
"""The exceptions of verbena.verbs, which carry the errno and say what to do.

The compiled binding and connect.py raise them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

from .enums import QPState, QPType, WCStatus

if TYPE_CHECKING:
    from ._verbs import WC

__all__ = ["CompletionError", "ConnectError", "VerbsError"]


class VerbsError(OSError):
    """A verbs call failed: ``errno`` is libibverbs', the text has the reason and a remedy.

    ``posted`` is how many requests of a list or batch were accepted before the one that failed.
    """

    posted: int = 0


class ConnectError(VerbsError):
    """Connecting a queue pair over a socket failed (see ``verbena.connect_rc``)."""


class CompletionError(VerbsError):
    """A work request completed with an error: ``wc`` is the completion, ``status`` its code."""

    wc: WC
    status: WCStatus


class RangeError(ValueError, OverflowError):
    """An offset or a length that no memory can have.

    It is a ValueError, as for every range that leaves its MR, and an OverflowError, as for every
    number that its argument cannot hold.
    """


class _Cause(NamedTuple):
    errno: int
    name: str
    usual: str


# Names and meanings: InfiniBand Architecture Specification, volume 1, 11.6.2.
_CAUSES = {
    WCStatus.LOC_LEN_ERR: _Cause(
        errno.EMSGSIZE,
        "local length error",
        "the message is longer than the receive buffer, or than the port's max_msg_sz",
    ),
    WCStatus.LOC_QP_OP_ERR: _Cause(
        errno.EINVAL,
        "local QP operation error",
        "the request does not fit this QP's type or limits",
    ),
    WCStatus.LOC_PROT_ERR: _Cause(
        errno.EACCES,
        "local protection error",
        "an lkey is wrong or closed, its MR is in another PD, or the range leaves the MR",
    ),
    WCStatus.WR_FLUSH_ERR: _Cause(
        errno.ECANCELED,
        "work request flushed",
        "the QP is in the ERR state: the first completion with another status says why",
    ),
    WCStatus.MW_BIND_ERR: _Cause(
        errno.EACCES, "memory window bind error", "the MR lacks MW_BIND or the range leaves it"
    ),
    WCStatus.BAD_RESP_ERR: _Cause(
        errno.EPROTO, "bad response", "the peer's answer does not belong to this request"
    ),
    WCStatus.LOC_ACCESS_ERR: _Cause(
        errno.EACCES, "local access error", "the receive buffer's MR lacks LOCAL_WRITE"
    ),
    WCStatus.REM_INV_REQ_ERR: _Cause(
        errno.EREMOTEIO,
        "remote invalid request",
        "a SEND is longer than the peer's receive buffer, a SEND or WRITE was cut at another path"
        " MTU than the peer's, the operation is not one that the peer's QP permits, READs and"
        " atomics are more than its max_dest_rd_atomic, or an atomic's address is not a multiple"
        " of 8",
    ),
    WCStatus.REM_ACCESS_ERR: _Cause(
        errno.EACCES,
        "remote access error",
        "the rkey is wrong or closed, the range leaves the peer's MR, the MR or the peer's QP lacks"
        " the access, or they are in different PDs",
    ),
    WCStatus.REM_OP_ERR: _Cause(
        errno.EREMOTEIO,
        "remote operation error",
        "the peer could not carry the request out: look at its own completions and events",
    ),
    WCStatus.RETRY_EXC_ERR: _Cause(
        errno.ETIMEDOUT,
        "transport retry count exceeded",
        "the peer is gone (its process ended, or Python closed a QP that nothing referred to any"
        " more), not yet in RTR, or cannot be reached with this address and QP number; or"
        " packets between both are lost again and again",
    ),
    WCStatus.RNR_RETRY_EXC_ERR: _Cause(
        errno.ETIMEDOUT,
        "receiver not ready, retry count exceeded",
        "the peer had no receive posted in time: post the first one before connect_rc, after"
        " qp.to_init(), the others before the sender sends, or raise rnr_retry (7: forever)",
    ),
    WCStatus.REM_ABORT_ERR: _Cause(
        errno.ECONNABORTED, "remote aborted", "the peer gave up the operation"
    ),
    WCStatus.FATAL_ERR: _Cause(errno.EIO, "fatal error", "the device failed: reopen it"),
    WCStatus.RESP_TIMEOUT_ERR: _Cause(
        errno.ETIMEDOUT, "response timeout", "the peer did not answer in time"
    ),
    WCStatus.GENERAL_ERR: _Cause(errno.EIO, "general error", "the device gives no closer reason"),
}

_QUEUE_FULL = (
    "the {} queue is full: poll the CQ so that finished requests leave it,"
    " or create it with more room"
)
_BAD_QUEUE = (
    "an attribute is out of range or the objects do not belong together:"
    " compare with query_device()"
)
_BAD_COPY = "the range leaves the device memory, or is not whole words of 4 bytes"
_IN_USE = "it is still in use: close {} first, or leave its `with` block, which does"

_ADVICE = {
    ("open_device", errno.EACCES): "permission to open /dev/infiniband/uverbsN is missing",
    ("open_device", errno.EAGAIN): (
        "no thread can be started: this user's processes and threads are at their limit: raise"
        " `ulimit -u`, or that of the container (docker run --pids-limit)"
    ),
    ("alloc_pd", errno.ENOMEM): "the device has no protection domain left, or memory ran out",
    ("reg_mr", errno.EINVAL): (
        "the length is not positive, the device does not know an access flag (few know those of"
        " FLUSH), or REMOTE_WRITE or REMOTE_ATOMIC stand without LOCAL_WRITE"
    ),
    ("reg_mr", errno.EFAULT): "the range is not mapped memory with the access asked",
    (
        "reg_mr",
        errno.ENOMEM,
    ): "memory ran out, or (a real adapter) `ulimit -l` is too low to pin the range",
    ("alloc", errno.ENOMEM): (
        "neither the heap (VERBENA_HEAP_SIZE) nor memory has room for it: free regions, or ask for"
        " less"
    ),
    ("alloc", errno.EINVAL): "the size must be positive",
    ("alloc_mw", errno.EINVAL): "a window is of type 1 or 2",
    ("alloc_dm", errno.EINVAL): (
        "the length is not between 1 and query_memory().max_dm_size, or the alignment is too large"
    ),
    ("reg_dm_mr", errno.EINVAL): "the range leaves the device memory, or an access flag is unknown",
    ("DM.copy_to", errno.EINVAL): _BAD_COPY,
    ("DM.copy_from", errno.EINVAL): _BAD_COPY,
    ("SGE", errno.EMSGSIZE): "one piece is less than 4 GiB: give its length, or make several",
    (
        "create_cq",
        errno.EINVAL,
    ): "cqe is not between 1 and query_device().max_cqe, or comp_vector is too high",
    ("create_qp", errno.EINVAL): _BAD_QUEUE,
    (
        "create_qp",
        errno.ENOMEM,
    ): "the device has no QP left with this many requests: close some or ask for fewer",
    ("create_qp", errno.EOPNOTSUPP): "this device does not offer the QP type",
    ("create_srq", errno.EINVAL): _BAD_QUEUE,
    (
        "create_ah",
        errno.EINVAL,
    ): "is_global, dgid, sgid_index or port_num does not fit the port (RoCE needs a GID)",
    ("attach_mcast", errno.EINVAL): "only UD QPs join groups, and only those of a multicast GID",
    ("attach_mcast", errno.ENOMEM): (
        "the group or the device has no room (query_device().max_mcast_grp, max_mcast_qp_attach),"
        " or the system allows no more groups: raise net.ipv4.igmp_max_memberships"
    ),
    ("detach_mcast", errno.EINVAL): "the QP is not in this group",
    (
        "modify_qp",
        errno.EINVAL,
    ): "the state does not follow from the present one, or the mask lacks or has an"
    " attribute that this transition does not take, or a value is out of range",
    (
        "query_gid",
        errno.EINVAL,
    ): "the port or the index is out of range: query_port().gid_tbl_len says how many",
    ("query_gid_table", errno.EINVAL): "there are more GIDs than max_entries",
    (
        "query_pkey",
        errno.EINVAL,
    ): "the port or the index is out of range: query_port().pkey_tbl_len says how many",
    ("query_port", errno.EINVAL): "ports count from 1 to query_device().phys_port_cnt",
    ("post_send", errno.ENOMEM): _QUEUE_FULL.format("send"),
    ("post_send", errno.EINVAL): (
        "the QP is not in RTS, the opcode does not suit its type, there are too many SGEs,"
        " or the inline data is too long"
    ),
    ("post_recv", errno.ENOMEM): _QUEUE_FULL.format("receive"),
    ("post_recv", errno.EINVAL): "the QP is in RESET or uses an SRQ, or there are too many SGEs",
    ("post_srq_recv", errno.ENOMEM): _QUEUE_FULL.format("shared receive"),
    ("post_srq_recv", errno.EINVAL): "there are more SGEs than the SRQ was created with",
    (
        "poll_cq",
        errno.EIO,
    ): "the CQ is in error (it overran, or the device failed): create it with more entries",
    ("PD.close", errno.EBUSY): _IN_USE.format("its MRs, QPs, SRQs and AHs"),
    ("CQ.close", errno.EBUSY): _IN_USE.format("the QPs that complete into it"),
    ("SRQ.close", errno.EBUSY): _IN_USE.format("the QPs that receive from it"),
    ("CompChannel.close", errno.EBUSY): _IN_USE.format("the CQs that notify it"),
    ("MR.close", errno.EBUSY): _IN_USE.format("the memory windows bound to it"),
}


_ANY_CALL = {errno.EMFILE: "this process has no file descriptor left: raise `ulimit -n`"}


def no_option(what: str, name: str, known: Iterable[str]) -> TypeError:
    """Return the error for a keyword that is none of those known, with the most similar one."""
    near = get_close_matches(name, list(known), 1, 0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return TypeError(f"{what} has no option {name!r}: {hint}")


def failed(call: str, code: int, posted: int = 0, why: str = "") -> VerbsError:
    """Return the exception for a call that failed with ``code``, an errno of either sign, or 0.

    ``why`` is the library's own reason; without one the text has the usual reason.
    """
    number = abs(code) or errno.EIO
    name = os.strerror(number)
    advice = why if why not in ("", name) else _ADVICE.get((call, number), _ANY_CALL.get(number))
    text = f"{call}: {name}"
    error = VerbsError(number, f"{text}; {advice}" if advice else text)
    error.posted = posted
    return error


def unready(error: VerbsError, call: str, state: QPState, qp_type: QPType) -> VerbsError:
    """Return ``error`` of posting; if the QP's state is the reason, with the Python calls that lead
    out of that state."""
    if call == "post_recv" and state == QPState.RESET:
        advice = "qp.to_init() does that, and verbs.connect_rc goes on from there"
    elif call == "post_send" and state in (QPState.RESET, QPState.INIT, QPState.RTR):
        connect = "verbs.connect_rc(qp, socket) does that, within a process connect_pair(a, b)"
        advice = _CONNECTED_BY.get(qp_type, connect)
    else:
        return error
    told = VerbsError(error.errno, f"{error.strerror} ({advice})")
    told.posted = error.posted
    return told


_CONNECTED_BY = {
    QPType.UD: "verbs.bring_up_ud(qp) does that",
    QPType.XRC_SEND: "verbs.bring_up does that, within a process connect_pair(a, b)",
}


def without_packets(call: str, reason: str) -> VerbsError:
    """Return the exception for a call about packets on a device that sends none; ``reason`` is
    Verbena's, '' for another library."""
    if not reason:
        why = "only Verbena's library has fault rules: open_device(library='packaged')"
    else:
        why = (
            f"the device sends no packets that rules could meet ({reason}). With "
            "VERBENA_CARRIER=roce, set on both sides before the device is opened, all goes by "
            "packets"
        )
    return failed(call, errno.EOPNOTSUPP, why=why)


def closed(kind: str, why: str) -> VerbsError:
    """Return the exception for the use of an object that is closed."""
    return VerbsError(errno.EBADF, f"this {kind} {why}")


def completion_failed(wc: WC, evidence: str) -> CompletionError:
    """Return the exception for a completion with error; ``evidence`` is the core's text, or ''."""
    status = WCStatus(wc.status)
    cause = _CAUSES.get(status) or _Cause(
        errno.EIO, status.name, "see the InfiniBand specification, 11.6.2"
    )
    detail = evidence or f"usually: {cause.usual} (vendor_err {wc.vendor_err:#x})"
    error = CompletionError(
        cause.errno, f"{cause.name} (wr_id {wc.wr_id:#x}, QP {wc.qp_num:#x}): {detail}"
    )
    error.wc = wc
    error.status = status
    return error
