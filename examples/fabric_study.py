# SPDX-License-Identifier: Apache-2.0
"""A study on a simulated network: how much of a fat tree's capacity do routing engines use?

128 hosts send at once, each to the host `shift` further on. No two flows share a sender or a
receiver, and a fat tree has a path for each, so every flow could have a whole link. ECMP chooses
paths at random and puts several flows on some links; `ftree` spreads destinations evenly.
"""

import numpy as np

from verbena import fabrics
from verbena.sim import World, build

FABRIC = fabrics.fat_tree(8, rate="100GbE", delay_ns=500)
HOSTS = np.arange(128)
SIZE = 1 << 20


def goodput(engine: str, shift: int, seed: int) -> np.ndarray:
    """Gb/s of each flow."""
    world = World(seed=seed)
    build(world, fabrics.route(FABRIC, engine))
    world.add_flows(HOSTS, (HOSTS + shift) % 128, SIZE)
    assert world.run() == "done"
    return SIZE * 8 / (world.flows()["finish"] / 1000)  # times are picoseconds


print("engine  shift  slowest  median  fastest  (Gb/s)")
for engine in ("ecmp", "ftree"):
    for shift in (16, 64):
        rates = np.concatenate([goodput(engine, shift, seed) for seed in range(3)])
        slowest, median, fastest = np.percentile(rates, (0, 50, 100))
        print(f"{engine:6}  {shift:5}  {slowest:7.1f}  {median:6.1f}  {fastest:7.1f}")
