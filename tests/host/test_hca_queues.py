# SPDX-License-Identifier: Apache-2.0
"""Queue pairs and completion queues of the RDMA adapter: many requests at once, and wrong ones."""

from __future__ import annotations

import pytest

from verbena.host import HostError
from verbena.host.hca import HcaStatus, Wire, add_node, connected

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
