# SPDX-License-Identifier: Apache-2.0
"""Where the system lacks or forbids something: another way, or an error that says what to do."""

from __future__ import annotations

import errno
import ipaddress

import pytest

from tests.conftest import Run
from tests.robust.child import Child
from tests.robust.conftest import StartChild, connect, namespace
from tests.verbs.side import RemoteSide
from verbena import verbs

LENGTH = 3000
NO_COPIES = "deny=process_vm_readv,process_vm_writev"


def carries_data(near: RemoteSide, far: RemoteSide) -> None:
    """WRITE, READ, SEND and an atomic between the two, checked byte by byte."""
    data = bytes(i * 7 % 251 for i in range(LENGTH))
    near.fill(data)
    near.write(*far.region(), LENGTH)
    assert [one.status for one in near.wait()] == ["SUCCESS"]
    assert far.bytes_at(0, LENGTH) == data
    far.fill(data[::-1])
    far.post_recv()
    near.send(LENGTH)
    assert [one.status for one in near.wait()] == ["SUCCESS"]
    assert [one.byte_len for one in far.wait()] == [LENGTH]
    assert far.bytes_at(0, LENGTH) == data


def two(first: Child, second: Child, kind: str) -> tuple[RemoteSide, RemoteSide]:
    near, far = first.make(kind=kind), second.make(kind=kind)
    connect(near, far)
    return near, far


# ---- a device that does not exist ----


def test_a_program_that_asks_for_another_device_is_told(
    verbena_run: Run, debian_program: object
) -> None:
    done = verbena_run("ibv_rc_pingpong", "-d", "nope")
    assert done.returncode != 0
    assert "IB device nope not found" in done.stdout


def test_the_message_names_the_devices_that_exist() -> None:
    with pytest.raises(verbs.VerbsError, match=r"'nope'.*verbena0") as caught:
        verbs.open_device("nope")
    assert caught.value.errno == errno.ENODEV


# ---- system calls that a filter forbids ----


@pytest.mark.parametrize("filtered", [("near",), ("far",), ("near", "far")], ids="+".join)
def test_without_cross_process_copies_the_bounce_ring_carries(
    start_child: StartChild, filtered: tuple[str, ...]
) -> None:
    sides = [start_child(*([NO_COPIES] if name in filtered else [])) for name in ("near", "far")]
    near, far = two(sides[0], sides[1], "own")
    carries_data(near, far)
    carries_data(far, near)
    (peer,) = near.peers()
    if "near" in filtered:
        assert peer["own_memory"] == "bounce ring"
        assert "seccomp" in peer["reason"]
    else:
        assert (peer["own_memory"], peer["reason"]) == ("cross-process copy", "")


@pytest.mark.parametrize("filtered", [("near",), ("far",), ("near", "far")], ids="+".join)
def test_without_membarrier_everything_works(
    start_child: StartChild, filtered: tuple[str, ...]
) -> None:
    conditions = {name: ["deny=membarrier"] for name in filtered}
    first, second = (start_child(*conditions.get(name, [])) for name in ("near", "far"))
    near, far = two(first, second, "alloc")
    carries_data(near, far)
    carries_data(far, near)


def test_without_membarrier_on_one_side_regions_close_safely(start_child: StartChild) -> None:
    near, far = two(start_child("deny=membarrier"), start_child(), "alloc")
    carries_data(near, far)
    region = far.region()
    far.close_region()
    near.write(*region, 8)
    assert [one.status for one in near.wait()] == ["REM_ACCESS_ERR"]


def refusal(child: Child) -> verbs.VerbsError:
    with pytest.raises(verbs.VerbsError) as caught:
        child.make()
    return caught.value


def test_without_memfd_the_error_names_the_filter(start_child: StartChild) -> None:
    child = start_child("deny=memfd_create")
    error = refusal(child)
    assert error.errno == errno.EPERM
    assert "memfd_create" in str(error)
    assert "seccomp" in str(error)
    assert "seccomp" in child.stop()


def test_without_clone3_the_error_names_it(start_child: StartChild) -> None:
    """As an old Docker's filter has it, which a new glibc takes for an answer."""
    child = start_child("deny=clone3")
    assert "a thread cannot be started: clone3 is forbidden" in str(refusal(child))
    assert "a thread cannot be started" in child.stop()


# ---- limits ----


@pytest.mark.parametrize("descriptors", [0, 1, 3, 5])
def test_without_descriptors_opening_says_so(start_child: StartChild, descriptors: int) -> None:
    child = start_child(f"descriptors={descriptors}")
    assert refusal(child).errno == errno.EMFILE
    assert "ulimit -n" in child.stop()


def test_without_descriptors_a_channel_says_so(start_child: StartChild) -> None:
    side = start_child("descriptors=60").make()
    with pytest.raises(verbs.VerbsError) as caught:
        side.make_channels(60)
    assert caught.value.errno == errno.EMFILE
    assert "ulimit -n" in str(caught.value)


@pytest.mark.not_sanitized("the shadow of AddressSanitizer takes address space itself")
def test_without_address_space_opening_says_so(start_child: StartChild) -> None:
    child = start_child(f"RLIMIT_AS={1 << 30}")
    assert refusal(child).errno == errno.ENOMEM
    assert "ulimit -v" in child.stop()


def test_nothing_is_locked_in_memory(start_child: StartChild) -> None:
    carries_data(*two(start_child("RLIMIT_MEMLOCK=0"), start_child("RLIMIT_MEMLOCK=0"), "alloc"))


# ---- namespaces ----


def test_without_dev_shm_memory_is_shared_all_the_same(start_child: StartChild) -> None:
    prefix = [*namespace("--mount"), "sh", "-c", 'mount -t tmpfs -o ro none /dev/shm; exec "$@"']
    prefix.append("sh")
    near, far = two(start_child(prefix=prefix), start_child(prefix=prefix), "alloc")
    carries_data(near, far)
    assert near.peers()[0]["shared_memory"]


@pytest.mark.parametrize("kind", ["alloc", "own"])
def test_another_user_namespace(start_child: StartChild, kind: str) -> None:
    inside = start_child(prefix=namespace("--user", "--map-current-user"))
    near, far = two(inside, start_child(), kind)
    carries_data(near, far)
    carries_data(far, near)
    assert near.peers()[0]["own_memory"] == "bounce ring"


@pytest.mark.parametrize("kind", ["alloc", "own"])
def test_another_pid_namespace(start_child: StartChild, kind: str) -> None:
    inside = start_child(prefix=namespace("--pid", "--fork"))
    near, far = two(inside, start_child(), kind)
    carries_data(near, far)
    carries_data(far, near)
    assert "PID namespace" in near.peers()[0]["reason"]


def test_another_network_namespace_is_another_host(start_child: StartChild) -> None:
    inside = start_child(prefix=namespace("--net"))
    near, far = inside.make(), start_child().make()
    with pytest.raises(verbs.VerbsError) as caught:
        near.connect(far.info(), timeout=10, retry_cnt=1)
    assert caught.value.errno == errno.ENETUNREACH  # it has no address to send packets from
    gid = ipaddress.IPv6Address(bytes(far.info().gid))
    shown = f"::ffff:{gid.ipv4_mapped}" if gid.ipv4_mapped else str(gid)
    assert f"no route leads from GID index 0 to the peer's GID {shown}: " in str(caught.value)


DOWN = "no interface of this host is up, so it has no address; ip link set lo up, or that of an"
ELSEWHERE = "0, 2 and up are addresses of this host's interfaces; choose one that reaches the peer"


@pytest.mark.parametrize(
    ("first", "advice"), [("true", DOWN), ("ip link set lo up", ELSEWHERE)], ids=["down", "lo up"]
)
def test_what_to_do_without_a_way_to_the_peer(
    start_child: StartChild, first: str, advice: str
) -> None:
    """In a new network namespace every interface is down."""
    prefix = [*namespace("--net"), "sh", "-c", f'{first}; exec "$@"', "sh"]
    inside = start_child(prefix=prefix)
    with pytest.raises(verbs.VerbsError) as caught:
        inside.make().connect(start_child().make().info(), timeout=10, retry_cnt=1)
    assert caught.value.errno == errno.ENETUNREACH
    assert advice in str(caught.value)
