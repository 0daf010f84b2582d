# SPDX-License-Identifier: Apache-2.0
"""Receive livelock and its cure: one core passes packets on, by interrupts or by polling."""

from random import Random

from verbena.host.cost_list import TIME, TIMES, ListedCost
from verbena.host.receive_path import (
    Received,
    Work,
    poisson,
    receive_by_interrupts,
    receive_by_polling,
)
from verbena.host.used_costs import UsedCost, UsedCosts

ROUTERS = (
    "fitted to routers of 1996: 4,700 packets a second at most, none from 6,000 on (Mogul and "
    "Ramakrishnan, USENIX; from memory)"
)
CHOSEN = "chosen for this example"
# Times in us: the interrupt takes most of a packet's, as in the routers of 1996.
work = Work(interrupt=166.7, packet=46.1)
polled = Work(interrupt=10, packet=166.7 + 46.1, round_=5, ring=32)

interrupted, rounds = Received(), Received()
print("offered a second   out by interrupts   out by polling   left to programs")
for rate in (2000, 4000, 5000, 5500, 6000, 12000):
    packets = list(poisson(rate, 20_000, Random(1)))
    old = receive_by_interrupts(packets, work, Random(2))
    new = receive_by_polling(packets, polled, Random(2), quota=10, share=0.9)
    print(
        f"{rate:16,} {old.out_per_second:19,.0f} {new.out_per_second:16,.0f}"
        f"   {new.user / new.ended:16.0%}"
    )
    for total, one in ((interrupted, old), (rounds, new)):
        total.interrupts += one.interrupts
        total.out += one.out
        total.rounds += one.rounds

costs = (
    ("interrupt", work.interrupt, "interrupt and driver, by interrupts", ROUTERS,
     interrupted.interrupts),
    ("packet", work.packet, "packet behind its interrupt", ROUTERS, interrupted.out),
    ("interrupt_polled", polled.interrupt, "interrupt, by polling", CHOSEN, rounds.interrupts),
    ("round_polled", polled.round_, "call of the poll function", CHOSEN, rounds.rounds),
    ("packet_polled", polled.packet, "packet with its driver, by polling", ROUTERS, rounds.out),
)  # fmt: skip
used = UsedCosts(
    UsedCost(ListedCost(name, TIME, each, "us", per, source), count, TIMES)
    for name, each, per, source, count in costs
)
print(f"\nCosts that were used\n{used.text(width=100)}")
