# SPDX-License-Identifier: Apache-2.0
"""Processes in ring 3 that share an RDMA adapter: each rings its own doorbell, without the kernel,
and is ended by a page fault where it reaches for another's."""

from __future__ import annotations

import pytest

from tests.host.kernel_programs import SPIN, check_conservation, count_to, leave
from verbena.host import HostError, Pcie, Ram, Stop
from verbena.host.hca import Hca, HcaDriver, Wire
from verbena.host.hca.formats import HcaStatus
from verbena.host.hca.pair import Node, add_node
from verbena.host.kernel import (
    HcaDoors,
    Process,
    ProcessState,
    System,
    UserHca,
    hca_equates,
    run_systems,
)
from verbena.host.kernel.image import kernel_image
from verbena.host.machines import Machines

TARGET, REGISTERS, DRIVER = 0x100000, 1 << 32, 0x2000_0000
# A WRITE of 64 bytes from `text`, a doorbell, and a loop until the completion is in memory. The
# exit status is that of the completion, or 99 if none comes.
WRITE = (
    """
    mov  rbx, [HCA_SEND_RING]
    mov  rax, [HCA_QP]
    mov  byte ptr [rbx], 0             ; RDMA WRITE
    mov  byte ptr [rbx+1], 1           ; signalled
    mov  word ptr [rbx+2], 0           ; the first request
    mov  [rbx+4], eax
    mov  dword ptr [rbx+8], 64         ; bytes
    mov  dword ptr [rbx+12], 1         ; block
    mov  rcx, [remote_address]
    mov  [rbx+16], rcx
    mov  rcx, [remote_key]
    mov  [rbx+24], ecx
    mov  qword ptr [rbx+32], text
    mov  rcx, [HCA_KEY]
    mov  [rbx+40], ecx
    mov  rcx, [number]                 ; of the queue pair to ring for
    test rcx, rcx
    cmovz rcx, rax
    bts  rcx, 32                       ; one block
    mov  [HCA_DOORBELL], rcx
    mov  rsi, [HCA_COMPLETIONS]
    mov  edx, 100000
wait:
    cmp  byte ptr [rsi+63], 1          ; the owner bit of the first pass
    je   arrived
    dec  edx
    jnz  wait
    """
    + leave(99)
    + """
arrived:
    movzx edi, byte ptr [rsi+7]
    mov  eax, SYS_EXIT
    syscall
    align 4096
remote_address: dq 0
remote_key: dq 0
number: dq 0
text: times 64 db LETTER
"""
)


def program(letter: str) -> str:
    return WRITE.replace("LETTER", str(ord(letter))) + hca_equates()


class Fixture:
    """A system with an adapter of so many pages, and a node at the other end of its cable."""

    def __init__(self, pages: int = 4) -> None:
        wire = Wire()
        self.machines = Machines(lookahead_ns=wire.delay_ps / 1000)
        self.system = System(machines=self.machines, name="left")
        computer = self.system.computer
        self.hca = Hca(pages=pages)
        computer.map(Ram(8 << 20), DRIVER)
        computer.map(self.hca, REGISTERS, pcie=Pcie())
        self.driver = HcaDriver(self.hca, (DRIVER, 8 << 20))
        self.doors = HcaDoors(self.driver)
        self.right: Node = add_node(self.machines, "right")
        self.target = self.right.register(TARGET, 4096)
        wire.connect(self.hca, self.right.hca)

    def start(self, text: str, name: str = "") -> tuple[Process, UserHca]:
        process = self.system.start(text, name=name, memory=64 << 10)
        opened = self.doors.open(process)
        opened.qp.connect(self.right.driver.queue_pair(self.right.cq))
        return process, opened

    def writer(self, letter: str, offset: int) -> tuple[Process, UserHca]:
        process, opened = self.start(program(letter), letter)
        self.put(process, "remote_address", TARGET + offset)
        self.put(process, "remote_key", self.target.key)
        return process, opened

    def put(self, process: Process, label: str, value: int) -> None:
        process.write(process.program.labels[label], value.to_bytes(8, "little"))

    def run(self) -> None:
        run_systems(self.system)
        check_conservation(self.system)


def test_processes_share_an_adapter_without_the_kernel() -> None:
    fixture = Fixture()
    made = [fixture.writer(letter, 64 * place)[0] for place, letter in enumerate("abc")]
    fixture.run()
    assert [one.exit_status for one in made] == [HcaStatus.SUCCESS] * 3
    assert [one.calls for one in made] == [{"exit": 1}] * 3
    expected = b"".join(letter.encode() * 64 for letter in "abc")
    assert fixture.right.computer.read(TARGET, 192) == expected
    assert fixture.hca.refusals == []


def test_who_reaches_for_another_s_page_faults_and_the_others_go_on() -> None:
    fixture = Fixture()
    good, opened = fixture.writer("a", 0)
    physical = fixture.driver.page_address(opened.page)
    lines = [f"mov rcx, {physical}", "mov qword ptr [rcx], 1"]
    bad, _ = fixture.start("\n".join([*lines, SPIN]), "bad")
    fixture.run()
    assert good.exit_status == HcaStatus.SUCCESS
    assert bad.state is ProcessState.FAULTED
    assert bad.report is not None
    assert f"mov qword ptr [rcx], 1: page fault (#PF): it wrote to {physical:#x}" in bad.report
    assert fixture.hca.refusals == []  # the store has not come to the adapter


def test_a_doorbell_for_another_s_queue_pair_is_refused_by_the_adapter() -> None:
    fixture = Fixture()
    bad, opened = fixture.writer("b", 64)
    _, victim = fixture.writer("a", 0)  # runs, and ends, after the doorbell
    fixture.put(bad, "number", victim.qp.number)
    fixture.run()
    assert bad.exit_status == 99
    (refusal,) = fixture.hca.refusals
    assert (refusal.qpn, refusal.what) == (victim.qp.number, f"a doorbell on page {opened.page}")
    assert f"it belongs to page {victim.page} of registers" in refusal.why


def test_queues_of_two_processes_are_on_no_page_together() -> None:
    fixture = Fixture()
    pages = []
    for text in (leave(), leave()):
        _, opened = fixture.start(text)
        context, ring = opened.qp.context, opened.cq.ring
        ends = [
            (context.ring.address, 64 * context.ring.blocks),
            (context.receive_address, 16 * context.receives),
            (ring.address, 64 * ring.entries),
            (ring.record, 8),
        ]
        pages.append(
            {page for at, size in ends for page in range(at >> 12, (at + size + 4095) >> 12)}
        )
    assert not pages[0] & pages[1]


def test_what_a_process_has_of_the_adapter_it_may_only_read() -> None:
    fixture = Fixture()
    process, _ = fixture.start(f"mov rax, [HCA_QP]\n mov [HCA_KEY], rax\n{hca_equates()}")
    fixture.run()
    assert process.report is not None
    assert process.report.endswith("it wrote to 0x50000008, which it may only read")


def test_the_key_ends_before_the_memory_is_another_process_s() -> None:
    fixture = Fixture(pages=1)
    first, opened = fixture.writer("a", 0)
    fixture.run()
    key = opened.memory
    others = [fixture.system.start(leave()) for _ in range(14)]
    fixture.run()
    taken = fixture.system.start(count_to(100) + leave())  # in the place of the first
    assert not first.is_in_table
    assert not opened.is_open
    assert not key.is_registered
    later = fixture.doors.open(taken)
    assert later.page == opened.page
    fixture.run()
    assert [one.exit_status for one in (*others, taken)] == [0] * 15


def test_a_peer_cannot_write_to_memory_of_a_process_that_gave_it_back() -> None:
    fixture = Fixture()
    _, opened = fixture.start(leave())
    peer = fixture.right.driver.queue_pair(fixture.right.cq)
    other = fixture.driver.queue_pair(fixture.driver.completion_queue())
    other.connect(peer)
    region = opened.memory
    opened.close()
    opened.close()
    peer.write(fixture.target, region, 64)
    fixture.run()
    (completion,) = fixture.right.cq.poll()
    assert completion.entry.status is HcaStatus.REM_ACCESS_ERR


def test_a_page_is_given_again_only_when_no_address_space_has_it() -> None:
    fixture = Fixture(pages=1)
    process, opened = fixture.writer("a", 0)
    opened.close()
    with pytest.raises(HostError, match="all 1 pages of registers are given"):
        fixture.doors.open(fixture.system.start(leave()))
    fixture.run()
    assert process.exit_status == 99
    assert [refusal.what for refusal in fixture.hca.refusals] == ["a doorbell on page 1"]


def test_what_cannot_be_opened_is_refused() -> None:
    fixture = Fixture(pages=1)
    process, opened = fixture.start(leave())
    with pytest.raises(HostError, match="has its part of the adapter already"):
        fixture.doors.open(process)
    with pytest.raises(HostError, match="all 1 pages of registers are given"):
        fixture.doors.open(fixture.system.start(leave()))
    other = Fixture()
    with pytest.raises(HostError, match=r"memory of 8,388,608 bytes .* has no room"):
        other.doors.open(other.system.start(leave()), blocks=1 << 20)
    assert other.doors.open(other.system.start(leave())).page == 1
    elsewhere = System().start(leave())
    with pytest.raises(HostError, match="runs on 'system', and the adapter is in 'left'"):
        fixture.doors.open(elsewhere)
    with pytest.raises(HostError, match="process 1 has memory from 0x40000000"):
        opened.register(0x4000_0000, 1 << 20)
    opened.close()
    with pytest.raises(HostError, match="has given its part of the adapter back"):
        opened.register(0x4000_0000, 64)


# Waits for a word that a peer writes, and then does what `HOW` says.
WAIT = f"""
wait:
    mov  rax, [word]
    test rax, rax
    jz   wait
    HOW
    align 4096
word: dq 0
    times 511 dq 0
{hca_equates()}
"""


class Peer:
    """The other end of a process that waits for a word."""

    def __init__(self, fixture: Fixture, how: str) -> None:
        self.fixture, right = fixture, fixture.right
        self.process = fixture.system.start(WAIT.replace("HOW", how), memory=64 << 10)
        self.opened = fixture.doors.open(self.process)
        self.qp = right.driver.queue_pair(right.cq)
        self.opened.qp.connect(self.qp)
        right.computer.write(TARGET, (7).to_bytes(8, "little"))

    def write(self) -> HcaStatus:
        """Writes the word, and the status of that."""
        offset = self.process.program.labels["word"] - self.opened.memory.address
        self.qp.write(self.fixture.target, self.opened.memory, 8, target_offset=offset)
        self.fixture.run()
        (completion,) = self.fixture.right.cq.poll()
        return completion.entry.status


ENDS = pytest.mark.parametrize(
    ("how", "state"),
    [(leave(3), ProcessState.EXITED), ("mov rax, [0]", ProcessState.FAULTED)],
)


@ENDS
def test_what_a_process_has_of_the_adapter_ends_with_it(how: str, state: ProcessState) -> None:
    fixture = Fixture()
    peer = Peer(fixture, how)
    memory, more = peer.opened.memory, peer.opened.register(0x4000_0000, 4096)
    assert peer.write() is HcaStatus.SUCCESS
    assert peer.process.state is state
    assert not peer.opened.is_open
    for region in (memory, more):
        assert (region.is_registered, region.pinned) == (False, [])
    peer.process.write(peer.process.program.labels["word"], bytes(8))
    assert peer.write() is HcaStatus.RETRY_EXC_ERR
    assert peer.process.read(peer.process.program.labels["word"], 8) == bytes(8)
    with pytest.raises(HostError, match="has given its part of the adapter back"):
        peer.opened.register(0x4000_0000, 64)


def test_the_end_is_known_while_the_others_run_on() -> None:
    """Not only when a run has ended; the run does not end for it, either."""
    fixture = Fixture()
    first = Peer(fixture, leave())
    seen: list[bool] = []
    later = fixture.system.start(count_to(1_000_000) + leave())
    machine = fixture.system.computer
    machine.at(machine.now + 300_000_000, lambda: seen.append(first.opened.is_open))
    assert first.write() is HcaStatus.SUCCESS
    assert (seen, later.exit_status) == ([False], 0)


def test_who_follows_each_instruction_sees_the_end_of_a_process_too() -> None:
    fixture = Fixture()
    process = fixture.system.start(leave())
    opened = fixture.doors.open(process)
    computer = fixture.system.computer
    for _ in computer.steps():
        if process.has_ended:
            break
    assert opened.is_open  # the kernel has not closed what it has
    for number, _ in enumerate(computer.steps()):
        if not opened.is_open or number > 100:
            break
    assert not opened.is_open


def test_a_doorbell_of_a_process_that_has_ended_is_refused() -> None:
    fixture = Fixture()
    bell = f"mov rax, [HCA_QP]\nbts rax, 32\nmov [HCA_DOORBELL], rax\n{leave()}\n{hca_equates()}"
    _, opened = fixture.start(bell)
    fixture.run()
    (refusal,) = fixture.hca.refusals
    assert refusal.qpn == opened.qp.number
    assert refusal.why == "its process has ended, or has given it back"


def test_the_kernel_s_breakpoints_and_calls_are_apart() -> None:
    """A breakpoint where the kernel calls ends a run, and is taken away alone."""
    fixture = Fixture()
    fixture.doors.open(fixture.system.start(leave()))
    core, at = fixture.system.computer.cores[0], kernel_image().labels["end_of_process"]
    core.break_at(at)
    assert fixture.machines.run() is Stop.MARK
    assert core.rip == at
    opened = fixture.doors.open(fixture.system.start(leave()))
    core.remove_break(at)
    fixture.run()
    assert not opened.is_open


def test_a_run_at_its_limit_tells_why_the_adapter_did_nothing() -> None:
    fixture = Fixture()
    fixture.start(f"mov rcx, 99 | (1 << 32)\nmov [HCA_DOORBELL], rcx\n{SPIN}\n" + hca_equates())
    says = r"there still runs .*; an adapter's last refusal: .* QP 99: a doorbell on page 1"
    with pytest.raises(HostError, match=says):
        run_systems(fixture.system, limit_us=1000)


def test_a_process_that_has_ended_gets_no_adapter() -> None:
    fixture = Fixture()
    process = fixture.system.start(leave(0), memory=64 << 10)
    fixture.run()
    with pytest.raises(HostError, match="has ended: open the adapter for a process before it runs"):
        fixture.doors.open(process)
