# SPDX-License-Identifier: Apache-2.0
"""A packet's way through three autonomous systems, and what policies forbid when links are cut.

Berlin (64501) and Rome (64503) buy transit from Paris (64502), and are peers of each other.
"""

from verbena.internet import Internet
from verbena.internet.autonomous_systems import AutonomousSystems

net = Internet(seed=1)
systems = AutonomousSystems(net)
for number, city in enumerate(("berlin", "paris", "rome"), 1):
    core, border, host = (f"{city}-{kind}" for kind in ("core", "border", "host"))
    net.router(core)
    net.router(border)
    net.host(host)
    net.network(f"10.{number}.0.0/24", core, host)
    net.network(f"10.{number}.1.0/24", core, border)
    interior = "distance vector" if city == "paris" else "link state"
    systems.add(64500 + number, core, border, interior=interior)
systems.provide("paris-border", "berlin-border", delay_us=4000)
systems.provide("paris-border", "rome-border", delay_us=5000)
systems.peer("berlin-border", "rome-border", delay_us=6000, mtu=1000)


def show(title: str, source: str, destination: str) -> None:
    net.converge()
    hops = net.traceroute(source, destination)
    path = systems.crossed(hop.sender for hop in hops)
    print(f"{title}: {source} to {destination}, systems {path}")
    for hop in hops:
        print(hop)


show("all links work", "berlin-host", "rome-host")
print("largest packet:", net.path_mtu("berlin-host", "rome-host").mtu, "bytes")
net.links["berlin-border-rome-border"].cut()
show("without the peering", "berlin-host", "rome-host")
print("largest packet:", net.path_mtu("berlin-host", "rome-host").mtu, "bytes")
net.links["berlin-border-rome-border"].restore()
net.links["paris-border-rome-border"].cut()
show("Berlin is no transit", "paris-host", "rome-host")
