# SPDX-License-Identifier: Apache-2.0
"""The checks of `verbena doctor` that concern the machine: memory, limits, processors, addresses.

verbena.cli.doctor calls findings(). No check changes anything on the machine.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import platform
import resource
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from verbena.cli.finding import Finding, Verdict, good

MIB = 1 << 20
MFD_NOEXEC_SEAL = 0x8  # linux/memfd.h
SHM = Path("/dev/shm")
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
SHMEM_HUGE = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
# The CPU features by which the native core chooses its copy loop, the fastest first.
COPY_FEATURES = {
    "x86_64": ("avx512f", "avx2", "erms", "fsrm", "sse2"),
    "aarch64": ("sve", "asimd"),
}
# A peer costs a process a few descriptors: its socket, its segments, its channels.
FEW_DESCRIPTORS = 1024
# With 27 or fewer ibv_rc_pingpong over RoCE does not connect (measured). A few more are for files
# that a thread has open for a moment. tests/robust/test_few_descriptors.py compares.
LEAST_DESCRIPTORS = 32
# Two connected programs: a thread of each, and Verbena's three.
WANTED_THREADS = 8
# include/uapi/linux/sockios.h and if.h
SIOCGIFFLAGS, IFF_UP, INTERFACE_NAME_BYTES = 0x8913, 1, 16
# The socket buffer that RoCE asks for, and the one that a few connections at full speed need.
WANTED_BUFFER, SMALL_BUFFER = 16 * MIB, 4 * MIB
# asm-generic/socket.h
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33


def findings() -> Iterator[Finding]:
    """Yield every finding about the machine."""
    yield shared_memory()
    yield shared_memory_room()
    yield huge_pages()
    yield descriptors()
    yield threads()
    yield address_space()
    yield locked_memory()
    yield processors()
    yield copy_features()
    yield addresses()
    yield packet_buffers()


def memory_file() -> int:
    """Return a descriptor of a memory file, made in the same way as in the native core."""
    try:
        return os.memfd_create("verbena-doctor", os.MFD_CLOEXEC | MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:  # Linux before 6.3 does not have the flag
            raise
    return os.memfd_create("verbena-doctor", os.MFD_CLOEXEC)


def shared_memory() -> Finding:
    """Check that memory files, which processes share, can be made and mapped."""
    try:
        file = memory_file()
    except OSError as error:
        return Finding(
            "shared memory",
            Verdict.BAD,
            f"memfd_create: {error.strerror}",
            "A system call filter forbids it: allow memfd_create in the container's profile.",
        )
    try:
        os.truncate(file, mmap.PAGESIZE)
        with mmap.mmap(file, mmap.PAGESIZE) as view:
            view[:1] = b"v"
    except OSError as error:
        return Finding(
            "shared memory", Verdict.BAD, f"a memory file cannot be mapped: {error.strerror}"
        )
    finally:
        os.close(file)
    return good("shared memory", "memory files (memfd) can be made and mapped")


def shared_memory_room() -> Finding:
    """Check /dev/shm. Verbena does not use it; its size limits other programs, such as MPI."""
    try:
        status = os.statvfs(SHM)
    except OSError:
        text = f"there is no {SHM}; Verbena does not need it, other programs may"
        return Finding("/dev/shm", Verdict.NOTE, text, "sudo mount -t tmpfs tmpfs /dev/shm")
    free = status.f_bavail * status.f_frsize // MIB
    if free < 64:
        return Finding(
            "/dev/shm",
            Verdict.NOTE,
            f"{free} MiB free; Verbena does not need it, other programs (UCX, MPI) do",
            "Remove what is left in it; in Docker: docker run --shm-size=2g",
        )
    return good("/dev/shm", f"{free} MiB free (Verbena itself uses memory files)")


def huge_pages() -> Finding:
    """Check transparent huge pages, which save TLB misses in large shared memory."""
    name = "huge pages for shared memory"
    try:
        text = SHMEM_HUGE.read_text()
    except OSError:
        return Finding(name, Verdict.NOTE, "this kernel has none", "")
    chosen = text.partition("[")[2].partition("]")[0]
    if chosen in ("always", "within_size", "advise", "force"):
        return good(name, f"{chosen}")
    return Finding(
        name,
        Verdict.NOTE,
        f"{chosen or 'unknown'}: large messages take more TLB misses",
        f"echo advise | sudo tee {SHMEM_HUGE}",
    )


def descriptors() -> Finding:
    """Check the limit of file descriptors: peers and completion channels need some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft} (hard limit {hard})"
    if soft == resource.RLIM_INFINITY or soft >= FEW_DESCRIPTORS:
        return good("file descriptors", text)
    if soft < LEAST_DESCRIPTORS:
        return Finding(
            "file descriptors",
            Verdict.BAD,
            f"{text}: too few to open the device and connect",
            more_descriptors(),
        )
    return Finding(
        "file descriptors", Verdict.NOTE, f"{text}: few for many peers", more_descriptors()
    )


def more_descriptors() -> str:
    """Return how to raise the limit. A shell cannot raise it above the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard > soft:
        return f"ulimit -n {FEW_DESCRIPTORS if hard == resource.RLIM_INFINITY else hard}"
    return (
        f"The hard limit, {hard}, is in force and has to be raised: sudo prlimit --pid $$ "
        f"--nofile={FEW_DESCRIPTORS}:{FEW_DESCRIPTORS}, /etc/security/limits.conf, or "
        f"docker run --ulimit nofile={FEW_DESCRIPTORS}"
    )


def threads_started(wanted: int) -> int:
    """Return how many of `wanted` threads can run at the same time."""
    done = threading.Event()
    started: list[threading.Thread] = []
    with suppress(RuntimeError, OSError):
        for _ in range(wanted):
            tried = threading.Thread(target=done.wait)
            tried.start()
            started.append(tried)
    done.set()
    for tried in started:
        tried.join()
    return len(started)


def more_threads() -> str:
    return (
        "ulimit -u counts all processes and threads of this user: raise it, or in a container "
        "docker run --pids-limit; systemd: TasksMax"
    )


def threads() -> Finding:
    """Check the limit of threads: each process that opens the device starts three."""
    found = threads_started(WANTED_THREADS)
    if found == WANTED_THREADS:
        return good("threads", f"at least {found} more can be started")
    text = f"only {found} more can be started; a program and its peer need {WANTED_THREADS}"
    return Finding("threads", Verdict.BAD, text, more_threads())


def address_space() -> Finding:
    """Check the limit of address space: the heap reserves much of it and uses little memory."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return good("address space", "unlimited")
    return Finding(
        "address space",
        Verdict.SLOW,
        f"limited to {soft // MIB} MiB; Verbena reserves more than it uses",
        f"{lift_address_space(hard)}, or a smaller heap: VERBENA_HEAP_SIZE=64M",
    )


def lift_address_space(hard: int) -> str:
    if hard == resource.RLIM_INFINITY:
        return "ulimit -v unlimited"
    return f"Raise the hard limit of {hard // MIB} MiB, too: sudo prlimit --pid $$ --as=unlimited"


def start_thread() -> None:
    tried = threading.Thread(target=int)
    tried.start()
    tried.join()


# The device needs each; a system call filter may forbid it.
CALLS: dict[str, Callable[[], object]] = {
    "memfd_create": lambda: os.close(memory_file()),
    "socket": lambda: socket.socket(socket.AF_UNIX).close(),
    "epoll_create1": lambda: select.epoll().close(),
    "getrandom": lambda: os.getrandom(1),
    "clone3 (to start a thread)": start_thread,
}


def forbidden_calls() -> list[str]:
    """Those of CALLS that do not work here."""
    found = []
    for name, tried in CALLS.items():
        try:
            tried()
        except (OSError, RuntimeError):
            found.append(name)
    return found


def locked_memory() -> Finding:
    """Report the limit of locked memory, which matters to real adapters only."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    shown = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft // 1024} KiB"
    return good("locked memory", f"{shown}; of no matter: Verbena pins nothing")


def cpu_quota() -> float | None:
    """CPUs that the control group allows, or None when it does not limit them."""
    try:
        quota, period = CPU_QUOTA.read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError):
        return None


def processors() -> Finding:
    """Check the number of processors: two processes that poll need a core each."""
    usable = len(os.sched_getaffinity(0))
    quota = cpu_quota()
    text = f"{usable} of {os.cpu_count()} usable"
    if quota is not None and quota < usable:
        text += f", limited to {quota:g} by the control group"
    if usable >= 2 and (quota is None or quota >= 2):
        return good("processors", f"{text}; for steady latency pin each side: taskset -c 0 ...")
    return Finding(
        "processors",
        Verdict.SLOW,
        f"{text}: two processes that poll take turns on one",
        "Wait for events instead of polling (-e in perftest and the pingpongs), "
        "or give this container two CPUs.",
    )


def cpu_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    names = ("flags", "Features")
    first = next((line for line in lines if line.split(":")[0].strip() in names), "")
    return set(first.partition(":")[2].split())


def copy_features() -> Finding:
    """Report which instructions for fast copies this CPU has; none is required."""
    wanted = COPY_FEATURES.get(platform.machine(), ())
    flags = cpu_flags()
    found = [feature for feature in wanted if feature in flags]
    text = ", ".join(found) if found else "none known"
    return good("copy instructions", f"{text} ({platform.machine()}; chosen when a program starts)")


def interface_flags(name: str) -> int:
    """Return an interface's IFF_ flags, or 0 if it does not exist any more."""
    request = name.encode()[: INTERFACE_NAME_BYTES - 1].ljust(40, b"\0")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked, suppress(OSError):
        answer = fcntl.ioctl(asked, SIOCGIFFLAGS, request)
        return int(struct.unpack_from("H", answer, INTERFACE_NAME_BYTES)[0])
    return 0


def addresses() -> Finding:
    """Check that an interface is up: the addresses of those that are become GIDs."""
    names = [name for _, name in socket.if_nameindex()]
    up = [name for name in names if interface_flags(name) & IFF_UP]
    if up:
        return good("network interfaces", f"{', '.join(up)} (addresses of those up are GIDs)")
    return Finding(
        "network interfaces",
        Verdict.BAD,
        f"no interface is up (there is: {', '.join(names) or 'none'}): the port is DOWN, its only "
        "GIDs are link-local, and programs that exchange addresses over TCP fail",
        "ip link set lo up",
    )


def buffer_had(option: int, forced: int) -> int:
    """Return the buffer size, in bytes, that a UDP socket gets with the calls that RoCE uses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as tried:
        try:
            tried.setsockopt(socket.SOL_SOCKET, forced, WANTED_BUFFER)
        except OSError:  # it takes CAP_NET_ADMIN
            tried.setsockopt(socket.SOL_SOCKET, option, WANTED_BUFFER)
        return tried.getsockopt(socket.SOL_SOCKET, option) // 2  # Linux says the double


def packet_buffers() -> Finding:
    """Check the size of socket buffers: a packet that finds the buffer full is lost."""
    name = "packet buffers"
    received = buffer_had(socket.SO_RCVBUF, SO_RCVBUFFORCE)
    sent = buffer_had(socket.SO_SNDBUF, SO_SNDBUFFORCE)
    text = f"{received // 1024} KiB to receive, {sent // 1024} KiB to send"
    if min(received, sent) >= SMALL_BUFFER:
        return good(name, text)
    return Finding(
        name,
        Verdict.SLOW,
        f"{text}: packets from other hosts are lost when they come fast, and sent again",
        f"sudo sysctl -w net.core.rmem_max={WANTED_BUFFER} net.core.wmem_max={WANTED_BUFFER}",
    )
