# SPDX-License-Identifier: Apache-2.0
"""Parses which devices and ports there are (docs/running.md) into the numbers that the library
reads.

verbena.launch and verbena.verbs call this. The library does not parse text: vb_port_devices_read
(src/native/port/ports.c) checks the numbers, and its version and order of fields must be the ones
here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeVar

PORTS_VARIABLE, DEVICES_VARIABLE = "VERBENA_PORTS", "VERBENA_DEVICES"
PKEYS_VARIABLE, LAYER_VARIABLE = "VERBENA_PKEYS", "VERBENA_LINK_LAYER"
NETDEV_VARIABLE = "VERBENA_NETDEV"
RECORDS_VARIABLE = "VERBENA_PORT_RECORDS"
# What the records are made of, and their order behind them. They do not have VERBENA_NETDEV, which
# the library reads itself: it holds for the Ethernet ports without a netdev of their own.
SOURCES = (PORTS_VARIABLE, DEVICES_VARIABLE, PKEYS_VARIABLE, LAYER_VARIABLE)
VERSION = 1
EXAMPLE = "ethernet,netdev=eth0;infiniband,lid=8,lmc=1,pkeys=0xffff+0x8001"
PKEYS_MOST, PORTS_MOST = 32, 2  # hca/layout.h
DEVICES_MOST = 8  # port/gid.h
NETDEV_MOST = 15  # bytes of an interface's name: IF_NAMESIZE without the final zero
LIDS, LMCS = range(1, 0xBFFF + 1), range(8)  # beyond are multicast LIDs (IBA 4.1.3)
DEFAULT_TABLE: tuple[int, ...] = (0xFFFF,)  # the default partition alone
NUMBER = re.compile("0[xX][0-9a-fA-F]{1,5}|[0-9]{1,5}")


class LinkLayer(StrEnum):
    """The values of VERBENA_LINK_LAYER. Ethernet means RoCE."""

    ETHERNET = "ethernet"
    INFINIBAND = "infiniband"


class Port(NamedTuple):
    """A port as a text describes it: what that leaves out is None."""

    layer: LinkLayer
    netdev: str | None = None
    lid: int | None = None
    lmc: int | None = None
    pkeys: tuple[int, ...] | None = None

    def lids(self, unit: int) -> range:
        """Return its LIDs; `unit` is its number among all ports of the host's devices, from 1."""
        if self.layer != LinkLayer.INFINIBAND:
            return range(0)
        count = 1 << (self.lmc or 0)
        first = self.lid or unit * count
        return range(first, first + count)

    def record(self, unit: int, pkeys: Sequence[int]) -> str:
        """Return what ports_read_port (port/ports.c) reads; `pkeys` holds without its own."""
        lids, table = self.lids(unit), self.pkeys or pkeys
        numbers = [self.layer == LinkLayer.INFINIBAND, next(iter(lids), 0), self.lmc or 0]
        numbers += [len(table), *table]
        return "".join(f"{number:x} " for number in numbers) + f"{self.netdev or ''},"


Device = list[Port]
T = TypeVar("T")


def number(name: str, value: str) -> int:
    """Parse a number: decimal, or 0x and hexadecimal."""
    if not NUMBER.fullmatch(value):
        raise ValueError(f"{name}={value}: {value!r} is not a number, as 8 or 0x8 is")
    return int(value, 16 if value[1:2] in ("x", "X") else 10)


def check_pkeys(pkeys: Sequence[int]) -> None:
    """Raises ValueError when this is no P_Key table."""
    if not 1 <= len(pkeys) <= PKEYS_MOST:
        raise ValueError(f"a P_Key table has 1 to {PKEYS_MOST} entries, not {len(pkeys)}")
    for pkey in pkeys:
        if not 0 < pkey <= 0xFFFF or pkey == 0x8000:
            raise ValueError(
                f"{pkey:#06x} is no P_Key: it is from 0x0001 to 0xffff, and 0x8000 alone is none"
            )


def parse_pkeys(text: str, between: str) -> tuple[int, ...]:
    """Parse a P_Key table. Raises ValueError."""
    pkeys = tuple(number("pkeys", word) for word in text.split(between))
    check_pkeys(pkeys)
    return pkeys


def count_of_devices(text: str) -> int:
    """Parse the number of devices. Raises ValueError."""
    count = int(text) if text.isascii() and text.isdecimal() else 0
    if not 1 <= count <= DEVICES_MOST:
        raise ValueError(f"{text!r} is not a number of devices from 1 to {DEVICES_MOST}")
    return count


def _parse_netdev(value: str) -> str:
    bad = {*";/,:"} & {*value} or any(map(str.isspace, value))
    if bad or not 0 < len(os.fsencode(value)) <= NETDEV_MOST:
        raise ValueError(f"netdev={value!r} is the name of no interface")
    return value


def _parse_in(name: str, value: str, allowed: range) -> int:
    found = number(name, value)
    if found not in allowed:
        raise ValueError(f"{name} is from {allowed[0]} to {allowed[-1]}, not {value}")
    return found


def parse_port(text: str) -> Port:
    """Parse the description of one port. Raises ValueError, which says what is wrong."""
    layer, *words = text.split(",")
    if ";" in text or "/" in text:
        raise ValueError(f"{text!r} is more than one port; write --port once for each")
    if layer not in {each.value for each in LinkLayer}:
        raise ValueError(f"a port is ethernet or infiniband, not {layer!r}")
    port = Port(LinkLayer(layer))
    known = {"pkeys"} | ({"lid", "lmc"} if layer == LinkLayer.INFINIBAND else {"netdev"})
    for word in words:
        name, _, value = word.partition("=")
        if not word:
            raise ValueError(f"{text} has a comma too many; a port is as those of {EXAMPLE}")
        if NUMBER.fullmatch(word) and port.pkeys is not None:
            example = "+".join(f"{pkey:#06x}" for pkey in port.pkeys) + f"+{word}"
            raise ValueError(f"{word!r}: the P_Keys of a port are joined by +, as pkeys={example}")
        if name not in known:
            raise ValueError(f"{name!r}: an {layer} port has {', '.join(sorted(known))}")
        if getattr(port, name) is not None:
            raise ValueError(f"{text} has {name} twice")
        port = _with(port, name, value)
    lid, lmc = port.lid or 0, port.lmc or 0
    if lid % (1 << lmc):
        raise ValueError(f"lid={lid}: with lmc={lmc} it is a multiple of {1 << lmc}")
    return port


def _with(port: Port, name: str, value: str) -> Port:
    """Return the port with one more setting."""
    match name:
        case "netdev":
            return port._replace(netdev=_parse_netdev(value))
        case "pkeys":
            return port._replace(pkeys=parse_pkeys(value, "+"))
        case "lid":
            return port._replace(lid=_parse_in(name, value, LIDS))
    return port._replace(lmc=_parse_in(name, value, LMCS))


def parse_device(ports: Sequence[str]) -> Device:
    """Parse the ports of a device. Raises ValueError."""
    if not 1 <= len(ports) <= PORTS_MOST:
        raise ValueError(f"an adapter has 1 to {PORTS_MOST} ports, not {len(ports)}")
    return [parse_port(port) for port in ports]


def parse_devices(text: str) -> list[Device]:
    """Parse the value of VERBENA_PORTS. Raises ValueError."""
    described = text.split("/")
    if len(described) > DEVICES_MOST:
        raise ValueError(f"there are 1 to {DEVICES_MOST} devices, not {len(described)}")
    return [parse_device(device.split(";")) for device in described]


def numbered(devices: Sequence[Device]) -> Iterator[tuple[int, str, Port]]:
    """Yield each port with its unit (port/gid.h) and its name in an error."""
    for number, ports in enumerate(devices):
        of_which = f" of verbena{number}" if len(devices) > 1 else ""
        for place, port in enumerate(ports, 1):
            yield number * PORTS_MOST + place, f"port {place}{of_which}", port


def check_lids(devices: Sequence[Device]) -> None:
    """Raises ValueError when two InfiniBand ports have a LID in common."""
    owner: dict[int, tuple[str, Port]] = {}
    for unit, name, port in numbered(devices):
        for lid in port.lids(unit):
            other, described = owner.setdefault(lid, (name, port))
            if other == name:
                continue
            advice = "give one of them another lid"
            if described is port:
                advice = (
                    "one description holds for both: leave lid out, or describe each (--device)"
                )
            raise ValueError(f"the LID {lid} is of {other} and of {name}: {advice}")


class Found(NamedTuple):
    """What the variables ask for, and what is wrong in each that is ignored."""

    devices: list[Device]
    pkeys: tuple[int, ...]
    wrong: dict[str, str]  # by the variable

    def records(self, words: Sequence[str]) -> str:
        """Return what the library reads: numbers, the values that they were made of, each behind
        "|", and after "!" what it prints on stderr."""
        text = f"{VERSION:x} {len(self.devices):x} "
        for device, ports in enumerate(self.devices):
            text += f"{len(ports):x} "
            for place, port in enumerate(ports, 1):
                text += port.record(device * PORTS_MOST + place, self.pkeys)
        text += "".join(f"|{word}" for word in words)
        said = [
            f"{name}={value} is ignored: {self.wrong[name]}"
            for name, value in zip(SOURCES, words, strict=True)
            if name in self.wrong
        ]
        return text + ("!" + "; ".join(said) if said else "")


def link_layer(environment: Mapping[str, str]) -> LinkLayer:
    """Return the link layer of a port that nothing else describes."""
    infiniband = environment.get(LAYER_VARIABLE) == LinkLayer.INFINIBAND
    return LinkLayer.INFINIBAND if infiniband else LinkLayer.ETHERNET


def find(environment: Mapping[str, str]) -> Found:
    """Return which devices the variables ask for. One that is wrong is left out, and `wrong` says
    why."""
    wrong: dict[str, str] = {}

    def parsed(variable: str, parse: Callable[[str], T], usual: T) -> T:
        try:
            return parse(text) if (text := environment.get(variable)) else usual
        except ValueError as error:
            wrong[variable] = str(error)
            return usual

    usual = Port(link_layer(environment))
    pkeys = parsed(PKEYS_VARIABLE, lambda text: parse_pkeys(text, ","), DEFAULT_TABLE)
    least = (environment.get(PORTS_VARIABLE) or "").count("/") + 1
    count = parsed(DEVICES_VARIABLE, lambda text: _count_from(text, least), 0)
    devices = parsed(PORTS_VARIABLE, lambda text: _free_devices(text, count), [[usual]])
    return Found(_filled(devices, count), pkeys, wrong)


def _count_from(text: str, least: int) -> int:
    count = count_of_devices(text)
    if count < least:
        raise ValueError(f"{PORTS_VARIABLE} describes {least} devices, which is more than {count}")
    return count


def _free_devices(text: str, count: int) -> list[Device]:
    """Return the devices that `text` describes, if `count` of them have no LID in common."""
    devices = parse_devices(text)
    check_lids(_filled(devices, count))
    return devices


def _filled(described: list[Device], count: int) -> list[Device]:
    """As many devices as `count`: those that are not described are as the last one that is."""
    return [*described, *described[-1:] * (count - len(described))]


def put_beside(environment: MutableMapping[str, str]) -> None:
    """Set VERBENA_PORT_RECORDS from the variables of ports, or remove it if the library needs none.

    Commands that start a program over Verbena call this, and a Python program does before the
    library reads its environment.
    """
    words = [environment.get(name) or "" for name in SOURCES]
    if not any(words[:-1]):
        environment.pop(RECORDS_VARIABLE, None)
        return
    made = find(environment).records(words)
    if environment.get(RECORDS_VARIABLE) != made:
        environment[RECORDS_VARIABLE] = made
