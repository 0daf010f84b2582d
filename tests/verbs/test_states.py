# SPDX-License-Identifier: Apache-2.0
"""QP states and attributes, as Python sees them (the table itself is tested in tests/native)."""

from __future__ import annotations

import errno
import threading

import pytest

from tests.verbs.conftest import MakePair, Pair
from verbena import verbs
from verbena.verbs import AccessFlags, QPAttrMask, QPState


@pytest.fixture
def qp(pd: verbs.PD, cq: verbs.CQ) -> verbs.QP:
    return pd.create_qp(send_cq=cq)


def test_a_new_qp_is_in_reset(qp: verbs.QP) -> None:
    assert qp.state == QPState.RESET


def test_connecting_ends_in_rts(local_pair: Pair) -> None:
    assert local_pair.near.state() == "RTS"


def test_query_tells_what_was_set(local_pair: Pair) -> None:
    near = local_pair.near
    remote = near.remote
    assert remote is not None
    attr = near.qp.query()
    assert attr.qp_state == QPState.RTS
    assert (attr.dest_qp_num, attr.rq_psn) == (remote.qp_num, remote.psn)
    assert attr.qp_access_flags & AccessFlags.REMOTE_ATOMIC
    assert (attr.timeout, attr.retry_cnt, attr.rnr_retry) == (14, 7, 7)
    assert bytes(attr.ah_attr.dgid) == remote.gid
    assert attr.cap == near.qp.cap


def test_capacities_are_at_least_what_was_asked(pd: verbs.PD, cq: verbs.CQ) -> None:
    cap = pd.create_qp(
        send_cq=cq, max_send_wr=100, max_recv_wr=50, max_send_sge=3, max_inline_data=60
    ).cap
    assert cap.max_send_wr >= 100
    assert cap.max_recv_wr >= 50
    assert cap.max_send_sge >= 3
    assert cap.max_inline_data >= 60


def test_init_attr_and_keywords_make_the_same_qp(pd: verbs.PD, cq: verbs.CQ) -> None:
    init = verbs.QPInitAttr(send_cq=cq, qp_type=verbs.QPType.UC, max_send_wr=10)
    by_attr = pd.create_qp(init)
    by_name = pd.create_qp(send_cq=cq, qp_type=verbs.QPType.UC, max_send_wr=10)
    assert by_attr.cap == by_name.cap
    assert by_attr.qp_type == by_name.qp_type == verbs.QPType.UC
    assert by_attr.recv_cq is cq


@pytest.mark.parametrize("state", [QPState.RTR, QPState.RTS, QPState.SQD])
def test_a_state_cannot_be_skipped(qp: verbs.QP, state: QPState) -> None:
    with pytest.raises(verbs.VerbsError, match="does not follow") as caught:
        qp.modify(qp_state=state)
    assert caught.value.errno == errno.EINVAL
    assert qp.state == QPState.RESET


@pytest.mark.parametrize("missing", ["pkey_index", "port_num", "qp_access_flags"])
def test_a_missing_attribute_is_refused(qp: verbs.QP, missing: str) -> None:
    fields = {"qp_state": 1, "pkey_index": 0, "port_num": 1, "qp_access_flags": 0}
    del fields[missing]
    with pytest.raises(verbs.VerbsError) as caught:
        qp.modify(**fields)  # type: ignore[arg-type]
    assert caught.value.errno == errno.EINVAL
    assert qp.state == QPState.RESET


def test_an_attribute_too_many_is_refused(qp: verbs.QP) -> None:
    with pytest.raises(verbs.VerbsError):
        qp.modify(qp_state=1, pkey_index=0, port_num=1, qp_access_flags=0, rq_psn=3)
    assert qp.state == QPState.RESET


@pytest.mark.parametrize("fields", [{"port_num": 9}, {"pkey_index": 99}])
def test_a_value_out_of_range_is_refused(qp: verbs.QP, fields: dict[str, int]) -> None:
    values = {"qp_state": 1, "pkey_index": 0, "port_num": 1, "qp_access_flags": 0} | fields
    with pytest.raises(verbs.VerbsError):
        qp.modify(**values)  # type: ignore[arg-type]


def test_the_mask_can_be_given_apart(qp: verbs.QP) -> None:
    mask = QPAttrMask.STATE | QPAttrMask.PKEY_INDEX | QPAttrMask.PORT | QPAttrMask.ACCESS_FLAGS
    qp.modify(mask, qp_state=QPState.INIT, port_num=1, retry_cnt=7)
    assert qp.state == QPState.INIT


def test_an_unknown_attribute_is_a_type_error(qp: verbs.QP) -> None:
    with pytest.raises(TypeError, match="no attribute 'colour'"):
        qp.modify(colour=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("value", [-1, 256])
def test_a_value_that_does_not_fit_is_an_overflow(qp: verbs.QP, value: int) -> None:
    with pytest.raises(OverflowError):
        qp.modify(retry_cnt=value)


def test_error_flushes_and_reset_starts_anew(local_pair: Pair) -> None:
    near = local_pair.near
    near.post_recv(wr_id=1)
    near.set_state("ERR")
    assert [(one.wr_id, one.status) for one in near.wait()] == [(1, "WR_FLUSH_ERR")]
    near.set_state("RESET")
    assert near.state() == "RESET"
    near.qp.to_init()


def test_a_message_is_acknowledged_before_its_receiver_fails_the_qp(make_pair: MakePair) -> None:
    """The receiver may see a message before its acknowledgement leaves."""
    for _ in range(3):
        pair = make_pair()
        near = pair.near
        pair.far.post_recv()
        sender = threading.Timer(0.02, near.qp.send, (near.mr,))
        sender.start()
        pair.far.fail_after_a_message()
        assert [one.status for one in near.wait()] == ["SUCCESS"]
        sender.join()


def test_a_drained_send_queue_is_an_event(local_pair: Pair) -> None:
    near = local_pair.near
    near.qp.modify(qp_state=QPState.SQD, en_sqd_async_notify=1)
    event = near.ctx.get_async_event(10)
    assert event is not None
    assert event.event_type == verbs.EventType.SQ_DRAINED
    assert event.element is near.qp
    near.set_state("RTS")
    near.qp.write(near.mr, *local_pair.far.region(), length=8)
    assert near.wait()[0].ok


def test_a_qp_is_made_from_attributes_or_fields_and_not_both(pd: verbs.PD, cq: verbs.CQ) -> None:
    with pytest.raises(TypeError, match="not both: max_send_wr"):
        pd.create_qp(verbs.QPInitAttr(cq), max_send_wr=3)  # type: ignore[call-overload]


def test_a_state_in_place_of_the_mask_is_refused(qp: verbs.QP) -> None:
    with pytest.raises(TypeError, match=r"modify\(qp_state=QPState.ERR\)"):
        qp.modify(QPState.ERR)  # type: ignore[arg-type]
    assert qp.state == QPState.RESET
