# SPDX-License-Identifier: Apache-2.0
"""Memory windows, null and on-demand regions, device memory and parent domains."""

from __future__ import annotations

import errno
import mmap

import numpy as np
import pytest

from tests.verbs.conftest import Pair
from tests.verbs.side import Side
from verbena import verbs
from verbena.verbs import AccessFlags, MRAdvice, MWType, OdpCaps, OdpTransportCaps, WCFlags

READ_WRITE = AccessFlags.REMOTE_READ | AccessFlags.REMOTE_WRITE
EVERY = AccessFlags.LOCAL_WRITE | READ_WRITE | AccessFlags.REMOTE_ATOMIC


def ends(pair: Pair) -> tuple[Side, Side]:
    assert isinstance(pair.far, Side)
    return pair.near, pair.far


def bindable(side: Side) -> verbs.MR:
    return side.pd.alloc(4096, AccessFlags.LOCAL_WRITE | AccessFlags.MW_BIND)


def bind(side: Side, mw: verbs.MW, mr: verbs.MR, access: AccessFlags = READ_WRITE) -> int:
    rkey = side.qp.bind_mw(mw, mr, 1024, 512, access, wr_id=5)
    (wc,) = side.cq.wait(1, 10)
    wc.raise_for_status()
    assert (wc.wr_id, wc.opcode) == (5, verbs.WCOpcode.BIND_MW)
    return rkey


@pytest.mark.parametrize("mw_type", list(MWType))
def test_a_window_opens_its_range(local_pair: Pair, mw_type: MWType) -> None:
    near, far = ends(local_pair)
    mr, mw = bindable(far), far.pd.alloc_mw(mw_type)
    rkey = bind(far, mw, mr)
    assert mw.rkey == rkey
    assert mw.type == mw_type
    near.fill(b"window")
    near.qp.write(near.mr, mr.addr + 1024, rkey, 0, 6)
    assert near.wait()[0].status == "SUCCESS"
    assert bytes(memoryview(mr)[1024:1030]) == b"window"
    near.qp.write(near.mr, mr.addr + 1024, rkey, 0, 513)
    assert near.wait()[0].status == "REM_ACCESS_ERR"


def test_a_local_invalidation_closes_it(local_pair: Pair) -> None:
    near, far = ends(local_pair)
    mr, mw = bindable(far), far.pd.alloc_mw()
    rkey = bind(far, mw, mr)
    far.qp.local_invalidate(rkey)
    assert far.wait()[0].opcode == "LOCAL_INV"
    near.qp.read(near.mr, mr.addr + 1024, rkey, 0, 8)
    assert near.wait()[0].status == "REM_ACCESS_ERR"


def test_a_send_invalidates_at_the_peer(local_pair: Pair) -> None:
    near, far = ends(local_pair)
    mr, mw = bindable(far), far.pd.alloc_mw()
    rkey = bind(far, mw, mr)
    far.post_recv()
    near.qp.send_with_invalidate(b"done", rkey, flags=verbs.SendFlags.INLINE)
    (wc,) = far.cq.wait(1, 10)
    assert wc.wc_flags == WCFlags.WITH_INV
    assert wc.invalidated_rkey == rkey
    assert far.bytes_at(0, 4) == b"done"
    mr.close()  # nothing is bound to it any more


def test_a_request_object_carries_the_key(local_pair: Pair) -> None:
    near, far = ends(local_pair)
    request = verbs.SendWR(opcode=verbs.WROpcode.SEND_WITH_INV)
    mr, mw = bindable(far), far.pd.alloc_mw()
    request.invalidate_rkey = bind(far, mw, mr)
    assert request.invalidate_rkey
    far.post_recv()
    near.qp.post_send(request)
    assert far.wait()[0].status == "SUCCESS"


def test_the_low_byte_is_the_programs(local_pair: Pair) -> None:
    far = ends(local_pair)[1]
    mw = far.pd.alloc_mw()
    wanted = mw.rkey & ~0xFF | 0x42
    assert far.qp.bind_mw(mw, bindable(far), rkey=wanted) == wanted
    assert verbs.inc_rkey(0x12FF) == 0x1200
    with pytest.raises(verbs.VerbsError) as caught:
        far.qp.bind_mw(mw, bindable(far), rkey=wanted ^ 0x100)
    assert caught.value.errno == errno.EINVAL


def test_a_refused_binding_says_why(local_pair: Pair) -> None:
    far = ends(local_pair)[1]
    far.qp.bind_mw(far.pd.alloc_mw(), far.mr)  # registered without MW_BIND
    (failed,) = far.wait()
    assert failed.status == "MW_BIND_ERR"
    assert "IBV_ACCESS_MW_BIND" in failed.text


def test_a_bound_region_is_busy(local_pair: Pair) -> None:
    far = ends(local_pair)[1]
    mr, mw = bindable(far), far.pd.alloc_mw(MWType.TYPE_1)
    bind(far, mw, mr)
    for call in (mr.close, lambda: mr.change_access(0)):
        with pytest.raises(verbs.VerbsError) as caught:
            call()
        assert caught.value.errno == errno.EBUSY
    far.qp.bind_mw(mw)
    assert far.wait()[0].status == "SUCCESS"
    mr.close()


def test_a_closed_window_is_an_error(pd: verbs.PD) -> None:
    mw = pd.alloc_mw()
    mw.close()
    mw.close()
    with pytest.raises(verbs.VerbsError, match="closed"):
        _ = mw.rkey
    with pytest.raises(verbs.VerbsError) as caught:
        pd.alloc_mw(3)
    assert caught.value.errno == errno.EINVAL


def test_access_can_be_changed(local_pair: Pair) -> None:
    near, far = ends(local_pair)
    mr = far.pd.alloc(64, AccessFlags.LOCAL_WRITE)
    rkey = mr.rkey
    mr.change_access(EVERY)
    assert mr.rkey == rkey
    near.qp.write(near.mr, mr.addr, rkey, 0, 8)
    assert near.wait()[0].status == "SUCCESS"
    with pytest.raises(verbs.VerbsError) as caught:
        mr.change_access(AccessFlags.REMOTE_WRITE)
    assert caught.value.errno == errno.EINVAL


def test_a_zero_based_region_counts_from_its_start(local_pair: Pair) -> None:
    near, far = ends(local_pair)
    mr = far.pd.alloc(64, EVERY | AccessFlags.ZERO_BASED)
    assert mr.addr == 0
    near.fill(b"zero")
    near.qp.write(near.mr, 8, mr.rkey, 0, 4)
    assert near.wait()[0].status == "SUCCESS"
    assert bytes(memoryview(mr)[8:12]) == b"zero"
    far.qp.write(mr, near.mr.addr + 100, near.mr.rkey, 8, 4)  # as a local region too
    assert far.wait()[0].status == "SUCCESS"
    assert near.bytes_at(100, 4) == b"zero"


def test_atomics_need_the_processors_words(local_pair: Pair) -> None:
    """A zero-based region may begin between them; its own addresses do not show it."""
    near, far = ends(local_pair)
    memory = np.zeros(16, "u8")
    start = memory.ctypes.data
    mr = far.pd.reg_mr(start + 4, 64, EVERY | AccessFlags.ZERO_BASED)
    near.qp.fetch_add(near.mr, 8, mr.rkey, 1)
    (failed,) = near.wait()
    assert failed.status == "REM_INV_REQ_ERR"
    assert f"{start + 12:#x}, which is not a multiple of 8" in failed.text
    assert not memory.any()


def test_a_region_moves(local_pair: Pair) -> None:
    """To other memory, which gives it another key, and to another domain."""
    near, far = ends(local_pair)
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    start = np.frombuffer(pages, "u1").ctypes.data
    mr = far.pd.reg_mr(start, 64, EVERY)
    old = mr.rkey
    mr.reregister(addr=start + mmap.PAGESIZE, length=128)
    assert (mr.addr, mr.length) == (start + mmap.PAGESIZE, 128)
    assert mr.rkey != old
    near.fill(b"moved")
    near.qp.write(near.mr, mr.addr + 100, mr.rkey, 0, 5)
    assert near.wait()[0].status == "SUCCESS"
    assert pages[mmap.PAGESIZE + 100 :][:5] == b"moved"
    other = far.ctx.alloc_pd()
    mr.reregister(pd=other, access=EVERY | AccessFlags.ZERO_BASED)
    assert (mr.pd, mr.addr) == (other, 0)
    near.qp.write(near.mr, 0, mr.rkey, 0, 5)
    assert near.wait()[0].status == "REM_ACCESS_ERR"


def test_what_is_no_change_of_a_region(pd: verbs.PD) -> None:
    mr = pd.alloc(64)
    with pytest.raises(TypeError, match="go together"):
        mr.reregister(addr=mr.addr)
    with pytest.raises(ValueError, match="holds its memory"):
        mr.reregister(addr=mr.addr, length=8)
    with pytest.raises(verbs.VerbsError) as caught:
        mr.reregister()
    assert caught.value.errno == errno.EINVAL
    with pytest.raises(verbs.VerbsError) as caught:
        mr.reregister(access=AccessFlags.REMOTE_WRITE)
    assert caught.value.errno == errno.EINVAL
    mr.close()


def test_device_memory_of_no_bytes(local_pair: Pair) -> None:
    """It is a region, as adapters with device memory have it, and opens nothing."""
    near, far = ends(local_pair)
    mr = far.pd.reg_dm(far.ctx.alloc_dm(64), 0, access=AccessFlags(15))
    near.qp.write(near.mr, 0, mr.rkey, 0, 1)
    assert near.wait()[0].status == "REM_ACCESS_ERR"
    mr.close()


def test_a_null_region_is_zeros(local_pair: Pair) -> None:
    near, far = ends(local_pair)
    null = near.pd.alloc_null_mr()
    far.fill(b"\xff" * 64)
    near.qp.write(null, far.mr.addr, far.mr.rkey, 12345, 32)
    assert near.wait()[0].status == "SUCCESS"
    assert far.bytes_at(0, 33) == bytes(32) + b"\xff"
    with pytest.raises(BufferError):
        null.load_u64(0)


def test_on_demand_regions(local_pair: Pair) -> None:
    near, far = ends(local_pair)
    memory = np.frombuffer(mmap.mmap(-1, 1 << 16), "u1")
    mr = far.pd.reg_mr(memory, EVERY | AccessFlags.ON_DEMAND)
    everything = far.pd.reg_mr(0, (1 << 64) - 1, EVERY | AccessFlags.ON_DEMAND)
    for advice in MRAdvice:
        far.pd.advise_mr(advice, mr.sge())
        far.pd.advise_mr(advice, [mr.sge(8), mr.sge(8, 4096)], flush=False)
    near.fill(b"demand")
    near.qp.write(near.mr, mr.addr + 5000, everything.rkey, 0, 6)
    assert near.wait()[0].status == "SUCCESS"
    assert memory[5000:5006].tobytes() == b"demand"
    with pytest.raises(verbs.VerbsError) as caught:
        far.pd.advise_mr(MRAdvice.PREFETCH, far.mr.sge())
    assert caught.value.errno == errno.EINVAL


def test_device_memory(local_pair: Pair) -> None:
    near, far = ends(local_pair)
    dm = far.ctx.alloc_dm(4096, 6)
    mr = far.pd.reg_dm(dm, 1024, 64, EVERY)
    near.fill((41).to_bytes(8, "little"))
    near.qp.write(near.mr, 16, mr.rkey, 0, 8)
    near.qp.fetch_add(near.mr, 16, mr.rkey, 1)
    assert [done.status for done in near.wait(2)] == ["SUCCESS"] * 2
    assert int.from_bytes(dm.copy_from(80, 8), "little") == 42
    dm.copy_to(0, b"text")
    assert dm.copy_from(0, 8) == b"text" + bytes(4)
    for wrong in (lambda: dm.copy_to(2, b"text"), lambda: dm.copy_from(0, 8192), dm.close):
        with pytest.raises(verbs.VerbsError):
            wrong()
    with dm:
        pass  # its regions are closed with it
    assert mr.closed


def test_more_device_memory_than_there_is(ctx: verbs.Context) -> None:
    most = ctx.query_memory().max_dm_size
    with pytest.raises(verbs.VerbsError) as caught:
        ctx.alloc_dm(most + 1)
    assert caught.value.errno == errno.EINVAL
    with ctx.alloc_dm(most):
        with pytest.raises(verbs.VerbsError) as caught:
            ctx.alloc_dm(4)
        assert caught.value.errno == errno.ENOMEM


def test_what_is_offered(ctx: verbs.Context) -> None:
    memory = ctx.query_memory()
    assert memory.odp_general == OdpCaps.SUPPORT | OdpCaps.SUPPORT_IMPLICIT
    assert OdpTransportCaps.ATOMIC in memory.odp_rc
    assert OdpTransportCaps.WRITE not in memory.odp_ud


def test_a_parent_domain_is_its_domain(ctx: verbs.Context) -> None:
    pd, td, cq = ctx.alloc_pd(), ctx.alloc_td(), ctx.create_cq(16)
    parent = pd.alloc_parent_domain(td)
    near, far = parent.create_qp(send_cq=cq), pd.create_qp(send_cq=cq)
    verbs.connect_pair(near, far)
    source, target = parent.alloc(64), pd.alloc(64, EVERY)
    source.array()[:] = 7
    near.write(source, target.addr, target.rkey)
    cq.wait(1, 10)[0].raise_for_status()
    assert target.array().tolist() == [7] * 64
    for busy in (td, pd, parent):
        with pytest.raises(verbs.VerbsError) as caught:
            busy.close()
        assert caught.value.errno == errno.EBUSY
    with td:
        pass
    assert parent.closed
    assert near.closed
    assert not far.closed
