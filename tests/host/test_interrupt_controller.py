# SPDX-License-Identifier: Apache-2.0
"""Local APICs and the I/O APIC as machine code programs them: masks, priorities, levels, EOI."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.host.interrupt_programs import ENTRY, Handlers, machine
from verbena.host import (
    Computer,
    Device,
    Disk,
    HostError,
    InterruptController,
    Keyboard,
    Program,
    Ram,
    Stop,
    Timer,
)

LOCAL, IO, KEYBOARD, TIMER, DISK = 0xFEE00000, 0xFEC00000, 0x100000, 0x101000, 0x110000


class Button(Device):
    """A device that interrupts when the test says so."""

    def __init__(self) -> None:
        super().__init__(8)


def store(controller: InterruptController, offset: int, value: int) -> None:
    """A store of the core that ran last to its local APIC."""
    controller.computer.store(LOCAL + offset, value.to_bytes(4, "little"))


def set_line(controller: InterruptController, line: int, low: int, core: int = 0) -> None:
    """Writes an entry of the I/O APIC's table, the upper half first."""
    for register, value in ((0x11 + 2 * line, core << 24), (0x10 + 2 * line, low)):
        controller.computer.store(IO, register.to_bytes(4, "little"))
        controller.computer.store(IO + 0x10, value.to_bytes(4, "little"))


def balance(controller: InterruptController) -> tuple[int, int]:
    """What was sent, and what became of it."""
    counters = controller.computer.counters
    merged, refused = counters.interrupts_merged, counters.interrupts_refused
    return counters.interrupts_sent, controller.taken + controller.waiting + merged + refused


# ---- local APICs ----


def test_a_small_driver_s_set_up_and_a_nested_interrupt() -> None:
    """Vector 0x30's handler is interrupted by 0x50, which comes while it runs, and not by 0x3F,
    which is of its own class and waits for EOI."""
    handlers = Handlers(
        {
            0x30: "mov dword ptr [BUTTONS], 0x50\n mov dword ptr [BUTTONS], 0x3f\n sti\n nop\n cli",
            0x50: "",
            0x3F: "",
        }
    )

    class Buttons(Device):
        def write(self, offset: int, size: int, value: int) -> None:
            self.interrupt(value)

    controller = machine(
        "mov dword ptr [BUTTONS], 0x30\n sti\n nop\n cli\n hlt",
        handlers,
        {"BUTTONS": (0x200000, Buttons(8))},
    )
    controller.computer.run()
    assert handlers.order(controller.computer) == ["+30", "+50", "-50", "-30", "+3f", "-3f"]
    assert balance(controller) == (3, 3)


def test_the_task_s_priority_holds_interrupts_back() -> None:
    handlers = Handlers({0x30: ""})
    controller = machine(
        "mov dword ptr [rbp+0x080], 0x30\n sti\n mov ecx, 2000\nagain: dec ecx\n jnz again\n"
        "mov r15d, [rbp+0x210]\n mov dword ptr [rbp+0x080], 0\n nop\n cli\n hlt",
        handlers,
    )
    button = Button()
    controller.computer.map(button, 0x200000)
    controller.computer.at(100_000, lambda: button.interrupt(0x30))
    controller.computer.at(200_000, lambda: button.interrupt(0x30))
    controller.computer.run()
    registers = controller.computer.cores[0].registers
    assert registers.r15 == 1 << 0x30 - 0x20  # of IRR
    assert handlers.order(controller.computer) == ["+30", "-30"]
    assert controller.computer.counters.interrupts_merged == 1
    assert balance(controller) == (2, 2)


def test_without_eoi_no_interrupt_of_the_class_comes_again() -> None:
    handlers = Handlers({0x30: "", 0x31: ""}, ends=False)
    controller = machine("sti\nidle: hlt\n jmp idle", handlers)
    button = Button()
    controller.computer.map(button, 0x200000)
    controller.computer.at(10**6, lambda: button.interrupt(0x30))
    controller.computer.at(2 * 10**6, lambda: button.interrupt(0x31))
    assert controller.computer.run() is Stop.WAITS
    assert handlers.order(controller.computer) == ["+30", "-30"]
    apic = controller.local.apic(0)
    assert (apic.isr, apic.irr) == (1 << 0x30, 1 << 0x31)
    store(controller, 0xB0, 0)
    assert controller.computer.run() is Stop.WAITS
    assert handlers.order(controller.computer)[2:] == ["+31", "-31"]


def test_an_apic_that_is_off_refuses_and_says_what_to_do() -> None:
    computer = Computer()
    computer.map(Ram(1 << 20), 0)
    controller, button = InterruptController(computer), Button()
    computer.map(button, 0x200000)
    button.interrupt(40)
    assert dict(controller.local.refused) == {
        "the APIC of core 0 is off: its driver sets bit 8 at 0xf0": 1
    }
    assert balance(controller) == (1, 1)


def test_the_timer_ticks_by_the_divided_clock() -> None:
    """100 MHz by 16, 625 counts: 100 us. The handler reads the time by the count of the timer."""
    handlers = Handlers({0x40: "inc r14d\n mov r15d, [rbp+0x390]"})
    controller = machine(
        "mov dword ptr [rbp+0x3e0], 3\n mov dword ptr [rbp+0x320], 0x20040\n"
        "mov dword ptr [rbp+0x380], 625\n sti\nidle: hlt\n jmp idle",
        handlers,
    )
    computer = controller.computer
    assert computer.run(until=350 * 10**6) is Stop.TIME
    assert computer.cores[0].registers.r14 == 3
    assert computer.cores[0].registers.r15 == 625
    assert controller.local.read(0x390, 4) in (312, 313)
    computer.store(LOCAL + 0x380, bytes(4))
    assert computer.run() is Stop.WAITS
    assert balance(controller) == (3, 3)


def test_interrupts_between_cores() -> None:
    """Core 0 starts core 1 at 0x8000, and interrupts it; core 1 interrupts all but itself."""
    handlers = Handlers({0x33: "", 0x44: ""})
    controller = machine(
        """
        mov dword ptr [rbp+0x300], 0xc4500     ; INIT to all others
        mov dword ptr [rbp+0x310], 0x1000000
        mov dword ptr [rbp+0x300], 0x608       ; start-up at page 8
        mov dword ptr [rbp+0x300], 0x608       ; once more, as drivers do
again:  cmp qword ptr [0x7000], 1
        jne again
        mov dword ptr [rbp+0x300], 0x33
        sti
        hlt
        cli
        hlt
        """,
        handlers,
        cores=2,
    )
    computer = controller.computer
    second = """
        mov  rsp, 0x7f000
        lidt [0x6f00]
        mov  rbp, 0xfee00000
        mov  dword ptr [rbp+0x0f0], 0x1ff
        mov  qword ptr [0x7000], 1
        sti
        hlt
        cli
        mov dword ptr [rbp+0x300], 0xc0044
        hlt
    """
    computer.write(0x8000, Program.assemble(second, origin=0x8000).code)
    assert computer.run() is Stop.HALT
    assert handlers.order(computer) == ["+33", "-33", "+44", "-44"]
    assert [controller.local.apic(core).taken for core in (0, 1)] == [1, 1]
    assert balance(controller) == (2, 2)


def test_an_interrupt_to_a_core_is_under_way_for_its_time() -> None:
    computer = Computer(cores=2)
    controller = InterruptController(computer, ipi_ns=500)
    store(controller, 0xF0, 0x1FF)
    store(controller, 0x300, 0x40033)  # to itself
    assert controller.local.read(0x300, 4) == 0x41033
    assert controller.waiting == 0
    computer.run()
    assert computer.now == 500_000
    assert controller.local.read(0x300, 4) == 0x40033
    assert controller.local.apic(0).irr == 1 << 0x33


def test_lowest_priority_and_logical_destinations() -> None:
    computer = Computer(cores=3)
    computer.map(Ram(1 << 20), 0)
    controller = InterruptController(computer)
    apics = controller.local
    for core in range(3):
        computer._running = computer.cores[core]
        store(controller, 0xF0, 0x1FF)
        store(controller, 0xD0, 1 << 24 + core)
        store(controller, 0x80, 0x10 * (3 - core) if core else 0x50)
    set_line(controller, 4, 0x30 | 1 << 8 | 1 << 11, core=0b011)  # lowest priority of cores 0, 1
    controller.io.raise_line(4)
    assert [apics.apic(core).irr for core in range(3)] == [0, 1 << 0x30, 0]
    set_line(controller, 5, 0x31 | 1 << 11, core=0b101)
    controller.io.raise_line(5)
    assert [apics.apic(core).irr >> 0x31 & 1 for core in range(3)] == [1, 0, 1]
    set_line(controller, 6, 0x32, core=0xFF)
    controller.io.raise_line(6)
    assert all(apics.apic(core).irr >> 0x32 & 1 for core in range(3))
    sent, became = balance(controller)
    assert sent == became == 6


@pytest.mark.parametrize(
    ("offset", "size", "value", "text"),
    [
        (0xB0, 8, 0, "registers of a local APIC have 4 bytes at multiples of 16"),
        (0xB4, 4, 0, "registers of a local APIC have 4 bytes at multiples of 16"),
        (0x20, 4, 0, "the register at offset 0x20 can only be read"),
        (0x40, 4, 0, "the register at offset 0x40 is none"),
        (0x320, 4, 5, "the timer's entry has vector 5"),
        (0x320, 4, 0x40040, "there is no mode 2"),
        (0x350, 4, 0x700, "nothing is wired to the entry at offset 0x350 of the LVT"),
        (0x300, 4, 0x10, "ICR 0x10 has vector 16"),
        (0x300, 4, 0x440, "ICR 0x440 has delivery mode 4"),
        (0xE0, 4, 0, "logical destinations are flat here"),
    ],
)
def test_what_a_local_apic_has_not_is_named(offset: int, size: int, value: int, text: str) -> None:
    computer = Computer()
    controller = InterruptController(computer)
    store(controller, 0xF0, 0x1FF)
    with pytest.raises(HostError, match=text):
        computer.store(LOCAL + offset, value.to_bytes(size, "little"))


def test_a_computer_has_one_controller_and_at_most_255_cores() -> None:
    computer = Computer()
    InterruptController(computer)
    with pytest.raises(HostError, match="has an interrupt controller already"):
        InterruptController(computer)
    with pytest.raises(HostError, match="at most 255 cores, not 256"):
        InterruptController(Computer(cores=256))


def test_a_timeline_says_what_brought_each_interrupt() -> None:
    handlers = Handlers({0x31: "", 0x32: "", 0x40: "mov dword ptr [rbp+0x300], 0x40032"})
    controller = machine(
        "mov dword ptr [rbp+0x320], 0x40\n mov dword ptr [rbp+0x380], 10\n"
        "sti\nidle: hlt\n jmp idle",
        handlers,
    )
    button = Button()
    controller.computer.map(button, 0x200000)
    controller.io.connect(button, 3)
    set_line(controller, 3, 0x31)
    timeline = controller.computer.timeline()
    controller.computer.at(50_000_000, lambda: button.interrupt(40))
    controller.computer.run()
    seen = [
        (one["name"], one["args"]["by"]) for one in timeline.events() if "by" in one.get("args", {})
    ]
    assert seen == [
        ("interrupt 64", "APIC timer"), ("interrupt 50", "IPI"), ("interrupt 49", "I/O APIC")
    ]  # fmt: skip


# ---- the I/O APIC ----


def lines() -> InterruptController:
    """A computer whose core runs nothing, with its APIC on."""
    computer = Computer()
    computer.map(Ram(1 << 20), 0)
    controller = InterruptController(computer)
    store(controller, 0xF0, 0x1FF)
    return controller


def take(controller: InterruptController) -> int | None:
    """What the core takes; its program is a loop of nothing, and its handlers, too."""
    state = controller.computer.cores[0].state
    return next((one for one in range(255, 31, -1) if state.withdraw(one)), None)


def test_a_shared_level_line_interrupts_until_every_source_lets_go() -> None:
    controller = lines()
    io, apic = controller.io, controller.local.apic(0)
    set_line(controller, 16, 0x51 | ENTRY.LEVEL | ENTRY.ACTIVE_LOW)
    io.raise_line(16, "disk")
    io.raise_line(16, "adapter")
    assert io.sent == 1
    assert take(controller) == 0x51
    assert apic.isr == 1 << 0x51
    assert apic.tmr == 1 << 0x51
    io.lower_line(16, "disk")
    store(controller, 0xB0, 0)  # EOI: the adapter still raises it
    assert io.sent == 2
    assert take(controller) == 0x51
    io.lower_line(16, "adapter")
    store(controller, 0xB0, 0)
    assert io.sent == 2
    assert take(controller) is None
    assert balance(controller) == (2, 2)


def test_remote_irr_is_1_until_eoi() -> None:
    controller = lines()
    computer = controller.computer
    set_line(controller, 16, 0x51 | ENTRY.LEVEL | ENTRY.ACTIVE_LOW)
    controller.io.raise_line(16)
    computer.store(IO, (0x10 + 32).to_bytes(4, "little"))
    assert controller.io.read(0x10, 4) == 0x51 | 0xE000
    take(controller)
    controller.io.lower_line(16)
    store(controller, 0xB0, 0)
    assert controller.io.read(0x10, 4) == 0x51 | 0xA000


def test_edges_of_a_masked_line_are_lost_and_counted_and_a_level_is_not() -> None:
    controller = lines()
    io = controller.io
    io.raise_line(3)
    io.lower_line(3)
    assert io.masked_edges == 1
    set_line(controller, 3, 0x41)
    assert io.sent == 0
    set_line(controller, 4, 0x42 | ENTRY.LEVEL | ENTRY.MASKED)
    io.raise_line(4)
    assert io.sent == 0
    set_line(controller, 4, 0x42 | ENTRY.LEVEL)
    assert io.sent == 1
    assert take(controller) == 0x42


def test_an_edge_while_the_vector_waits_is_merged() -> None:
    controller = lines()
    set_line(controller, 3, 0x41)
    for _ in range(3):
        controller.io.raise_line(3)
        controller.io.lower_line(3)
    assert controller.computer.counters.interrupts_merged == 2
    assert balance(controller) == (3, 3)


def test_a_wrong_polarity_is_an_interrupt_without_a_source() -> None:
    controller = lines()
    set_line(controller, 16, 0x51 | ENTRY.LEVEL)  # the wire is high, and active high
    assert controller.io.sent == 1
    controller.io.raise_line(16)
    take(controller)
    store(controller, 0xB0, 0)
    assert controller.io.sent == 1


def test_a_level_that_no_apic_took_comes_when_one_is_switched_on() -> None:
    computer = Computer()
    controller = InterruptController(computer)
    set_line(controller, 4, 0x42 | ENTRY.LEVEL)
    controller.io.raise_line(4)
    assert computer.counters.interrupts_refused == 1
    store(controller, 0xF0, 0x1FF)
    assert controller.waiting == 1


def test_a_keyboard_s_line_and_a_timer_s_pulse() -> None:
    """The keyboard holds its line until its queue is empty: one key that the handler leaves makes
    another interrupt. The timer's line is a pulse."""
    handlers = Handlers({0x31: "movzx r13d, byte ptr [KEYS]\n inc r14d", 0x42: "inc r12d"})
    keyboard, timer = Keyboard(2), Timer()
    controller = machine(
        "mov byte ptr [KEYS+1], 1\n mov qword ptr [TIMER], 1000\n mov qword ptr [TIMER+8], 1\n"
        "sti\nidle: hlt\n jmp idle",
        handlers,
        {"KEYS": (KEYBOARD, keyboard), "TIMER": (TIMER, timer)},
    )
    computer, io = controller.computer, controller.io
    io.connect(keyboard, 1)
    io.connect(timer, 2)
    set_line(controller, 1, 0x31 | ENTRY.LEVEL)
    set_line(controller, 2, 0x42)
    computer.at(5 * 10**6, lambda: keyboard.press("abc"))
    assert computer.run() is Stop.WAITS
    registers = computer.cores[0].registers
    assert (registers.r12, registers.r14, registers.r13) == (1, 3, ord("c"))
    assert balance(controller) == (4, 4)
    with pytest.raises(HostError, match="has a line already"):
        io.connect(keyboard, 3)
    with pytest.raises(HostError, match="has no line 24: 0 to 23"):
        io.connect(Keyboard(), 24)
    other = Keyboard()
    Computer().map(other, 0)
    with pytest.raises(HostError, match="is in another computer"):
        io.connect(other, 3)


def test_two_disks_share_a_level_line_and_the_handler_asks_each() -> None:
    handlers = Handlers(
        {
            0x51: "mov rax, [FIRST+0x20]\n cmp rax, 3\n jne other\n inc r13d\n"
            "other: mov rax, [SECOND+0x20]\n cmp rax, 3\n jne over\n inc r14d\nover:"
        }
    )
    disks = {
        "FIRST": (DISK, Disk(bytes(4096), latency_us=10)),
        "SECOND": (DISK + 0x20000, Disk(bytes(4096), latency_us=10.001)),
    }
    begin = "".join(
        f"mov rbx, {name}\n mov qword ptr [rbx+0x28], 1\n mov qword ptr [rbx+0x10], 1\n"
        "mov qword ptr [rbx+0x18], 0x40000\n mov qword ptr [rbx], 2\n"
        for name in disks
    )
    controller = machine(begin + "sti\nidle: hlt\n jmp idle", handlers, disks)
    for _, disk in disks.values():
        controller.io.connect(disk, 16)
    set_line(controller, 16, 0x51 | ENTRY.LEVEL | ENTRY.ACTIVE_LOW)
    assert controller.computer.run() is Stop.WAITS
    registers = controller.computer.cores[0].registers
    assert (registers.r13, registers.r14) == (1, 1)
    assert balance(controller)[0] == balance(controller)[1]


@pytest.mark.parametrize(
    ("register", "value", "text"),
    [
        (0x12, 5, "line 1 gets delivery mode 0 and vector 5"),
        (0x12, 0x741, "line 1 gets delivery mode 7 and vector 65"),
        (0x40, 0, "registers 0 and 0x10 to 0x3f"),
        (1, 0, "registers 0 and 0x10 to 0x3f"),
    ],
)
def test_what_an_io_apic_has_not_is_named(register: int, value: int, text: str) -> None:
    computer = lines().computer
    computer.store(IO, register.to_bytes(4, "little"))
    with pytest.raises(HostError, match=text):
        computer.store(IO + 0x10, value.to_bytes(4, "little"))


def test_the_io_apic_s_own_registers() -> None:
    controller = lines()
    computer, io = controller.computer, controller.io
    computer.store(IO, bytes(4))
    computer.store(IO + 0x10, (7 << 24).to_bytes(4, "little"))
    assert io.read(0x10, 4) == 7 << 24
    computer.store(IO, (1).to_bytes(4, "little"))
    assert io.read(0x10, 4) == 0x170011
    with pytest.raises(HostError, match="a load of 8 bytes at offset 0x10"):
        io.read(0x10, 8)
    with pytest.raises(HostError, match="active_low has"):
        InterruptController(Computer(), active_low=[24])


# ---- random courses ----

BUSY = 0x7100  # address of how long handlers work, and of TPR
VECTORS = (0x30, 0x31, 0x3F, 0x45, 0x46, 0x80, 0xF1)
RAISES = st.lists(
    st.tuples(st.integers(0, 60_000), st.sampled_from(VECTORS)), min_size=1, max_size=40
)


@settings(max_examples=60)
@given(
    raises=RAISES, cores=st.integers(1, 2), busy=st.integers(0, 40), tpr=st.sampled_from([0, 0x30])
)
def test_handlers_nest_by_priority_and_every_interrupt_is_seen_or_merged(
    raises: list[tuple[int, int]], cores: int, busy: int, tpr: int
) -> None:
    """Handlers let others interrupt them. One that begins is of a higher class than those that are
    not over, and what was sent has been taken, merged, or waits for TPR."""
    handlers = Handlers(
        {
            one: f"push rcx\n sti\n mov ecx, [{BUSY}]\nwork_{one}: dec ecx\n jnz work_{one}\n cli\n"
            "pop rcx"
            for one in VECTORS
        }
    )
    controller = machine(
        f"mov eax, [{BUSY + 4}]\n mov [rbp+0x80], eax\n sti\nidle: hlt\n jmp idle",
        handlers,
        cores=cores,
    )
    controller.computer.write(BUSY, (busy + 1).to_bytes(4, "little") + tpr.to_bytes(4, "little"))
    button = Button()
    computer = controller.computer
    computer.map(button, 0x200000)
    for time, vector in raises:
        computer.at(1_000_000 + time * 10, lambda vector=vector: button.interrupt(vector))  # type: ignore[misc]
    assert computer.run() is Stop.WAITS
    sent, became = balance(controller)
    assert sent == became == len(raises)
    open_ones: list[int] = []
    for note in handlers.order(computer):
        vector = int(note[1:], 16)
        if note[0] == "+":
            assert vector >> 4 > max([tpr, *open_ones]) >> 4
            open_ones.append(vector)
        else:
            assert open_ones.pop() == vector
    assert not open_ones
    waiting = controller.local.apic(0).irr
    assert all(not waiting >> one & 1 for one in range(tpr + 16, 256))
    assert controller.local.apic(0).taken == len(handlers.order(computer)) // 2


@given(st.lists(st.tuples(st.sampled_from(["raise", "lower", "take", "eoi", "mask", "unmask"]),
                          st.sampled_from("abc")), max_size=40))  # fmt: skip
def test_a_shared_level_line_is_never_forgotten(actions: list[tuple[str, str]]) -> None:
    """Once everything was taken and ended, a source that still raises the line has its interrupt
    waiting, and a line that nobody raises has none."""
    controller = lines()
    set_line(controller, 16, 0x51 | ENTRY.LEVEL | ENTRY.ACTIVE_LOW)
    raised: set[str] = set()
    for name, source in actions:
        if name == "raise":
            controller.io.raise_line(16, source)
            raised.add(source)
        elif name == "lower":
            controller.io.lower_line(16, source)
            raised.discard(source)
        elif name == "take":
            take(controller)
        elif name == "eoi":
            store(controller, 0xB0, 0)
        else:
            masked = ENTRY.MASKED if name == "mask" else 0
            set_line(controller, 16, 0x51 | ENTRY.LEVEL | ENTRY.ACTIVE_LOW | masked)
    set_line(controller, 16, 0x51 | ENTRY.LEVEL | ENTRY.ACTIVE_LOW)
    for _ in range(2):  # what waits or is in service may be of before
        take(controller)
        store(controller, 0xB0, 0)
    assert controller.waiting == bool(raised)
    assert balance(controller)[0] == balance(controller)[1]
