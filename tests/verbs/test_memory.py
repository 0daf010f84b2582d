# SPDX-License-Identifier: Apache-2.0
"""Memory regions: what registers, how it is seen, and how long it lives."""

from __future__ import annotations

import array
import errno
import gc
import mmap
import threading
import time
from typing import Any

import numpy as np
import pytest

from tests.support import child
from tests.verbs.side import allocate
from verbena import verbs
from verbena.verbs import AccessFlags

WRITE = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE


@pytest.mark.parametrize(
    "make",
    [
        lambda: bytearray(64),
        lambda: memoryview(bytearray(64)),
        lambda: array.array("d", [0.0] * 8),
        lambda: np.zeros((4, 4), "f4"),
        lambda: np.asfortranarray(np.zeros((4, 4), "f4")),
        lambda: mmap.mmap(-1, 64),
    ],
    ids=["bytearray", "memoryview", "array", "numpy", "fortran", "mmap"],
)
def test_any_contiguous_writable_buffer_registers(pd: verbs.PD, make: Any) -> None:
    with pd.reg_mr(make(), WRITE) as mr:
        assert mr.length == 64
        assert mr.lkey != 0
        assert mr.rkey != 0


def test_the_address_is_that_of_the_array(pd: verbs.PD) -> None:
    data = np.zeros(16, "u8")
    assert pd.reg_mr(data).addr == data.ctypes.data


def test_a_read_only_buffer_registers_for_reading(pd: verbs.PD) -> None:
    mr = pd.reg_mr(b"constant", AccessFlags.REMOTE_READ)
    assert bytes(memoryview(mr)) == b"constant"
    assert memoryview(mr).readonly


@pytest.mark.parametrize("access", [AccessFlags.LOCAL_WRITE, WRITE])
def test_a_read_only_buffer_does_not_register_for_writing(
    pd: verbs.PD, access: AccessFlags
) -> None:
    with pytest.raises(BufferError, match="writable"):
        pd.reg_mr(b"constant", access)


def test_a_strided_array_does_not_register(pd: verbs.PD) -> None:
    with pytest.raises(BufferError, match="contiguous"):
        pd.reg_mr(np.zeros(16)[::2])


def test_memory_registers_by_address(pd: verbs.PD) -> None:
    data = np.zeros(32, "u1")
    mr = pd.reg_mr(data.ctypes.data, 32, WRITE)
    assert (mr.addr, mr.length) == (data.ctypes.data, 32)
    with pytest.raises(BufferError, match="by address"):
        memoryview(mr)


@pytest.mark.parametrize(
    "access",
    [AccessFlags.REMOTE_WRITE, AccessFlags.REMOTE_ATOMIC],
)
def test_remote_writing_needs_local_write(pd: verbs.PD, access: AccessFlags) -> None:
    with pytest.raises(verbs.VerbsError, match="LOCAL_WRITE") as caught:
        pd.reg_mr(bytearray(8), access)
    assert caught.value.errno == errno.EINVAL


def test_optional_access_bits_are_ignored(pd: verbs.PD) -> None:
    assert pd.reg_mr(bytearray(8), WRITE | AccessFlags.RELAXED_ORDERING).length == 8


def test_a_buffer_is_held_while_it_is_registered(pd: verbs.PD) -> None:
    data = bytearray(8)
    mr = pd.reg_mr(data)
    with pytest.raises(BufferError):
        data.extend(b"more")
    mr.close()
    data.extend(b"more")


def test_alloc_is_zeroed_and_page_aligned(pd: verbs.PD) -> None:
    mr = pd.alloc(10000)
    assert mr.addr % 4096 == 0
    assert not mr.array().any()


def test_alloc_of_nothing_is_einval(pd: verbs.PD) -> None:
    with pytest.raises(verbs.VerbsError, match="must be positive"):
        pd.alloc(0)


def test_alloc_of_more_than_there_is_fails(pd: verbs.PD) -> None:
    with pytest.raises(verbs.VerbsError) as caught:
        pd.alloc(1 << 60)
    assert caught.value.errno == errno.ENOMEM


def test_an_array_is_a_view(pd: verbs.PD, kind: str) -> None:
    mr = allocate(pd, kind, 64, WRITE)
    mr.array("u4")[3] = 0x01020304
    assert mr.array("u4", (2, 2), offset=8).tolist() == [[0, 0x01020304], [0, 0]]
    assert mr.array("u4").ctypes.data == mr.addr


@pytest.mark.parametrize("offset", [60, 65])
def test_an_array_that_leaves_the_region_is_refused(pd: verbs.PD, offset: int) -> None:
    with pytest.raises((ValueError, TypeError)):
        pd.alloc(64).array("u8", 1, offset=offset)


def test_a_view_outlives_the_region(pd: verbs.PD, kind: str) -> None:
    mr = allocate(pd, kind, 4096, WRITE)
    view = mr.array()
    view[:] = 7
    mr.close()
    del mr
    gc.collect()
    assert int(view.sum()) == 7 * 4096


def test_a_view_outlives_the_context(kind: str) -> None:
    ctx = verbs.open_device()
    view = allocate(ctx.alloc_pd(), kind, 4096, WRITE).array()
    ctx.close()
    del ctx
    gc.collect()
    view[:] = 9
    assert int(view[4095]) == 9


def test_a_closed_region_gives_no_view(pd: verbs.PD) -> None:
    mr = pd.alloc(64)
    mr.close()
    with pytest.raises(BufferError, match="closed"):
        memoryview(mr)


def test_keys_of_a_closed_region_are_an_error(pd: verbs.PD) -> None:
    mr = pd.alloc(64)
    mr.close()
    for name in ("lkey", "rkey", "handle"):
        with pytest.raises(verbs.VerbsError, match="closed"):
            getattr(mr, name)


def test_words_are_loaded_and_stored(pd: verbs.PD, kind: str) -> None:
    mr = allocate(pd, kind, 64, WRITE)
    mr.store_u64(8, 1 << 63)
    assert mr.load_u64(8) == 1 << 63
    assert mr.array("u8")[1] == 1 << 63


@pytest.mark.parametrize("offset", [4, 57, 64, 1 << 62])
def test_a_word_must_be_aligned_and_inside(pd: verbs.PD, offset: int) -> None:
    mr = pd.alloc(64)
    with pytest.raises(ValueError, match="offset"):
        mr.load_u64(offset)


def test_a_read_only_word_cannot_be_stored(pd: verbs.PD) -> None:
    data = np.zeros(8, "u8")
    data.flags.writeable = False
    with pytest.raises(BufferError, match="read-only"):
        pd.reg_mr(data, 0).store_u64(0, 1)


@pytest.mark.not_simulated("a world has one thread")
def test_wait_u64_ends_when_the_word_changes(pd: verbs.PD) -> None:
    mr = pd.alloc(64)
    timer = threading.Timer(0.05, mr.store_u64, (0, 5))
    timer.start()
    assert mr.wait_u64(0, 5, timeout=10)
    timer.join()


@pytest.mark.not_simulated("timeouts are in virtual time")
def test_wait_u64_gives_up_after_its_timeout(pd: verbs.PD) -> None:
    mr = pd.alloc(64)
    start = time.monotonic()
    assert not mr.wait_u64(0, 5, timeout=0.05)
    assert 0.05 <= time.monotonic() - start < 5


@pytest.mark.not_simulated("a world has one thread")
def test_a_region_cannot_close_under_a_waiting_thread(pd: verbs.PD) -> None:
    mr = pd.alloc(64)
    waiter = threading.Thread(target=mr.wait_u64, args=(0, 5), kwargs={"timeout": 10})
    waiter.start()
    time.sleep(0.05)
    with pytest.raises(verbs.VerbsError, match="another thread"):
        mr.close()
    mr.store_u64(0, 5)
    waiter.join()
    mr.close()


def test_an_sge_takes_a_part_of_a_region(pd: verbs.PD) -> None:
    mr = pd.alloc(64)
    sge = mr.sge(8, offset=16)
    assert (sge.addr, sge.length, sge.lkey, sge.owner) == (mr.addr + 16, 8, mr.lkey, mr)
    assert mr.sge(offset=60).length == 4


def test_memory_is_not_read_as_python_objects(pd: verbs.PD) -> None:
    mr = pd.alloc(64)
    for dtype in ("O", [("number", "u8"), ("thing", "O")]):
        with pytest.raises(TypeError, match="Python objects"):
            mr.array(dtype)


def test_an_array_of_python_objects_is_not_registered(pd: verbs.PD) -> None:
    with pytest.raises(TypeError, match="array of Python objects"):
        pd.reg_mr(np.array([{}, []], dtype=object))


IN_A_CYCLE = """
import gc
from verbena import verbs

gc.disable()
pd = verbs.open_device().alloc_pd()
for is_closed in (False, True):
    memory = bytearray(4096)
    seen = memoryview(memory)
    mr = pd.reg_mr(seen)
    cycle = [seen, mr, memoryview(mr)]
    cycle.append(cycle)
    if is_closed:
        mr.close()
    del seen, mr, cycle
    gc.collect()
    memory += b"which is refused while the memory is registered"
    print(len(memory))
"""


def test_a_registered_memoryview_in_a_cycle_is_collected() -> None:
    """CPython crashes when the collector clears a memoryview of which others hold buffers."""
    done = child(IN_A_CYCLE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["4143", "4143"]
