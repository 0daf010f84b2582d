# SPDX-License-Identifier: Apache-2.0
"""Makes the environment in which a program runs over Verbena, as `verbena run` sets it.

    subprocess.run(["ibv_devices"], env=verbena.launch.environment())

The commands of `verbena` call this, and so may any Python program.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from verbena import _native, _ports
from verbena._ports import LinkLayer as LinkLayer

PATHS_LIBRARY = "libverbena_paths.so"
HEAP_LIBRARY = "libverbena_heap.so"
VERBS_LIBRARY = "libibverbs.so.1"
SPIN_MOST = 1_000_000  # microseconds: dropin/settings.c
FABRIC, HOST = "VERBENA_FABRIC", "VERBENA_HOST"
FAULTS, FAULT_RECORDS = "VERBENA_FAULT", "VERBENA_FAULT_RECORDS"
AGENT = "VERBENA_AGENT"  # the interpreter that runs verbena.agent, or "off"
COMMAND = "VERBENA_COMMAND"  # which command started the program: dropin/settings.h
CAPTURE_BYTES = range(64, 4352 + 1)  # wrap/capture.h

# The variables that the options of environment() set.
OPTION_VARIABLES = frozenset(
    f"VERBENA_{name}"
    for name in ("LOG", "SPIN_US", "PART_ID", "NETDEV", "LINK_LAYER", "PKEYS", "PORTS", "DEVICES",
                 "PORT_RECORDS", "FAULT", "FAULT_RECORDS", "CAPTURE", "CAPTURE_DIRECT",
                 "CAPTURE_BYTES", "FABRIC", "HOST")
)  # fmt: skip


class LogLevel(StrEnum):
    """How much Verbena's libraries print on stderr."""

    ERRORS = "errors"
    INFO = "info"
    COUNTERS = "counters"
    DEBUG = "debug"


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
    fabric: str | None = None,
    host: str | None = None,
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
    with the `ports` of each device, which may be empty for one port of `link_layer`. What is given
    here replaces the variables of an earlier call; `link_layer` replaces `ports`, too.

    `part_id` is the vendor_part_id that the device reports, by which some programs choose features.
    `faults` are fault rules (verbena.fault). `capture` is a file for the packets: an earlier
    capture in it is continued, see verbena.capture.begin; `capture_direct` also records direct
    requests, which send no packets; `capture_bytes` is how much of each packet is kept.

    `fabric` and `host` attach the program to a host of a live fabric, which `verbena fabric` runs;
    its ports are that host's. `verbena run --fabric` gives the right number of `ports` with them.

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
    changed.setdefault(AGENT, sys.executable)
    changed.update(settings(log, spin_us, part_id))
    set_ports(changed, netdev, link_layer, pkeys, ports, devices)
    changed.update(packet_settings(changed, faults, capture, capture_direct, capture_bytes))
    set_fault_records(changed)
    changed.update(
        {name: value for name, value in ((FABRIC, fabric), (HOST, host)) if value is not None}
    )
    return changed


def set_fault_records(changed: dict[str, str]) -> None:
    """Set what the library reads of the fault rules. Programs without rules start sooner."""
    if not changed.get(FAULTS):
        changed.pop(FAULT_RECORDS, None)
        return
    from verbena import _fault_rules

    _fault_rules.put_beside(changed)


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
        if not 0 <= spin_us <= SPIN_MOST:
            raise ValueError(f"spin_us is from 0 to {SPIN_MOST} microseconds, not {spin_us}")
        found["VERBENA_SPIN_US"] = str(spin_us)
    if part_id is not None:
        if not 0 <= part_id < 2**32:
            raise ValueError(f"part_id is a number of 32 bits, not {part_id}")
        found["VERBENA_PART_ID"] = str(part_id)
    return found


def set_ports(
    changed: dict[str, str],
    netdev: str | None,
    link_layer: LinkLayer | str | None,
    pkeys: Sequence[int] | None,
    ports: Sequence[str] | None,
    devices: int | Sequence[Sequence[str]] | None,
) -> None:
    """Set the variables about the devices and their ports.

    What is given here replaces what the variables said. Raises ValueError when a value is not
    valid, or contradicts a variable that it does not replace.
    """
    given = device_settings(changed, link_layer, ports, devices)
    if netdev is not None:
        if not netdev:
            raise ValueError("netdev is the name of an interface, not nothing")
        given[_ports.NETDEV_VARIABLE] = netdev
    if pkeys is not None:
        _ports.check_pkeys(pkeys)
        given[_ports.PKEYS_VARIABLE] = ",".join(f"{pkey:#06x}" for pkey in pkeys)
    if link_layer is not None:  # each device has one port, of this link layer
        changed.pop(_ports.PORTS_VARIABLE, None)
    changed.update(given)
    if given:
        check_together(changed, given)
    _ports.put_beside(changed)


def device_settings(
    base: Mapping[str, str],
    link_layer: LinkLayer | str | None,
    ports: Sequence[str] | None,
    devices: int | Sequence[Sequence[str]] | None,
) -> dict[str, str]:
    """Return the variables about the devices and the link layers of their ports."""
    found: dict[str, str] = {}
    described = None if ports is None else [ports]
    if isinstance(devices, int):
        found[_ports.DEVICES_VARIABLE] = str(_ports.count_of_devices(str(devices)))
    elif devices is not None:
        if ports is not None:
            raise ValueError("each device has ports of its own: leave ports out")
        found[_ports.DEVICES_VARIABLE] = str(_ports.count_of_devices(str(len(devices))))
        usual = str(link_layer or _ports.link_layer(base))
        described = [each or [usual] for each in devices]
        ports = [port for each in devices for port in each] or None
    if link_layer is not None:
        found[_ports.LAYER_VARIABLE] = LinkLayer(link_layer)
        if ports is not None:
            raise ValueError(
                "ports have link layers of their own: leave link_layer (--link-layer) out"
            )
    if described is not None:
        for each in described:
            _ports.parse_device(each)
        found[_ports.PORTS_VARIABLE] = "/".join(";".join(each) for each in described)
    return found


def check_together(changed: Mapping[str, str], given: Mapping[str, str]) -> None:
    """Raises ValueError when the options `given` contradict each other or other variables."""
    inherited = [
        name
        for name in (_ports.PORTS_VARIABLE, _ports.DEVICES_VARIABLE)
        if changed.get(name) and name not in given
    ]
    advice = f" ({' and '.join(inherited)} in the environment: unset it)" if inherited else ""
    found = _ports.find(changed)
    for name, reason in found.wrong.items():
        what = "" if name in given else f"{name}={changed[name]}: "
        raise ValueError(f"{what}{reason}{advice}")
    ports = list(_ports.numbered(found.devices))
    for variable, own in ((_ports.NETDEV_VARIABLE, "netdev"), (_ports.PKEYS_VARIABLE, "pkeys")):
        if variable not in given or _ports.PORTS_VARIABLE not in inherited:
            continue
        for _, port_name, port in ports:
            if getattr(port, own) is not None:
                raise ValueError(f"{port_name} has {own} of its own{advice}")
    ethernet = [port for _, _, port in ports if port.layer != LinkLayer.INFINIBAND]
    if _ports.NETDEV_VARIABLE in given and all(port.netdev for port in ethernet):
        why = "each Ethernet port has one of its own" if ethernet else "no port is an Ethernet one"
        raise ValueError(f"netdev (--netdev) has no effect: {why}{advice}")


def packet_settings(
    base: Mapping[str, str],
    faults: str | None,
    capture: str | os.PathLike[str] | None,
    capture_direct: bool,
    capture_bytes: int | None,
) -> dict[str, str]:
    """Return the variables about packets. Raises ValueError."""
    found: dict[str, str] = {}
    if faults is not None:
        from verbena import fault

        fault.check(faults)
        found[FAULTS] = faults
    if capture is not None:
        found["VERBENA_CAPTURE"] = os.path.abspath(capture)
    elif not base.get("VERBENA_CAPTURE") and (capture_direct or capture_bytes is not None):
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
    if kept.get(AGENT) == sys.executable:
        del kept[AGENT]
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
