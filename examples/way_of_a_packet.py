# SPDX-License-Identifier: Apache-2.0
"""Three networks, whose routers find the ways: the way of a packet, before and after a cut."""

from verbena.internet import Internet
from verbena.internet.link_state import LinkState

net = Internet(seed=1)
for number, name in enumerate(("berlin", "paris", "rome"), 1):
    net.router(name)
    net.host(f"{name}-host")
    net.network(f"10.{number}.0.0/24", name, f"{name}-host")
net.link("berlin", "paris", delay_us=4000)
net.link("paris", "rome", delay_us=5000)
net.link("rome", "berlin", delay_us=6000, mtu=1000)

for name in ("berlin", "paris", "rome"):
    router = net.node(name)
    protocol = LinkState(router, router.address)
    for interface in router.interfaces:
        protocol.add_interface(interface)


def show(title: str) -> None:
    net.converge()
    print(title)
    for hop in net.traceroute("berlin-host", "rome-host"):
        print(hop)
    print("largest packet:", net.path_mtu("berlin-host", "rome-host").mtu, "bytes")


show("all links work")
net.links["rome-berlin"].cut()
show("the link from Rome to Berlin is cut")
