# SPDX-License-Identifier: Apache-2.0
"""Queue pairs and completion queues of the RDMA adapter: many requests at once, and wrong ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from verbena.host import HostError
from verbena.host.hca import HcaStatus, Node, Region, Wire, add_node, connected

BASE = 0x100000


@pytest.mark.parametrize("kind", ["write", "read", "send", "add", "inline"])
def test_any_number_of_packets_may_wait_for_a_translation(kind: str) -> None:
    """All are sent while the caches are cold, and are served when the entries are there."""
    count = 400
    rings = {"blocks": 4096, "receives": 4096, "depth": 4096}
    left, right = connected(queue_pair=rings)
    source, target = left.register(BASE, 8), right.register(BASE, 8)
    for number in range(count):
        told = number == count - 1
        if kind == "write":
            left.qp.write(source, target, ring=False, signalled=told)
        elif kind == "read":
            left.qp.read(source, target, ring=False, signalled=told)
        elif kind == "send":
            right.qp.receive(target)
            left.qp.send(source, ring=False, signalled=told)
        elif kind == "add":
            left.qp.fetch_and_add(source, target, 1, id=number)
        else:
            left.qp.write(b"12345678", target, ring=False, signalled=told)
    left.qp.ring()
    left.run()
    statuses = {one.entry.status for one in left.cq.poll()}
    assert statuses == {HcaStatus.SUCCESS} or (kind == "add" and len(statuses) == 1)


def test_a_completion_queue_of_another_adapter_is_refused_by_name() -> None:
    left, right = connected()
    says = "completion queue 1 is of Hca of 'right', and the queue pair is of Hca of 'left'"
    with pytest.raises(HostError, match=says):
        left.driver.queue_pair(right.cq)
    with pytest.raises(HostError, match=says):
        left.driver.queue_pair(left.cq, right.cq)


def test_queue_pairs_without_a_wire_between_them_are_refused_by_name() -> None:
    left, right = connected()
    third, fourth = (add_node(left.machines, name) for name in ("third", "fourth"))
    new = left.driver.queue_pair(left.cq)
    says = "QP 2 of Hca of 'left' cannot be connected to QP 1 of Hca of '{}': there is no wire"
    for node in (third, fourth):
        with pytest.raises(HostError, match=says.format(node.computer.name)):
            new.connect(node.qp)
    with pytest.raises(HostError, match="QP 2 of Hca of 'left' cannot be connected to QP 3 of"):
        new.connect(left.driver.queue_pair(left.cq))
    with pytest.raises(HostError, match=r"QP 1 of Hca of 'third' cannot be .* Wire\.connect"):
        third.qp.connect(fourth.qp)
    Wire().connect(third.hca, fourth.hca)
    third.qp.connect(fourth.qp)
    new.connect(right.driver.queue_pair(right.cq))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda left, a, b: left.qp.fetch_and_add(a, b, -1), "operand .* 64 bits, .*: -0x1 does"),
        (lambda left, a, b: left.qp.fetch_and_add(a, b, 1 << 64), "operand .* has 64 bits"),
        (lambda left, a, b: left.qp.compare_and_swap(a, b, -1, 0), "operand .* has 64 bits"),
        (lambda left, a, b: left.qp.compare_and_swap(a, b, 0, -1), "swap .* has 64 bits"),
        (lambda left, a, b: left.qp.write(a, b, immediate=1 << 32), "immediate .* has 32 bits"),
        (lambda left, a, b: left.qp.send(a, immediate=-1), "immediate .* has 32 bits"),
        (lambda left, a, b: left.qp.write(a, b, target_offset=-1 << 30), "remote address .* 64"),
        (lambda left, a, b: left.qp.receive(a, -1), "a receive has .* not -1 bytes at offset 0"),
        (lambda left, a, b: left.qp.receive(a, 1 << 31), "a receive has 0 to 2147483647 bytes"),
        (lambda left, a, b: left.qp.receive(a, 8, offset=-1 << 30), "at offset -1073741824 of"),
    ],
)
def test_a_number_that_does_not_fit_into_a_request_is_refused(
    call: Callable[[Node, Region, Region], None], says: str
) -> None:
    """Nothing is posted: the next request is carried out."""
    left, right = connected()
    source, target = left.register(BASE, 8), right.register(BASE, 8)
    with pytest.raises(HostError, match=says):
        call(left, source, target)
    left.qp.fetch_and_add(source, target, (1 << 64) - 1)
    left.run()
    assert [one.entry.status for one in left.cq.poll()] == [HcaStatus.SUCCESS]
    assert right.computer.read(BASE, 8) == b"\xff" * 8


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"retry": 9}, "3 bits, 0 to 7 .*: not 9 and 7"),
        ({"retry": -1}, "3 bits"),
        ({"rnr_retry": 8}, "not 7 and 8"),
        ({"timeout_us": 0}, "not 0 and 10"),
        ({"timeout_us": 1e30}, r"not 1e\+30 and 10"),
        ({"rnr_us": -1}, "not 1000 and -1"),
    ],
)
def test_settings_of_a_queue_pair_have_bounds(settings: dict[str, float], says: str) -> None:
    with pytest.raises(HostError, match=says):
        connected(queue_pair=settings)
