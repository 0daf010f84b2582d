# SPDX-License-Identifier: Apache-2.0
"""Interrupt moderation: fewer interrupts for a later answer, by an Ethernet adapter's timer."""

from random import Random

from verbena.host import Computer, EthernetAdapter, Pcie, Ram
from verbena.host.nic import ENABLE, RX_RING, RX_SIZE, RX_TAIL, TIME
from verbena.host.used_costs import costs_of

RING, BUFFERS, ADAPTER = 0x10000, 0x20000, 0x10000000


def interrupts_a_second(computer: Computer, packets_a_us: float, time_us: int) -> float:
    adapter = EthernetAdapter()
    computer.map(Ram(1 << 20), 0)
    computer.map(adapter, ADAPTER, pcie=Pcie())
    for number in range(64):
        buffer = BUFFERS + number * 0x2400
        computer.write(RING + number * 16, buffer.to_bytes(8, "little"))
    settings = {RX_RING: RING, RX_SIZE: 64, RX_TAIL: 64, TIME: time_us * 1000, ENABLE: 1}
    for register, value in settings.items():
        adapter.write(register, 8, value)

    def arrive() -> None:
        adapter.write(RX_TAIL, 8, adapter.received + 48)  # descriptors go back to the ring
        adapter.arrive(bytes(60))

    at, random = 0.0, Random(1)
    for _ in range(2000):
        at += random.expovariate(packets_a_us) * 1e6  # ps
        computer.at(round(at), arrive)
    computer.run()
    return adapter.interrupts / at * 1e12


computers = []
print("packets a us   no timer      8 us     50 us   interrupts a second")
for rate in (0.1, 1.0):
    new = [Computer() for _ in range(3)]
    times = zip(new, (0, 8, 50), strict=True)
    row = [interrupts_a_second(computer, rate, time) for computer, time in times]
    print(f"{rate:12}" + "".join(f"{one:10,.0f}" for one in row))
    computers += new
print(f"\nCosts that were used\n{costs_of(*computers).text(width=100)}")
