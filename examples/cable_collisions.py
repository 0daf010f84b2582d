# SPDX-License-Identifier: Apache-2.0
"""Stations that always have a frame to send: on one cable, and each on a wire of its own.

All speak to one receiver at 10 Mb/s. On the cable whoever begins before another's signal is there
collides, and waits longer after each further collision, while the one that has just sent begins
anew. Behind a switch nobody collides, and the port to the receiver is shared.
"""

from verbena.lan import Lan, Station

FRAMES, PAYLOAD = 330, 1000  # more than a station can send in a quarter of a second


def all_speak(lan: Lan, receiver: Station, stations: list[Station]) -> str:
    received: dict[bytes, int] = {each.mac: 0 for each in stations}

    def count(frame: bytes) -> None:
        received[frame[6:12]] += 1

    receiver.on_frame = count
    for station in stations:
        for _ in range(FRAMES):
            station.send_to(receiver.mac, bytes(PAYLOAD))
    lan.run(0.25)
    frames = sum(received.values())
    return f"{frames * PAYLOAD * 8 / 0.25e6:.2f} Mb/s, {max(received.values()) / frames:.0%} by one"


def on_a_cable(senders: int, length_m: float = 2000) -> str:
    lan = Lan(seed=1)
    cable = lan.cable(length_m)
    places = [length_m * number / senders for number in range(senders)]
    stations = [lan.station(f"s{at:.0f}", cable, at_m=at, queue=FRAMES) for at in places]
    said = all_speak(lan, lan.station("receiver", cable, at_m=length_m), stations)
    return f"{said}, {cable.collisions} collisions"


def behind_a_switch(senders: int) -> str:
    lan = Lan(seed=1)
    switch = lan.switch("switch", spanning_tree=False)
    receiver, *stations = (
        lan.station(f"s{number}", switch, rate_mbps=10, queue=FRAMES)
        for number in range(senders + 1)
    )
    return all_speak(lan, receiver, stations)


for senders in (1, 2, 8, 32):
    print(f"{senders} on 2 km of cable: {on_a_cable(senders)}")
    print(f"{senders} behind a switch: {behind_a_switch(senders)}")
