# SPDX-License-Identifier: Apache-2.0
"""What the kernel costs, in cycles, and what the page says about its system calls."""

from __future__ import annotations

import re
from itertools import pairwise

from tests.host.kernel_programs import call, leave
from tests.support import ROOT
from verbena.host import Costs
from verbena.host.kernel import CALLS, System, layout
from verbena.host.kernel.image import interrupt_table, kernel_image
from verbena.host.kernel.measured import measured_costs


def test_measured_costs_are_of_the_order_of_their_instructions() -> None:
    found = {one.name: one for one in measured_costs(Costs(syscall=432))}
    assert list(found) == ["syscall", "wakeup", "hard_irq", "softirq_packet", "copy_l2"]
    assert 60 < found["syscall"].cycles < 120
    assert found["syscall"].cycles < found["wakeup"].cycles < 400
    assert 0.125 <= found["copy_l2"].cycles < 0.14  # a word of 8 bytes in a cycle
    assert (found["syscall"].charged, found["wakeup"].charged) == (432, 4500)


def test_a_call_that_copies_takes_a_cycle_for_eight_bytes_each_way() -> None:
    def cycles(size: int) -> int:
        text = call("bind", 8000) + call("send_to", 0, "buffer", size, 1, 8000)
        text += call("receive_from", 0, "buffer", size, 0, 0) + leave("rax")
        [process] = System().run(text + "    align 4096\nbuffer: times 190 dq 0")
        assert process.exit_status == size
        return process.cycles.system

    assert cycles(1480) - cycles(80) == 2 * 1400 // 8


def test_the_tables_of_the_kernel_do_not_overlap() -> None:
    labels = kernel_image().labels
    spans = [
        (layout.KERNEL_CODE, labels["call_table"] + 8 * len(CALLS)),
        (layout.KERNEL_DATA, labels["kernel_data_end"]),
        (layout.IDT, layout.IDT + len(interrupt_table(labels))),
        (layout.PROCESSES, layout.PROCESSES + layout.PROCESS_COUNT * layout.PROCESS_SIZE),
        (layout.SOCKETS, layout.SOCKETS + layout.SOCKET_COUNT * layout.SOCKET_SIZE),
        (layout.SEND_RING, layout.SEND_RING + 16 * layout.RING_COUNT),
        (layout.RECEIVE_RING, layout.RECEIVE_RING + 16 * layout.RING_COUNT),
        (layout.STACKS, layout.STACKS + layout.PROCESS_COUNT * layout.STACK_SPAN),
        (layout.POOL, layout.POOL + layout.POOL_COUNT * layout.BUFFER_SIZE),
        (layout.FRAMES, layout.FRAMES + 1),
    ]
    assert all(start < end for start, end in spans)
    assert all(one[1] <= behind[0] for one, behind in pairwise(sorted(spans)))
    assert 8 * (len(layout.PROCESS_FIELDS) - 1 + len(CALLS)) <= layout.PROCESS_SIZE


def test_the_page_has_every_call_with_its_number() -> None:
    page = (ROOT / "docs" / "operating-system.md").read_text()
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| (.*) \| (.*) \|$", page, re.MULTILINE)
    assert rows == [(str(n), one.name, one.arguments, one.result) for n, one in enumerate(CALLS)]
