# SPDX-License-Identifier: Apache-2.0
"""Connecting two QPs over a socket."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pytest

import verbena
from tests.verbs.side import Side
from verbena import verbs
from verbena.verbs import connect
from verbena.verbs.local_carrier import check_local_carriers

Sockets = tuple[socket.socket, socket.socket]


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    a, b = socket.socketpair()
    with a, b:
        yield a, b


@pytest.fixture
def sides() -> Iterator[tuple[Side, Side]]:
    a, b = Side(), Side()
    with a.ctx, b.ctx:
        yield a, b


def both(sides: tuple[Side, Side], sockets: Sockets) -> list[Future[verbs.QPInfo]]:
    with ThreadPoolExecutor(2) as pool:
        return [
            pool.submit(verbs.connect_rc, side.qp, end, deadline=10)
            for side, end in zip(sides, sockets, strict=True)
        ]


def test_both_ends_are_connected_on_return(sides: tuple[Side, Side], sockets: Sockets) -> None:
    infos = [future.result() for future in both(sides, sockets)]
    near, far = sides
    assert [info.qp_num for info in infos] == [far.qp.qp_num, near.qp.qp_num]
    far.post_recv()
    near.fill(b"hello")
    near.qp.send(near.mr, length=5)
    assert far.wait()[0].byte_len == 5


@pytest.mark.parametrize("kind", ["RC", "UC"])
def test_a_receive_may_be_posted_before(sockets: Sockets, kind: str) -> None:
    """As the page says, so that the peer's first SEND finds it."""
    near, far = Side(qp_type=kind), Side(qp_type=kind)
    with near.ctx, far.ctx:
        far.qp.to_init()
        far.post_recv()
        for future in both((near, far), sockets):
            future.result()
        near.qp.send(near.mr, length=5)
        assert far.wait()[0].byte_len == 5
        far.qp.write(far.mr, near.mr.addr, near.mr.rkey, length=8)  # `access` is connect_rc's
        assert far.cq.wait_one(10).is_success
        near.qp.write(near.mr, far.mr.addr, far.mr.rkey, length=8)
        assert near.cq.wait(2, 10)[-1].is_success


def test_the_socket_is_at_the_byte_after_the_exchange(
    sides: tuple[Side, Side], sockets: Sockets
) -> None:
    for future in both(sides, sockets):
        future.result()
    sockets[0].sendall(b"next")
    assert sockets[1].recv(100) == b"next"
    assert sockets[1].gettimeout() is None


def test_uc_connects_too(sockets: Sockets) -> None:
    near, far = Side(qp_type="UC"), Side(qp_type="UC")
    with near.ctx, far.ctx:
        for future in both((near, far), sockets):
            future.result()
        assert near.state() == far.state() == "RTS"


def test_a_peer_of_another_type_is_refused_on_both_sides(sockets: Sockets) -> None:
    near, far = Side(), Side(qp_type="UC")
    with near.ctx, far.ctx:
        for future in both((near, far), sockets):
            with pytest.raises(verbs.ConnectError, match="make them alike"):
                future.result()


def test_a_peer_that_speaks_something_else_is_named(
    sides: tuple[Side, Side], sockets: Sockets
) -> None:
    sockets[1].sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(verbs.ConnectError, match="HTTP") as caught:
        verbs.connect_rc(sides[0].qp, sockets[0])
    assert caught.value.errno == errno.EPROTO


def test_a_peer_that_closes_is_a_reset(sides: tuple[Side, Side], sockets: Sockets) -> None:
    sockets[1].close()
    with pytest.raises(verbs.ConnectError, match="closed the socket") as caught:
        verbs.connect_rc(sides[0].qp, sockets[0])
    assert caught.value.errno == errno.ECONNRESET


def test_a_peer_that_closes_half_way_is_a_reset(sides: tuple[Side, Side], sockets: Sockets) -> None:
    sockets[1].sendall(sides[1].info().to_bytes()[:20])
    sockets[1].shutdown(socket.SHUT_WR)
    with pytest.raises(verbs.ConnectError) as caught:
        verbs.connect_rc(sides[0].qp, sockets[0])
    assert caught.value.errno == errno.ECONNRESET


def test_a_silent_peer_is_a_timeout(sides: tuple[Side, Side], sockets: Sockets) -> None:
    with pytest.raises(verbs.ConnectError, match="sent nothing") as caught:
        verbs.connect_rc(sides[0].qp, sockets[0], deadline=0.05)
    assert caught.value.errno == errno.ETIMEDOUT


def test_the_peer_is_told_why_a_side_failed(sides: tuple[Side, Side], sockets: Sockets) -> None:
    far = sides[1]
    far.qp.to_init()
    far.qp.modify(qp_state=verbs.QPState.ERR)
    outcomes = both(sides, sockets)
    assert isinstance(outcomes[1].exception(), verbs.VerbsError)
    with pytest.raises(verbs.ConnectError, match=r"could not bring its QP up.*modify_qp") as caught:
        outcomes[0].result()
    assert caught.value.errno == errno.ECONNREFUSED


def test_the_peer_of_a_closed_qp_is_told(sides: tuple[Side, Side], sockets: Sockets) -> None:
    sides[1].qp.close()
    outcomes = both(sides, sockets)
    failed = outcomes[1].exception()
    assert isinstance(failed, verbs.VerbsError)
    assert failed.errno == errno.EBADF
    with pytest.raises(verbs.ConnectError, match=r"could not bring its QP up.*this QP") as caught:
        outcomes[0].result()
    assert caught.value.errno == errno.ECONNREFUSED


@pytest.mark.parametrize(
    ("qp", "options", "error"),
    [
        (None, {}, TypeError),
        ("fresh", {"psn": 1 << 40}, Exception),
        ("fresh", {"port": 9}, verbs.VerbsError),
    ],
)
def test_the_peer_of_a_side_that_cannot_begin_is_told(
    sides: tuple[Side, Side],
    sockets: Sockets,
    qp: str | None,
    options: dict[str, int],
    error: type[Exception],
) -> None:
    with pytest.raises(error) as failed:
        verbs.connect_rc(sides[1].qp if qp else None, sockets[1], **options)  # type: ignore[arg-type]
    with pytest.raises(verbs.ConnectError) as caught:
        verbs.connect_rc(sides[0].qp, sockets[0], deadline=2)
    assert caught.value.errno == errno.ECONNREFUSED
    assert str(failed.value) in str(caught.value)


def test_a_datagram_qp_is_refused(sockets: Sockets) -> None:
    near, far = Side(qp_type="UD"), Side(qp_type="UD")
    with near.ctx, far.ctx:
        for future in both((near, far), sockets):
            with pytest.raises(verbs.ConnectError, match="bring_up_ud") as caught:
                future.result()
            assert caught.value.errno in (errno.EPROTOTYPE, errno.ECONNREFUSED)
        assert near.state() == far.state() == "RESET"
        with pytest.raises(verbs.ConnectError, match="bring_up_ud"):
            verbs.bring_up(near.qp, near.info(), far.info(), near.gid_index)


def test_a_connected_qp_is_refused_before_the_peer_says_anything(
    sides: tuple[Side, Side], sockets: Sockets
) -> None:
    verbs.connect_pair(sides[0].qp, sides[1].qp)
    with pytest.raises(verbs.ConnectError, match="already connected") as caught:
        verbs.connect_rc(sides[0].qp, sockets[0], deadline=2)
    assert caught.value.errno == errno.EISCONN


def test_the_deadline_stands_in_for_the_timeout_of_the_socket(
    sides: tuple[Side, Side], sockets: Sockets
) -> None:
    assert "settimeout" in str(verbs.connect_rc.__doc__)
    sockets[0].settimeout(60)
    with pytest.raises(verbs.ConnectError, match=r"sent nothing for 0\.05 s"):
        verbs.connect_rc(sides[0].qp, sockets[0], deadline=0.05)
    assert sockets[0].gettimeout() == 60


def test_a_later_version_may_say_more(sides: tuple[Side, Side], sockets: Sockets) -> None:
    near, far = sides
    message = far.info().to_bytes()
    longer = message[:4] + (2).to_bytes(2, "big") + (len(message) - 8 + 3).to_bytes(2, "big")
    sockets[1].sendall(longer + message[8:] + b"new" + b"\x01\x00\x00")
    assert verbs.connect_rc(near.qp, sockets[0], deadline=5).qp_num == far.qp.qp_num


@pytest.mark.parametrize("where", [8, 9])
def test_a_malformed_message_is_eproto(
    sides: tuple[Side, Side], sockets: Sockets, where: int
) -> None:
    message = bytearray(sides[1].info().to_bytes())
    message[where] = 0xEE
    sockets[1].sendall(message)
    with pytest.raises(verbs.ConnectError, match="malformed") as caught:
        verbs.connect_rc(sides[0].qp, sockets[0])
    assert caught.value.errno == errno.EPROTO


def test_qp_info_survives_its_message() -> None:
    info = verbs.QPInfo(
        verbs.QPType.RC, 0xABCDEF, 0x123456, 7, bytes(range(16)), verbs.MTU.MTU_1024, 4, 8
    )
    assert verbs.QPInfo.from_bytes(info.to_bytes()) == info


@pytest.mark.parametrize("packets", [True, False, None])
def test_qp_info_says_whether_packets_go_to_peers_of_the_host(packets: bool | None) -> None:
    info = verbs.QPInfo(verbs.QPType.RC, 1, 2, 0, bytes(16), verbs.MTU.MTU_1024)
    said = replace(info, local_packets=packets).to_bytes()
    assert verbs.QPInfo.from_bytes(said).local_packets is packets
    unsaid = said[:6] + (len(said) - 9).to_bytes(2, "big") + said[8:-1]  # as earlier versions
    assert verbs.QPInfo.from_bytes(unsaid) == info


def test_a_peer_of_this_host_with_another_carrier(
    sides: tuple[Side, Side], sockets: Sockets
) -> None:
    """Its requests would never be answered. With a peer elsewhere the carriers need not agree."""
    near, far = sides
    info = far.info()
    assert info.local_packets is not None
    other = replace(info, local_packets=not info.local_packets)
    sockets[1].sendall(other.to_bytes())
    with pytest.raises(verbs.ConnectError, match=r"VERBENA_CARRIER=roce.* alike") as caught:
        verbs.connect_rc(near.qp, sockets[0], deadline=5)
    assert caught.value.errno == errno.EPROTONOSUPPORT
    assert near.qp.state == verbs.QPState.RESET
    own, index = verbs.local_qp_info(near.qp)
    elsewhere = replace(other, gid=bytes(10) + b"\xff\xff" + bytes([198, 51, 100, 7]))
    check_local_carriers(near.ctx, elsewhere.gid, elsewhere.local_packets)
    verbs.bring_up(near.qp, own, info, index)


def test_tcp_serves_as_well(sides: tuple[Side, Side]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepted: list[socket.socket] = []
        thread = threading.Thread(target=lambda: accepted.append(server.accept()[0]))
        thread.start()
        client = socket.create_connection(server.getsockname())
        thread.join()
    with client, accepted[0]:
        for future in both(sides, (client, accepted[0])):
            future.result()


def test_the_package_offers_connect_rc() -> None:
    assert verbena.connect_rc is verbs.connect_rc


def test_the_peer_is_told_of_a_value_that_does_not_fit(
    sides: tuple[Side, Side], sockets: Sockets
) -> None:
    sockets[1].sendall(sides[1].info().to_bytes())
    with pytest.raises(OverflowError, match="timeout"):
        verbs.connect_rc(sides[0].qp, sockets[0], timeout=1000)
    assert b"timeout=1000 does not fit" in sockets[1].recv(1000)


def test_a_peer_that_is_gone_does_not_hide_why_this_side_failed(
    sides: tuple[Side, Side], sockets: Sockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        sockets[1].close()
        raise verbs.VerbsError(errno.EINVAL, "the reason")

    monkeypatch.setattr(connect, "bring_up", fail)
    sockets[1].sendall(sides[1].info().to_bytes())
    with pytest.raises(verbs.VerbsError, match="the reason"):
        verbs.connect_rc(sides[0].qp, sockets[0])


def test_to_init_names_the_right_option(cq: verbs.CQ, pd: verbs.PD) -> None:
    qp = pd.create_qp(send_cq=cq)
    with pytest.raises(TypeError, match="to_init has no option 'port_num': did you mean port"):
        qp.to_init(port_num=1)  # type: ignore[call-arg]
    assert qp.state == verbs.QPState.RESET


def test_an_unknown_option_is_refused_before_anything_is_sent(
    sides: tuple[Side, Side], sockets: Sockets
) -> None:
    with pytest.raises(TypeError, match="no option 'mtu': did you mean path_mtu"):
        verbs.connect_rc(sides[0].qp, sockets[0], mtu=1024)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no option 'colour': there are port, path_mtu"):
        verbs.connect_pair(sides[0].qp, sides[1].qp, colour=1)  # type: ignore[call-arg]
    sockets[1].setblocking(False)
    with pytest.raises(BlockingIOError):
        sockets[1].recv(1)


def test_a_connected_pair_says_so(sides: tuple[Side, Side]) -> None:
    a, b = (side.qp for side in sides)
    verbs.connect_pair(a, b)
    with pytest.raises(verbs.ConnectError, match="already connected") as caught:
        verbs.connect_pair(a, b)
    assert caught.value.errno == errno.EISCONN
    a.modify(qp_state=verbs.QPState.RESET)
    b.modify(qp_state=verbs.QPState.RESET)
    verbs.connect_pair(a, b)


def test_bytes_are_no_path_mtu(sides: tuple[Side, Side]) -> None:
    with pytest.raises(verbs.VerbsError, match=r"path_mtu is 1024 .* MTU_1024 is 3"):
        verbs.connect_pair(sides[0].qp, sides[1].qp, path_mtu=1024)  # type: ignore[arg-type]


def test_a_state_is_printed_by_its_name(sides: tuple[Side, Side]) -> None:
    assert str(sides[0].qp.state) == f"{sides[0].qp.state}" == "RESET"


def test_a_pair_is_two(sides: tuple[Side, Side]) -> None:
    qp = sides[0].qp
    with pytest.raises(verbs.ConnectError, match="both ends are the same QP"):
        verbs.connect_pair(qp, qp)
    assert qp.state == verbs.QPState.RESET


def test_a_pair_with_a_connected_qp_leaves_the_other_as_it_was(sides: tuple[Side, Side]) -> None:
    near, far = (side.qp for side in sides)
    verbs.connect_pair(near, far)
    fresh = sides[0].pd.create_qp(send_cq=sides[0].cq)
    with pytest.raises(verbs.ConnectError, match="already connected"):
        verbs.connect_pair(fresh, far)
    assert fresh.state == verbs.QPState.RESET
