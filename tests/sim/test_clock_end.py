# SPDX-License-Identifier: Apache-2.0
"""Programs that wait beyond the end of a simulated clock, and names that an internet lacks."""

from __future__ import annotations

import asyncio
import socket

import pytest

from verbena import fabrics, sim
from verbena.internet import Internet


def pair() -> Internet:
    net = Internet()
    net.link(net.host("a"), net.host("b"))
    return net


async def sleep(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return asyncio.get_running_loop().time()


def test_a_sleep_beyond_the_clock_says_where_it_ends() -> None:
    text = r"the next timer is at 1e\+07 s, .* ends at 9223372 s .* at most 9000000 s"
    with pytest.raises(sim.Deadlock, match=text):
        sim.run({"a": lambda: sleep(1e7)}, pair())
    with pytest.raises(sim.Deadlock, match=text):
        sim.run({"h1": lambda: sleep(1e7)}, fabrics.ring(3))
    assert sim.run({"a": lambda: sleep(9e6)}, pair()).returned["a"] == 9e6


def test_a_timeout_beyond_the_clock_is_none() -> None:
    async def program() -> int:
        return await asyncio.wait_for(asyncio.sleep(1, 5), 1e9)

    assert sim.run({"a": program}, pair()).returned["a"] == 5


def test_a_deadlock_without_timers_does_not_speak_of_the_clock() -> None:
    async def program() -> None:
        await asyncio.Event().wait()

    with pytest.raises(sim.Deadlock) as caught:
        sim.run({"a": program}, pair())
    assert "a simulated clock ends" not in str(caught.value)


def test_names_and_addresses_that_an_internet_lacks() -> None:
    async def look_up(name: str) -> str:
        loop = asyncio.get_running_loop()
        with pytest.raises(socket.gaierror) as caught:
            await loop.getaddrinfo(name, 7)
        return str(caught.value.strerror)

    found = [sim.run({"a": lambda name=name: look_up(name)}, pair()).returned["a"]
             for name in ("nobody", "::1", "2001:db8::1")]  # fmt: skip
    assert found[0] == "no host of the internet is called 'nobody'"
    assert found[1:] == [
        f"{text} is an address of IPv6, and simulated hosts have no IPv6: use IPv4 or names"
        for text in ("::1", "2001:db8::1")
    ]


def test_a_refused_stream_names_its_port_and_host() -> None:
    async def program() -> str:
        with pytest.raises(ConnectionRefusedError) as caught:
            await asyncio.open_connection("b", 81)
        return str(caught.value.strerror)

    net = pair()
    said = sim.run({"a": program}, net).returned["a"]
    assert said == f"nobody listens at TCP port 81 of {net.address_of('b')}"
