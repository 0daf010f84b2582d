# SPDX-License-Identifier: Apache-2.0
"""A process in which Sides live, under conditions that its command line names.

python -m tests.robust.child DESCRIPTOR [CONDITION ...]

deny=NAME,...       a seccomp filter answers these system calls with EPERM
user=UID            becomes this user (only root may)
undumpable          PR_SET_DUMPABLE 0: the kernel lets no process of the user look into it
RLIMIT_NAME=VALUE   a resource limit
descriptors=N       no more than N descriptors beyond those that are open
cgroup=FOLDER       is moved into this control group
closed              has no standard input, output and error
watched             is started as by `verbena run`
"""

from __future__ import annotations

import ctypes
import faulthandler
import fcntl
import mmap
import os
import platform
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.soak.memory import Block
from tests.support import ROOT
from tests.verbs.side import ALL, RemoteSide, Side
from verbena import launch, verbs
from verbena.verbs import library

PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 4, 22, 38
SECCOMP_MODE_FILTER, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO = 2, 0x7FFF0000, 0x00050000
EPERM = 1
# linux/userfaultfd.h
UFFD_USER_MODE_ONLY, UFFD_API, UFFDIO_REGISTER_MODE_MISSING = 1, 0xAA, 1
UFFDIO_API, UFFDIO_REGISTER, UFFDIO_COPY = 0xC018AA3F, 0xC020AA00, 0xC028AA03
BPF_LOAD_WORD, BPF_JUMP_EQUAL, BPF_RETURN = 0x20, 0x15, 0x06

# Numbers of system calls: asm/unistd_64.h and asm-generic/unistd.h.
_CALLS = {
    "x86_64": {
        "process_vm_readv": 310,
        "process_vm_writev": 311,
        "memfd_create": 319,
        "membarrier": 324,
        "clone3": 435,
        "munmap": 11,
        "userfaultfd": 323,
    },
    "aarch64": {
        "process_vm_readv": 270,
        "process_vm_writev": 271,
        "memfd_create": 279,
        "membarrier": 283,
        "clone3": 435,
        "munmap": 215,
        "userfaultfd": 282,
    },
}


LIBC = ctypes.CDLL(None)
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
LIBC.free.argtypes = [ctypes.c_void_p]
LIBC.malloc.argtypes = [ctypes.c_size_t]
LIBC.malloc.restype = ctypes.c_void_p


def cxx() -> ctypes.CDLL:
    """C++'s new[] and delete[], by their names in its library."""
    found = ctypes.CDLL("libstdc++.so.6")
    found._Znam.argtypes = [ctypes.c_size_t]
    found._Znam.restype = ctypes.c_void_p
    found._ZdaPv.argtypes = [ctypes.c_void_p]
    return found


M_MMAP_THRESHOLD = -3


class _Filter(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("jt", ctypes.c_ubyte),
        ("jf", ctypes.c_ubyte),
        ("k", ctypes.c_uint),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(_Filter)))


def prctl(*arguments: int | ctypes.c_void_p) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(*[ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments]) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def deny(names: Sequence[str]) -> None:
    """From now on these system calls fail with EPERM in this process."""
    numbers = [_CALLS[platform.machine()][name] for name in names]
    steps = [_Filter(BPF_LOAD_WORD, 0, 0, 0)]
    for place, number in enumerate(numbers):
        steps.append(_Filter(BPF_JUMP_EQUAL, len(numbers) - place, 0, number))
    steps.append(_Filter(BPF_RETURN, 0, 0, SECCOMP_RET_ALLOW))
    steps.append(_Filter(BPF_RETURN, 0, 0, SECCOMP_RET_ERRNO | EPERM))
    program = _Program(len(steps), (_Filter * len(steps))(*steps))
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    pointer = ctypes.c_void_p(ctypes.addressof(program))
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, pointer, 0, 0)


def keep_library_at_hand() -> None:
    """The checkout may lie in a folder that only its user enters: take the library along."""
    fd = os.memfd_create("libibverbs")
    os.write(fd, Path(library.packaged_path()).read_bytes())
    os.environ["VERBENA_LIBRARY"] = f"/proc/self/fd/{fd}"


def become(uid: int) -> None:
    """Another user, whose processes may look into each other as if exec had started them."""
    keep_library_at_hand()
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)


def limit(name: str, value: int) -> None:
    number = getattr(resource, name)
    resource.setrlimit(number, (value, resource.getrlimit(number)[1]))


def limit_descriptors(more: int) -> None:
    used = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
    fillers = [os.dup(0) for _ in range(used)]
    limit("RLIMIT_NOFILE", max(fillers) + 1 + more)


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def prepare(condition: str) -> None:
    name, _, value = condition.partition("=")
    if name == "deny":
        deny(value.split(","))
    elif name == "user":
        become(int(value))
    elif name == "undumpable":
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    elif name == "descriptors":
        limit_descriptors(int(value))
    elif name == "cgroup":
        (Path(value) / "cgroup.procs").write_text(str(os.getpid()))
    elif name == "watched":
        assert "libverbena_paths" in os.environ["LD_PRELOAD"]
    elif name == "closed":
        os.closerange(0, 3)
    elif name.startswith("RLIMIT_"):
        limit(name, int(value))
    else:
        raise ValueError(f"unknown condition {condition}")


class RobustSide(Side):
    """A Side that also tells about its process."""

    def peers(self) -> list[dict[str, Any]]:
        described = self.ctx.describe()
        assert described is not None
        return list(described["peers"])

    def regions_most(self) -> int:
        return self.ctx.query_device().max_mr

    def sockets(self) -> int:
        """How many Unix sockets this process holds."""
        rows = Path("/proc/net/unix").read_text().splitlines()[1:]
        unix = {f"socket:[{row.split()[6]}]" for row in rows}
        links = (os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink())
        return len(unix.intersection(links))

    def write(self, addr: int, rkey: int, length: int) -> None:
        self.qp.write(self.mr, addr, rkey, length=length)

    def send(self, length: int) -> None:
        self.qp.send(self.mr, length=length)

    def read(self, addr: int, rkey: int, length: int) -> None:
        self.qp.read(self.mr, addr, rkey, length=length)

    def poll(self) -> list[str]:
        return [wc.status.name for wc in self.cq.poll(16)]

    def kill_and_write(self, pid: int, addr: int, rkey: int) -> int:
        """WRITEs from before a process is dead until one fails; how many."""
        os.kill(pid, signal.SIGKILL)
        for posted in range(1, 100000):
            self.write(addr, rkey, 8)
            if "SUCCESS" not in (self.poll() or ["SUCCESS"]):
                return posted
        raise RuntimeError("WRITEs to a dead process go on")

    def make_channels(self, count: int) -> None:
        self.channels = [self.ctx.create_comp_channel() for _ in range(count)]

    def work_without_space(self, room: int, addr: int, rkey: int) -> tuple[int, list[str]]:
        """Makes QPs until ``room`` bytes of address space are used up, then writes.

        Which errno the QP had that there is no space for, and how the WRITE ended.
        """
        before = resource.getrlimit(resource.RLIMIT_AS)[0]
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
        made: list[verbs.QP] = []
        limit("RLIMIT_AS", used + room)
        try:
            while True:
                made.append(self.pd.create_qp(send_cq=self.cq, max_send_wr=1024))
        except verbs.VerbsError as error:
            self.write(addr, rkey, 64)
            return error.errno or 0, [one.status for one in self.wait()]
        finally:
            limit("RLIMIT_AS", before)
            for qp in made:
                qp.close()

    def map_buffer(self, nbytes: int, kind: str) -> None:
        """A region of whole pages: of Verbena's heap ("alloc"), or of the program's own memory.

        "own" is a mapping, "malloc" a block that libc maps and unmaps by itself, "new" one of
        C++, "file" a shared mapping of a file without a name.
        """
        if kind == "alloc":
            self.buffer = self.pd.alloc(nbytes, ALL)
        elif kind == "file":
            self.file = os.memfd_create("buffer")
            os.ftruncate(self.file, nbytes)
            self.mapping = mmap.mmap(self.file, nbytes)
            self.buffer = self.pd.reg_mr(self.mapping, ALL)
        else:
            LIBC.mallopt(M_MMAP_THRESHOLD, 1 << 17)  # set once, it stays
            # Unmapped, a Block is free for good: nothing else gets its address.
            if kind == "new":
                addr = cxx()._Znam(nbytes)
            else:
                addr = LIBC.malloc(nbytes) if kind == "malloc" else Block(nbytes).addr
            self.buffer = self.pd.reg_mr((ctypes.c_char * nbytes).from_address(addr), ALL)
        self.span = self.buffer.addr, nbytes

    def receive_there(self, length: int, wr_id: int = 0) -> None:
        target = self.srq if self.srq is not None else self.qp
        target.recv(self.buffer, 0, length, wr_id=wr_id)

    def change_buffer(self, how: str) -> None:
        """What a program may do to memory that a receive request names."""
        at, nbytes = self.span
        if how == "deregister":
            self.buffer.close()
        elif how == "unmap":
            assert LIBC.munmap(at, nbytes) == 0
        elif how == "system call":
            call = ctypes.c_long(_CALLS[platform.machine()]["munmap"])
            assert LIBC.syscall(call, ctypes.c_void_p(at), ctypes.c_size_t(nbytes)) == 0
        elif how == "free":
            LIBC.free(at)
        elif how == "delete":
            cxx()._ZdaPv(at)
        elif how == "shorten":
            os.ftruncate(self.file, 0)
        else:
            protection = mmap.PROT_READ if how == "protect" else mmap.PROT_READ | mmap.PROT_WRITE
            assert LIBC.mprotect(at, nbytes, protection) == 0

    def hold_copies(self) -> bool:
        """From now on whoever touches the buffer's memory waits; False: the system forbids it."""
        at, nbytes = self.span
        number = ctypes.c_long(_CALLS[platform.machine()]["userfaultfd"])
        self.faults = LIBC.syscall(number, ctypes.c_int(os.O_CLOEXEC | UFFD_USER_MODE_ONLY))
        if self.faults < 0:
            return False
        assert LIBC.madvise(at, nbytes, mmap.MADV_DONTNEED) == 0
        fcntl.ioctl(self.faults, UFFDIO_API, struct.pack("=3Q", UFFD_API, 0, 0))
        request = struct.pack("=4Q", at, nbytes, UFFDIO_REGISTER_MODE_MISSING, 0)
        fcntl.ioctl(self.faults, UFFDIO_REGISTER, request)
        return True

    def let_copies_go(self, data: bytes) -> None:
        """The memory holds this, and whoever waits for it goes on."""
        at, nbytes = self.span
        source = ctypes.create_string_buffer(data.ljust(nbytes, b"\0"), nbytes)
        request = struct.pack("=4Qq", at, ctypes.addressof(source), nbytes, 0, 0)
        fcntl.ioctl(self.faults, UFFDIO_COPY, request)

    def buffer_region(self) -> tuple[int, int]:
        """Address and rkey of the buffer."""
        return self.buffer.addr, self.buffer.rkey

    def handle_faults(self, how: str) -> None:
        """What a Python program may have set up for SIGSEGV once the device is open."""
        if how == "faulthandler":
            faulthandler.enable()
        elif how == "handler":
            signal.signal(signal.SIGSEGV, lambda *_: None)
        elif how == "blocked":
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

    def write_from_buffer(self, addr: int, rkey: int, length: int) -> None:
        self.qp.write(self.buffer, addr, rkey, length=length)

    def read_buffer(self, length: int) -> bytes:
        return ctypes.string_at(self.span[0], length)

    def standard_streams(self) -> dict[int, str]:
        """What is open under their numbers."""
        return {n: os.readlink(f"/proc/self/fd/{n}") for n in range(3) if is_open(n)}

    def sleep_in_wait(self) -> None:
        """A wait for a completion that does not come, long enough to sleep."""
        assert self.cq.wait(timeout=0.05) == []

    def processor_seconds(self) -> float:
        return time.process_time()

    def idle(self, seconds: float) -> float:
        """Processor seconds that a sleep of this length took, with all threads."""
        before = time.process_time()
        time.sleep(seconds)
        return time.process_time() - before

    def deregister_another(self) -> tuple[float, float]:
        """Seconds that a region's end takes, and those of the processor among them."""
        region = self.pd.alloc(4096, verbs.AccessFlags.LOCAL_WRITE)
        begin, busy = time.perf_counter(), time.thread_time()
        region.close()
        return time.perf_counter() - begin, time.thread_time() - busy

    def fork(self) -> int:
        """A child that does nothing and lives on."""
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
            os._exit(0)
        return pid


class Child:
    """Starts this module and makes Sides in it; ``prefix`` is a command like ``unshare``."""

    def __init__(self, *conditions: str, prefix: Sequence[str] = ()) -> None:
        here, there = socket.socketpair()
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        if "watched" in conditions:
            environment = launch.environment(environment)
        command = [sys.executable, "-m", "tests.robust.child", str(there.fileno()), *conditions]
        self.process = subprocess.Popen(
            [*prefix, *command],
            cwd=ROOT,
            env=environment,
            pass_fds=[there.fileno()],
            stderr=subprocess.PIPE,
            text=True,
        )
        there.close()
        self._pipe = Connection(here.detach())

    def make(self, **options: Any) -> RemoteSide:
        return RemoteSide(self, self.call(None, "", options))  # type: ignore[arg-type]

    def call(self, side: int | None, name: str, options: dict[str, Any], *arguments: Any) -> Any:
        self.ask(side, name, *arguments, **options)
        return self.answer()

    def ask(self, side: int | None, name: str, *arguments: Any, **options: Any) -> None:
        """A call whose answer is taken later."""
        self._pipe.send((side, name, arguments, options))

    def answer(self) -> Any:
        if not self._pipe.poll(30):
            raise TimeoutError("the child does not answer")
        value, error = self._pipe.recv()
        if error is not None:
            raise error
        return value

    def stop(self) -> str:
        """Ends it; what it said on stderr."""
        self._pipe.close()
        try:
            return self.process.communicate(timeout=10)[1]
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.communicate()[1]


def call(sides: list[RobustSide], number: int | None, name: str, args: Any, options: Any) -> Any:
    if number is None:
        sides.append(RobustSide(**options))
        return len(sides) - 1
    return getattr(sides[number], name)(*args, **options)


def serve(pipe: Connection) -> None:
    sides: list[RobustSide] = []
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((call(sides, *request), None))
        except verbs.VerbsError as error:
            pipe.send((None, error))
        except Exception as error:
            pipe.send((None, RuntimeError(f"in the child: {error}\n{traceback.format_exc()}")))


if __name__ == "__main__":
    verbs.get_device_list()  # loads the library while its files can still be read
    for each in sys.argv[2:]:
        prepare(each)
    serve(Connection(int(sys.argv[1])))
