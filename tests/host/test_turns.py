# SPDX-License-Identifier: Apache-2.0
"""Turns of several cores: which updates of shared memory are lost, and which cannot be."""

from __future__ import annotations

import pytest

from verbena.host import Computer, Device, HostError, Machines, Program, Ram

TIMES = 3000


def counted(body: str, *, cores: int = 2, seed: int = 0, turn_cycles: int = 16) -> int:
    """The word that all cores change in each round of a loop."""
    computer = Computer(cores=cores, seed=seed, turn_cycles=turn_cycles)
    computer.map(Ram(1 << 16), 0)
    text = f"mov rbx, 0x8000\n mov ecx, {TIMES}\nagain:\n{body}\n dec ecx\n jnz again\n hlt"
    for core in range(cores):
        computer.load(Program.assemble(text, 0x1000 * (core + 1)), core=core)
    computer.run()
    assert len({core.state.instructions for core in computer.cores}) == 1 or "retry" in body
    return int.from_bytes(computer.read(0x8000, 8), "little")


@pytest.mark.parametrize("turn_cycles", [1, 2, 16, 1000])
@pytest.mark.parametrize("nops", [0, 2])
def test_an_update_by_a_load_and_a_store_is_lost(nops: int, turn_cycles: int) -> None:
    """Two NOP make the loop 7 instructions, 5 without: turns are not a multiple of either."""
    body = "mov rax, [rbx]\n add rax, 1\n" + "nop\n" * nops + "mov [rbx], rax"
    assert TIMES <= counted(body, turn_cycles=turn_cycles) < 2 * TIMES


ADDS = ["inc qword ptr [rbx]", "add dword ptr [rbx], 1", "add qword ptr [rbx], 1",
        "mov rax, 1\n {}xadd [rbx], rax", "sub qword ptr [rbx], -1"]  # fmt: skip


@pytest.mark.parametrize("add", ADDS)
@pytest.mark.parametrize("cores", [2, 5])
def test_an_instruction_without_lock_loses_updates_and_with_it_none(add: str, cores: int) -> None:
    without = add.format("")
    locked = add.format("lock ") if "{}" in add else "lock " + add
    assert TIMES <= counted(without, cores=cores) < cores * TIMES
    assert counted(locked, cores=cores) == cores * TIMES


def test_a_spinlock_by_xchg_keeps_every_update() -> None:
    """XCHG with memory is locked without the prefix."""
    body = """
    retry: mov eax, 1
    xchg eax, [0x9000]
    test eax, eax
    jnz retry
    inc qword ptr [rbx]
    mov dword ptr [0x9000], 0
    """
    assert counted(body, cores=3) == 3 * TIMES


@pytest.mark.parametrize("lock", ["", "lock "])
def test_a_loop_of_cmpxchg_needs_lock(lock: str) -> None:
    body = f"""
    mov rax, [rbx]
    retry: lea rdx, [rax+1]
    {lock}cmpxchg [rbx], rdx
    jnz retry
    """
    assert (counted(body) == 2 * TIMES) == (lock != "")


@pytest.mark.parametrize("lock", ["", "lock "])
def test_bits_of_one_word_are_lost_too(lock: str) -> None:
    """Each core sets a bit of its own, looks whether it is there, and clears it."""
    computer = Computer(cores=2)
    computer.map(Ram(1 << 16), 0)
    text = f"""
    mov rbx, 0x8000
    mov ecx, {TIMES}
    again: {lock}bts qword ptr [rbx], rsi
    bt qword ptr [rbx], rsi
    adc r8, 0
    {lock}btr qword ptr [rbx], rsi
    dec ecx
    jnz again
    hlt
    """
    for core in range(2):
        computer.load(Program.assemble(text, 0x1000 * (core + 1)), core=core)
        computer.cores[core].registers.rsi = core
    computer.run()
    found = sum(core.registers.r8 for core in computer.cores)
    assert (found == 2 * TIMES) == (lock != "")


def test_a_seed_decides_what_is_lost() -> None:
    results = [counted("inc qword ptr [rbx]", seed=seed) for seed in (1, 2, 3, 1)]
    assert results[0] == results[3]
    assert len(set(results)) == 3


def test_cores_go_on_together() -> None:
    """A core that watches another one's counter sees it grow in small steps."""
    computer = Computer(cores=2)
    computer.map(Ram(1 << 20), 0)
    count = "mov ecx, 2000\nagain: inc qword ptr [0x8000]\n dec ecx\n jnz again\n hlt"
    watch = """
    mov ecx, 1000
    mov rdi, 0x20000
    again: mov rax, [0x8000]
    mov [rdi], rax
    add rdi, 8
    dec ecx
    jnz again
    hlt
    """
    computer.load(Program.assemble(count), core=0)
    computer.load(Program.assemble(watch, 0x1000), core=1)
    computer.run()
    data = computer.read(0x20000, 8000)
    seen = [int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data), 8)]
    assert seen == sorted(seen)
    assert max(abs(value - i * 5 / 3) for i, value in enumerate(seen)) < 20


class Ipi(Device):
    """A store interrupts the core of that number at once."""

    def __init__(self) -> None:
        super().__init__(8)
        self.times: list[int] = []

    def write(self, offset: int, size: int, value: int) -> None:
        self.times.append(self.now)
        self.interrupt(40, core=value)


def test_an_interrupt_wakes_a_core_when_it_comes() -> None:
    """The core that sleeps has been idle until then: it does not run in the past."""
    computer = Computer(ghz=1.0, cores=2)
    computer.map(Ram(1 << 16), 0)
    ipi = Ipi()
    computer.map(ipi, 0x100000)
    sleep = """
    mov rsp, 0x7000
    lidt [table]
    sti
    hlt
    cli
    hlt
    handler: rdtsc
    mov [0x8000], rax
    iretq
    table: dw 41 * 16 - 1
    dq idt
    align 16
    idt: times 40 dq 0, 0
    dq (handler & 0xffff) | (8 << 16) | (0x8e << 40) | ((handler >> 16) << 48), 0
    """
    wake = "mov ecx, 1000\nagain: dec ecx\n jnz again\n mov qword ptr [0x100000], 1\n hlt"
    computer.load(Program.assemble(sleep, 0x1000), core=1)
    computer.load(Program.assemble(wake, 0x3000), core=0)
    computer.run()
    woken = int.from_bytes(computer.read(0x8000, 8), "little") * 1000
    assert ipi.times[0] == 2_001_000
    assert 0 <= woken - ipi.times[0] < 20_000


def test_a_device_knows_which_core_reaches_it() -> None:
    class Who(Device):
        def write(self, offset: int, size: int, value: int) -> None:
            assert self.computer is not None
            seen.append((value, self.computer.running))

        def read(self, offset: int, size: int) -> int:
            assert self.computer is not None
            return self.computer.running

    seen: list[tuple[int, int]] = []
    computer = Computer(cores=3)
    computer.map(Ram(1 << 16), 0)
    computer.map(Who(8), 0x100000)
    for core in range(3):
        text = "mov ecx, 20\nagain: mov rax, [0x100000]\n mov [0x100000], rax\n" * 1
        computer.load(
            Program.assemble(text + "dec ecx\n jnz again\n hlt", 0x1000 * core), core=core
        )
    computer.run()
    assert len(seen) == 60
    assert all(value == running for value, running in seen)


def test_a_fault_names_the_instruction_of_its_core() -> None:
    computer = Computer(cores=2)
    computer.map(Ram(1 << 16), 0)
    computer.load(Program.assemble("again: jmp again"), core=0)
    computer.load(Program.assemble("nop\n mov al, [0x200000]", 0x1000), core=1)
    with pytest.raises(HostError, match=r"0x1001: mov al, \[0x200000\]: nothing answers"):
        computer.run(instructions=1000)


@pytest.mark.parametrize(("turn_cycles", "seed"), [(0, 0), (-1, 0), (1 << 21, 0), (1, -1)])
def test_turns_that_cannot_be_are_refused(turn_cycles: int, seed: int) -> None:
    with pytest.raises(HostError, match=f"turn_cycles is {turn_cycles} and seed is {seed}"):
        Computer(turn_cycles=turn_cycles, seed=seed)


LOOP = "mov ecx, {}\nagain: dec ecx\n jnz again\n hlt"


def two_loops(first: int, second: int) -> Computer:
    """A computer whose two cores count down from these numbers, at 3 GHz."""
    computer = Computer(cores=2)
    computer.map(Ram(1 << 16), 0)
    for core, times in enumerate((first, second)):
        computer.load(Program.assemble(LOOP.format(times), 0x1000 * (core + 1)), core=core)
    return computer


@pytest.mark.parametrize("loops", [(1000, 30_000), (30_000, 1000)])
def test_a_run_ends_at_the_time_of_the_latest_core(loops: tuple[int, int]) -> None:
    """The core that halts first is idle until then, and a later event is in no core's past."""
    computer = two_loops(*loops)
    computer.run()
    elapsed = (2 * 30_000 + 2) * 1000 // 3
    assert [computer.time_of(core) for core in computer.cores] == [elapsed, elapsed]
    assert computer.now == elapsed
    assert computer.counters.idle_ps == 2 * 29_000 * 1000 // 3
    seen: list[int] = []
    computer.at(computer.now + 1000, lambda: seen.append(computer.now))
    computer.run()
    assert seen == [elapsed + 1000]


@pytest.mark.parametrize("loops", [(1000, 3000), (3000, 1000)])
def test_time_does_not_go_back_between_runs(loops: tuple[int, int]) -> None:
    computer = two_loops(*loops)
    times = []
    for until in (100_000, 1_000_000, 1_500_000, 10**10):
        computer.run(until=until)
        times.append(computer.now)
    assert times == sorted(times)
    assert times[-1] == 6002 * 1000 // 3


def test_machines_let_the_core_that_halts_first_be_idle() -> None:
    machines = Machines()
    computer = machines.computer("left", cores=2)
    computer.map(Ram(1 << 16), 0)
    for core, times in enumerate((1000, 3000)):
        computer.load(Program.assemble(LOOP.format(times), 0x1000 * (core + 1)), core=core)
    machines.run()
    assert computer.now == machines.now == 6002 * 1000 // 3
    assert computer.counters.idle_ps == 2 * 2000 * 1000 // 3


def test_a_step_has_the_time_of_its_core() -> None:
    """The other core has come further: neither the step nor what a device sees is at its time."""
    computer = two_loops(1000, 3000)
    ipi = Ipi()
    computer.map(ipi, 0x100000)
    computer.run()
    computer.load(Program.assemble("mov qword ptr [0x100000], 1\n hlt", 0x4000), core=0)
    computer.cores[1].charge("work", 30_000)
    before = computer.time_of(computer.cores[0])
    step = next(computer.steps())
    assert computer.now > before + 9_000_000
    assert step.at == before == ipi.times[0]
