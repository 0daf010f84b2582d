# SPDX-License-Identifier: Apache-2.0
"""Receive livelock and its cure: one core passes packets on, by interrupts or by polling."""

from random import Random

from verbena.host.receive_path import (
    Work,
    poisson,
    receive_by_interrupts,
    receive_by_polling,
)

# Times in us: the interrupt takes most of a packet's, as in the routers of 1996.
work = Work(interrupt=166.7, packet=46.1)
polled = Work(interrupt=10, packet=166.7 + 46.1, round_=5, ring=32)

print("offered a second   out by interrupts   out by polling   left to programs")
for rate in (2000, 4000, 5000, 5500, 6000, 12000):
    packets = list(poisson(rate, 20_000, Random(1)))
    old = receive_by_interrupts(packets, work, Random(2))
    new = receive_by_polling(packets, polled, Random(2), quota=10, share=0.9)
    print(
        f"{rate:16,} {old.out_per_second:19,.0f} {new.out_per_second:16,.0f}"
        f"   {new.user / new.ended:16.0%}"
    )
