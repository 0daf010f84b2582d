# SPDX-License-Identifier: Apache-2.0
"""Makes the environment in which a program runs over Verbena, as `verbena run` sets it.

    subprocess.run(["ibv_devices"], env=verbena.launch.environment())

The commands of `verbena` call this, and so may any Python program.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from verbena import _fault_rules, _native, fault

PATHS_LIBRARY = "libverbena_paths.so"
HEAP_LIBRARY = "libverbena_heap.so"
VERBS_LIBRARY = "libibverbs.so.1"
PORTS_EXAMPLE = "ethernet,netdev=eth0;infiniband,lid=8,lmc=1,pkeys=0xffff+0x8001"
PKEYS_MOST, PORTS_MOST = 32, 2  # hca/layout.h
DEVICES_MOST = 8  # port/gid.h
NETDEV_MOST = 15  # bytes of an interface's name: IF_NAMESIZE without the final zero
NUMBER = re.compile("0[xX][0-9a-fA-F]{1,5}|[0-9]{1,5}")
COMMAND = "VERBENA_COMMAND"  # which command started the program: dropin/settings.h
CAPTURE_BYTES = range(64, 4352 + 1)  # wrap/capture.h

# The variables that the options of environment() set.
OPTION_VARIABLES = frozenset(
    f"VERBENA_{name}"
    for name in ("LOG", "SPIN_US", "PART_ID", "NETDEV", "LINK_LAYER", "PKEYS", "PORTS", "DEVICES",
                 "FAULT", "FAULT_RECORDS", "CAPTURE", "CAPTURE_DIRECT", "CAPTURE_BYTES")
)  # fmt: skip


class LogLevel(StrEnum):
    """How much Verbena's libraries print on stderr."""

    ERRORS = "errors"
    INFO = "info"
    COUNTERS = "counters"
    DEBUG = "debug"


class LinkLayer(StrEnum):
    """The values of VERBENA_LINK_LAYER. Ethernet means RoCE."""

    ETHERNET = "ethernet"
    INFINIBAND = "infiniband"


def environment(
    base: Mapping[str, str] | None = None,
    *,
    shared_heap: bool = False,
    log: LogLevel | str | None = None,
    spin_us: int | None = None,
    netdev: str | None = None,
    link_layer: LinkLayer | str | None = None,
    pkeys: Sequence[int] | None = None,
    ports: Sequence[str] | None = None,
    devices: int | Sequence[Sequence[str]] | None = None,
    part_id: int | None = None,
    faults: str | None = None,
    capture: str | os.PathLike[str] | None = None,
    capture_direct: bool = False,
    capture_bytes: int | None = None,
) -> dict[str, str]:
    """Return `base` (by default this process's environment), changed so that a program uses
    Verbena.

    `shared_heap` serves the program's large allocations from shared memory. `spin_us` is how long a
    wait for a completion event spins before it sleeps, in microseconds. `netdev` is the interface
    whose addresses are the device's GIDs. `link_layer` is that of the port: an InfiniBand port has
    a LID and reaches only this host. `pkeys` is the port's P_Key table, whose entries a QP's
    pkey_index selects: the bit 0x8000 makes a full member of the partition. `ports` are one or two
    ports in place of `link_layer`: each is "ethernet" or "infiniband" with its settings, as
    "infiniband,lid=8,lmc=1,pkeys=0xffff+0x8001" or "ethernet,netdev=eth0". `devices` is how
    many devices there are, verbena0, verbena1 and so on, all with the same ports; or it is a list
    with the `ports` of each device, which may be empty for one port of `link_layer`.

    `part_id` is the vendor_part_id that the device reports, by which some programs choose features.
    `faults` are fault rules (verbena.fault). `capture` is a file for the packets: an earlier
    capture in it is continued, see verbena.capture.begin; `capture_direct` also records direct
    requests, which send no packets; `capture_bytes` is how much of each packet is kept.

    Applied to its own result the function changes nothing more. Raises FileNotFoundError when
    Verbena's libraries are missing and ValueError when a value is not valid.
    """
    changed = dict(os.environ if base is None else base)
    folder = _native.library_dir()
    names = [PATHS_LIBRARY, VERBS_LIBRARY, *([HEAP_LIBRARY] if shared_heap else [])]
    ours = [preload_name(_native.library(name)) for name in names]
    preload = [*_native.sanitizer_preload(), *ours]
    applied = ours[0] in split_preload(changed.get("LD_PRELOAD", ""))
    prepend(changed, "LD_PRELOAD", preload, " :")
    changed["ASAN_OPTIONS"] = behind_ours(changed.get("ASAN_OPTIONS", ""), applied)
    prepend(changed, "LD_LIBRARY_PATH", [str(folder)], ":")
    prepend(changed, "PATH", [str(programs_dir(folder))], ":")
    changed.update(settings(log, spin_us, part_id))
    changed.update(port_settings(netdev, link_layer, pkeys, ports, devices))
    changed.update(packet_settings(faults, capture, capture_direct, capture_bytes))
    _fault_rules.put_beside(changed)
    return changed


def behind_ours(options: str, applied: bool) -> str:
    """Return AddressSanitizer's options with verify_asan_link_order=0 behind them.

    A program that the started one starts may be built with AddressSanitizer; without that option it
    ends at once where the sanitizer's runtime is not the first library.

    `applied` says that Verbena is preloaded already. Options that end with ours are then taken for
    ours. Otherwise they are the user's and get ours in addition, so that without() removes only
    that.
    """
    if ORDER in options and (applied or not options.endswith(ORDER_IS_FREE)):
        return options
    return f"{options}:{ORDER_IS_FREE}".lstrip(":")


def in_front(environment: dict[str, str], libraries: Iterable[str]) -> None:
    """Have the dynamic linker load these before Verbena's, as a sanitizer's runtime requires."""
    ours = split_preload(environment["LD_PRELOAD"])
    environment["LD_PRELOAD"] = " ".join(before(libraries, ours))


ORDER = "verify_asan_link_order"
ORDER_IS_FREE = f"{ORDER}=0"


def settings(
    log: LogLevel | str | None, spin_us: int | None, part_id: int | None
) -> dict[str, str]:
    """Return the variables that the libraries read."""
    found: dict[str, str] = {}
    if log is not None:
        found["VERBENA_LOG"] = str(LogLevel(log))
    if spin_us is not None:
        if spin_us < 0:
            raise ValueError(f"spin_us is a time of 0 or more microseconds, not {spin_us}")
        found["VERBENA_SPIN_US"] = str(spin_us)
    if part_id is not None:
        if not 0 <= part_id < 2**32:
            raise ValueError(f"part_id is a number of 32 bits, not {part_id}")
        found["VERBENA_PART_ID"] = str(part_id)
    return found


def check_pkeys(pkeys: Sequence[int]) -> None:
    """Raises ValueError when this is no P_Key table."""
    if not 1 <= len(pkeys) <= PKEYS_MOST:
        raise ValueError(f"a P_Key table has 1 to {PKEYS_MOST} entries, not {len(pkeys)}")
    for pkey in pkeys:
        if not 0 < pkey <= 0xFFFF or pkey == 0x8000:
            raise ValueError(
                f"{pkey:#06x} is no P_Key: it is from 0x0001 to 0xffff, and 0x8000 alone is none"
            )


def check_port(port: str) -> None:
    """Raises ValueError when this describes no port (src/native/port/ports.h)."""
    layer, *words = port.split(",")
    if layer not in {each.value for each in LinkLayer}:
        raise ValueError(f"a port is ethernet or infiniband, not {layer!r}")
    known = {"pkeys"} | ({"lid", "lmc"} if layer == LinkLayer.INFINIBAND else {"netdev"})
    for word in words:
        if not word:
            raise ValueError(
                f"{port} is not understood; it may be one port, or two as in {PORTS_EXAMPLE}; "
                "`verbena run --port` takes one at a time"
            )
        name, _, value = word.partition("=")
        if name not in known:
            raise ValueError(f"{name!r}: an {layer} port has {', '.join(sorted(known))}")
        check_port_value(name, value)
    lid, lmc = (setting_of(port, name) or 0 for name in ("lid", "lmc"))
    if lid % (1 << lmc):
        raise ValueError(f"lid={lid}: with lmc={lmc} it is a multiple of {1 << lmc}")


def setting_of(port: str, name: str) -> int | None:
    """Return a numeric setting of a valid port, or None; the last one counts if there are two."""
    words = [word.partition("=") for word in port.split(",")]
    return next((number(name, value) for key, _, value in reversed(words) if key == name), None)


def check_port_value(name: str, value: str) -> None:
    """Raises ValueError when a setting of a port cannot have this value."""
    ranges = {"lid": range(1, 0xBFFF + 1), "lmc": range(8)}
    if name == "netdev" and not (
        0 < len(os.fsencode(value)) <= NETDEV_MOST and not {*";/"} & {*value}
    ):
        raise ValueError(f"netdev={value!r} is the name of no interface")
    if name == "pkeys":
        check_pkeys([number(name, word) for word in value.split("+")])
    if name in ranges and number(name, value) not in ranges[name]:
        raise ValueError(f"{name} is from {ranges[name][0]} to {ranges[name][-1]}, not {value}")


def number(name: str, value: str) -> int:
    """Parse a number as the library does (src/native/port/ports.c): decimal, or 0x and
    hexadecimal."""
    if not NUMBER.fullmatch(value):
        raise ValueError(f"{name}={value}: {value!r} is not a number, as 8 or 0x8 is")
    return int(value, 16 if value[1:2] in ("x", "X") else 10)


def check_lids(devices: Sequence[Sequence[str]]) -> None:
    """Raises ValueError when two InfiniBand ports have a LID in common."""
    owner: dict[int, str] = {}
    for number, ports in enumerate(devices):
        for place, port in enumerate(ports, 1):
            if port.split(",")[0] != LinkLayer.INFINIBAND:
                continue
            name = f"port {place}{f' of verbena{number}' if len(devices) > 1 else ''}"
            lids = 1 << (setting_of(port, "lmc") or 0)
            first = setting_of(port, "lid") or (number * PORTS_MOST + place) * lids
            for lid in range(first, first + lids):
                if owner.setdefault(lid, name) != name:
                    raise ValueError(
                        f"the LID {lid} is of {owner[lid]} and of {name}: give one of them "
                        "another lid"
                    )


def check_ports(ports: Sequence[str], link_layer: LinkLayer | str | None) -> None:
    """Raises ValueError when a device cannot have these ports."""
    if link_layer is not None:
        raise ValueError("ports have link layers of their own: leave link_layer out")
    if not 1 <= len(ports) <= PORTS_MOST:
        raise ValueError(f"an adapter has 1 to {PORTS_MOST} ports, not {len(ports)}")
    for port in ports:
        check_port(port)


def device_settings(
    link_layer: LinkLayer | str | None,
    ports: Sequence[str] | None,
    devices: int | Sequence[Sequence[str]] | None,
) -> dict[str, str]:
    """The variables about the devices and the link layers of their ports."""
    usual = [LinkLayer(link_layer or LinkLayer.ETHERNET)]
    count = devices if isinstance(devices, int) else 1 if devices is None else len(devices)
    if not 1 <= count <= DEVICES_MOST:
        raise ValueError(f"there are 1 to {DEVICES_MOST} devices, not {count}")
    found = {} if devices is None else {"VERBENA_DEVICES": str(count)}
    if devices is None or isinstance(devices, int):
        described = [] if ports is None else [ports]
    elif ports is None:
        described = [*devices]
    else:
        raise ValueError("each device has ports of its own: leave ports out")
    for each in described:
        if each or ports is not None:
            check_ports(each, link_layer)
    every = [each or usual for each in described] or [usual]
    check_lids([*every, *every[-1:] * (count - len(every))])
    if link_layer is not None:
        found["VERBENA_LINK_LAYER"] = usual[0]
    if described:
        found["VERBENA_PORTS"] = "/".join(";".join(each) for each in every)
    return found


def port_settings(
    netdev: str | None,
    link_layer: LinkLayer | str | None,
    pkeys: Sequence[int] | None,
    ports: Sequence[str] | None,
    devices: int | Sequence[Sequence[str]] | None,
) -> dict[str, str]:
    """Return the variables about the devices and their ports. Raises ValueError."""
    found = device_settings(link_layer, ports, devices)
    if netdev is not None:
        if not netdev:
            raise ValueError("netdev is the name of an interface, not nothing")
        found["VERBENA_NETDEV"] = netdev
    if pkeys is not None:
        check_pkeys(pkeys)
        found["VERBENA_PKEYS"] = ",".join(f"{pkey:#06x}" for pkey in pkeys)
    return found


def packet_settings(
    faults: str | None,
    capture: str | os.PathLike[str] | None,
    capture_direct: bool,
    capture_bytes: int | None,
) -> dict[str, str]:
    """Return the variables about packets. Raises ValueError."""
    found: dict[str, str] = {}
    if faults is not None:
        fault.check(faults)
        found[_fault_rules.WORDS_VARIABLE] = faults
    if capture is not None:
        found["VERBENA_CAPTURE"] = os.path.abspath(capture)
    elif capture_direct or capture_bytes is not None:
        raise ValueError("there is no file to capture into")
    if capture_direct:
        found["VERBENA_CAPTURE_DIRECT"] = "yes"
    if capture_bytes is not None:
        if capture_bytes not in CAPTURE_BYTES:
            least, most = CAPTURE_BYTES[0], CAPTURE_BYTES[-1]
            raise ValueError(f"capture_bytes is from {least} to {most}, not {capture_bytes}")
        found["VERBENA_CAPTURE_BYTES"] = str(capture_bytes)
    return found


def without(base: Mapping[str, str]) -> dict[str, str]:
    """Return `base` without what environment() adds: the libraries, and the variables of its
    options.

    Other entries of LD_PRELOAD and of paths stay unchanged. Raises FileNotFoundError when Verbena's
    libraries are missing.
    """
    folder = _native.library_dir()
    libraries = (PATHS_LIBRARY, VERBS_LIBRARY, HEAP_LIBRARY)
    ours = [preload_name(_native.library(name)) for name in libraries]
    kept = {name: value for name, value in base.items() if name not in (*OPTION_VARIABLES, COMMAND)}
    asan = kept.get("ASAN_OPTIONS", "")
    if asan.endswith(ORDER_IS_FREE) and ours[0] in split_preload(kept.get("LD_PRELOAD", "")):
        keep(kept, "ASAN_OPTIONS", asan.removesuffix(ORDER_IS_FREE).removesuffix(":"))
    for variable, words, separators in (
        ("LD_PRELOAD", ours, " :"),
        ("LD_LIBRARY_PATH", [str(folder)], ":"),
        ("PATH", [str(programs_dir(folder))], ":"),
    ):
        old = kept.get(variable, "")
        new = taken_out(old, words, separators)
        if new != old:
            keep(kept, variable, new)
    return kept


def keep(kept: dict[str, str], variable: str, value: str) -> None:
    """Set a variable that is a list; remove it if the list is empty."""
    kept[variable] = value
    if not value:
        del kept[variable]


def taken_out(value: str, words: Iterable[str], separators: str) -> str:
    """Return a list without some words; the rest is not changed."""
    ours = "|".join(map(re.escape, words))
    found = re.sub(f"(?:^|(?<=[{separators}]))(?:{ours})(?:[{separators}]|$)", "", value)
    return found[:-1] if re.search(f"[{separators}](?:{ours})$", value) else found


def programs_dir(folder: Path) -> Path:
    """Return the folder with programs that replace the system's, such as rdma."""
    return folder / "bin"


def preload_name(library: Path) -> str:
    """Return how LD_PRELOAD names a library: by path, unless the path has a separator of
    LD_PRELOAD.

    A bare name is found through LD_LIBRARY_PATH, where only ":" and ";" separate.
    """
    path = str(library)
    if any(character in path for character in ":;"):
        raise ValueError(
            f"The dynamic linker cannot be told of {path}: its path has a ':' or ';'. "
            "Install Verbena in a folder without them."
        )
    return library.name if any(character.isspace() for character in path) else path


def split_preload(value: str) -> list[str]:
    return value.replace(":", " ").split()


def before(first: Iterable[str], rest: Iterable[str]) -> list[str]:
    """Return `first` and then `rest`, each name once."""
    return list(dict.fromkeys([*first, *rest]))


def prepend(changed: dict[str, str], variable: str, words: list[str], separators: str) -> None:
    """Move words to the front of a list; the rest is not changed."""
    rest = taken_out(changed.get(variable, ""), words, separators)
    changed[variable] = separators[0].join([*words, rest] if rest else words)
