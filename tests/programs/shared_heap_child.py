# SPDX-License-Identifier: Apache-2.0
"""Run under `verbena run --shared-heap`: each function asserts one thing that a program relies on.

shared_heap_child.py NAME [ARGUMENT...] calls the function of that name. Standard library only.
"""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable

LIBC = ctypes.CDLL(None, use_errno=True)
SIZE, POINTER = ctypes.c_size_t, ctypes.c_void_p
PAGE = 4096
KIB, MIB = 1 << 10, 1 << 20


def declare(name: str, result: object, *arguments: object) -> Callable[..., int]:
    function = getattr(LIBC, name)
    function.restype, function.argtypes = result, arguments
    return function  # type: ignore[no-any-return]


malloc = declare("malloc", POINTER, SIZE)
calloc = declare("calloc", POINTER, SIZE, SIZE)
realloc = declare("realloc", POINTER, POINTER, SIZE)
reallocarray = declare("reallocarray", POINTER, POINTER, SIZE, SIZE)
free = declare("free", None, POINTER)
memalign = declare("memalign", POINTER, SIZE, SIZE)
aligned_alloc = declare("aligned_alloc", POINTER, SIZE, SIZE)
posix_memalign = declare("posix_memalign", ctypes.c_int, POINTER, SIZE, SIZE)
valloc = declare("valloc", POINTER, SIZE)
usable_size = declare("malloc_usable_size", SIZE, POINTER)
madvise = declare("madvise", ctypes.c_int, POINTER, SIZE, ctypes.c_int)
mlockall = declare("mlockall", ctypes.c_int, ctypes.c_int)


def heap_maps() -> list[tuple[int, int]]:
    """Address ranges of the shared heap in this process."""
    with open("/proc/self/maps") as maps:
        ranges = [line.split()[0].split("-") for line in maps if "memfd:verbena-heap" in line]
    return [(int(start, 16), int(end, 16)) for start, end in ranges]


def is_shared(address: int) -> bool:
    return any(start <= address < end for start, end in heap_maps())


def put(address: int, data: bytes) -> None:
    ctypes.memmove(address, data, len(data))


def get(address: int, size: int) -> bytes:
    return ctypes.string_at(address, size)


def posix_memaligned(align: int, size: int) -> int:
    out = ctypes.c_void_p()
    assert posix_memalign(ctypes.addressof(out), align, size) == 0
    assert out.value is not None
    return out.value


def large_requests_are_shared() -> None:
    assert is_shared(malloc(64 * KIB))
    assert is_shared(calloc(64, KIB))
    assert is_shared(realloc(None, 64 * KIB))
    assert is_shared(reallocarray(None, 64, KIB))
    assert is_shared(memalign(64, 64 * KIB))
    assert is_shared(posix_memaligned(64, 64 * KIB))
    assert is_shared(valloc(PAGE))
    assert is_shared(memalign(PAGE, 2 * PAGE))  # as perftest asks for its buffers
    assert is_shared(aligned_alloc(PAGE, PAGE))
    assert is_shared(posix_memaligned(64 * KIB, PAGE))


def small_requests_are_not() -> None:
    large_requests_are_shared()
    assert not is_shared(malloc(64 * KIB - 1))
    assert not is_shared(calloc(1, 1000))
    assert not is_shared(memalign(64, PAGE))
    assert not is_shared(memalign(PAGE, 64))


def requests_are_aligned() -> None:
    for align in (16, 64, PAGE, 64 * KIB, 2 * MIB, 8 * MIB):
        assert memalign(align, 100 * KIB) % align == 0
        assert posix_memaligned(align, 100 * KIB) % align == 0


def bad_requests_fail_as_ever() -> None:
    out = ctypes.c_void_p()
    assert posix_memalign(ctypes.addressof(out), 3, MIB) == 22
    assert posix_memalign(ctypes.addressof(out), 4, MIB) == 22
    assert malloc(1 << 62) is None
    assert ctypes.get_errno() == 12
    assert calloc(1 << 40, 1 << 40) is None
    assert reallocarray(None, 1 << 40, 1 << 40) is None
    kept = malloc(MIB)
    put(kept, b"kept")
    assert realloc(kept, 1 << 62) is None
    assert get(kept, 4) == b"kept"


def calloc_is_zeroed_after_use() -> None:
    for size in (64 * KIB, MIB, 100 * MIB):
        first = malloc(size)
        put(first, b"\xff" * size)
        free(first)
        assert get(calloc(1, size), size) == bytes(size)


def freed_blocks_are_used_again() -> None:
    for size in (KIB, 32 * KIB, 64 * KIB, MIB):
        seen = set()
        for _ in range(200):
            at = malloc(size)
            seen.add(at)
            free(at)
        assert len(seen) < 100, (size, len(seen))


def realloc_keeps_contents() -> None:
    text = bytes(range(256)) * 16
    at = malloc(len(text))
    put(at, text)
    for size in (MIB, 3 * MIB, 64 * MIB, 65 * MIB, 70 * KIB, 10 * KIB, 200 * KIB, len(text)):
        at = realloc(at, size)
        assert usable_size(at) >= size
        assert is_shared(at) == (size >= 64 * KIB)
        assert get(at, len(text)) == text


def discarded_pages_read_as_zeros() -> None:
    at = memalign(PAGE, MIB)
    for advice in (mmap.MADV_DONTNEED, mmap.MADV_FREE):
        put(at, b"\xff" * MIB)
        assert madvise(at + PAGE, 2 * PAGE, advice) == 0
        assert get(at + PAGE, 2 * PAGE) == bytes(2 * PAGE)
        assert get(at, PAGE) == get(at + 3 * PAGE, PAGE) == b"\xff" * PAGE


def a_peer_finds_the_bytes() -> None:
    at = malloc(MIB)
    put(at, b"seen by others")
    (start, _), *others = heap_maps()
    assert not others
    names = {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in range(3, 10) if is_open(fd)}
    [fd] = [fd for fd, name in names.items() if "verbena-heap" in name]
    assert os.pread(fd, 14, at - start) == b"seen by others"


def is_open(fd: int) -> bool:
    return os.path.exists(f"/proc/self/fd/{fd}")


def closing_every_descriptor_does_no_harm() -> None:
    first = malloc(MIB)
    os.closerange(3, 64)
    mine = [os.open("/dev/null", os.O_RDONLY) for _ in range(8)]
    free(first)
    free(malloc(200 * MIB))
    put(malloc(MIB), b"1" * MIB)
    for fd in mine:
        os.close(fd)
    assert in_child(lambda: None) == 0


def threads_share_it() -> None:
    failures: list[BaseException] = []

    def churn(seed: int) -> None:
        try:
            for i in range(300):
                size = 64 * KIB + (seed * 7919 + i * 104729) % MIB
                mark = bytes([seed]) * 64
                at = malloc(size)
                put(at, mark)
                put(at + size - 64, mark)
                at = realloc(at, 2 * size)
                assert get(at, 64) == get(at + size - 64, 64) == mark
                free(at)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=churn, args=(seed,)) for seed in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


# ---- fork -------------------------------------------------------------------------------------


def in_child(run: Callable[[], None]) -> int:
    """The exit status of a forked child that calls `run`."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            run()
            status = 0
        except BaseException as failure:
            print(repr(failure), flush=True)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def a_child_has_its_own_copy() -> None:
    at = malloc(MIB)
    put(at, b"parent")

    def child() -> None:
        assert get(at, 6) == b"parent"
        put(at, b"child!")
        more = malloc(MIB)
        assert is_shared(more)
        free(at)
        put(malloc(MIB), b"\xff" * MIB)

    for _ in range(3):
        assert in_child(child) == 0
        assert get(at, 6) == b"parent"
        assert usable_size(at) == MIB
    assert in_child(lambda: exit_if(in_child(child))) == 0


def exit_if(status: int) -> None:
    assert status == 0


def an_interpreter_survives_its_children() -> None:
    """CPython keeps pointers to objects in large blocks, and child and parent change them apart."""
    table = {f"name{i}": i for i in range(100_000)}
    numbers = list(range(100_000))

    def child() -> None:
        for name in table:
            table[name] += 1_000_000
        numbers[:] = [number + 1_000_000 for number in numbers]
        assert sum(table.values()) == sum(numbers) == 104_999_950_000

    for _ in range(2):
        assert in_child(child) == 0
        assert sum(table.values()) == sum(numbers) == 4_999_950_000


def a_pool_of_processes_works() -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(len, [bytes(i * 50_000) for i in range(20)]) == [
            i * 50_000 for i in range(20)
        ]


def other_programs_can_be_started() -> None:
    keep = malloc(100 * MIB)
    put(keep, b"kept")
    assert subprocess.run(["/bin/echo", "hello"], capture_output=True).stdout == b"hello\n"
    assert os.system("/bin/true") == 0
    assert get(keep, 4) == b"kept"


# ---- what ends or changes a program ------------------------------------------------------------


def locking_all_memory_does_not_fill_the_heap() -> None:
    at = malloc(MIB)
    put(at, b"\xff" * MIB)
    if mlockall(3) != 0:
        assert ctypes.get_errno() in (1, 12)  # RLIMIT_MEMLOCK
        print("SKIP: this process may not lock memory; ulimit -l unlimited lets it do so")
        return
    with open("/proc/self/status") as status:
        [shared] = [int(line.split()[1]) for line in status if line.startswith("RssShmem")]
    assert shared < 200 * 1024
    free(at)
    assert get(calloc(1, MIB), MIB) == bytes(MIB)


def free_of_an_inner_pointer() -> None:
    free(malloc(MIB) + PAGE)


def requests_from(minimum: str) -> None:
    assert is_shared(malloc(int(minimum)))
    assert not is_shared(malloc(int(minimum) - 1))


def heap_of_size(size: str) -> None:
    malloc(64 * KIB)
    assert sum(end - start for start, end in heap_maps()) == int(size)
    blocks = [malloc(MIB) for _ in range(2 * int(size) // MIB)]
    assert None not in blocks
    assert {is_shared(block) for block in blocks} == {True, False}


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
