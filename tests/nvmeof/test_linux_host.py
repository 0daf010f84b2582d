# SPDX-License-Identifier: Apache-2.0
"""Linux' own ``nvme-rdma``, unmodified, uses disks of a target of Verbena."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.test_tshark import frames
from tests.nvmeof.linux_disks import (
    HOST_NQN,
    NQN,
    TargetProcess,
    boot_guests,
    connect_disks,
    cut_cable,
    disconnect_disks,
    options_of,
    serving_guests,
    verify_command,
    wait_for,
)
from tests.roce import linux_guest
from tests.roce.linux_guest import Lab
from verbena import capture, wire
from verbena.nvmeof.commands import SGL_KEYED_INVALIDATE, parse_command

pytestmark = [pytest.mark.debian, pytest.mark.timeout(420)]
MIB = 1 << 20


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    reason = linux_guest.reason_not_to()
    if reason:
        pytest.skip(reason)
    with Lab() as made:
        boot_guests(made, 2, 3)
        yield made


@pytest.fixture
def target(lab: Lab, tmp_path: Path) -> Iterator[TargetProcess]:
    with serving_guests(lab, tmp_path) as running:
        yield running


def test_discover(lab: Lab, target: TargetProcess) -> None:
    said = lab.guests[0].run(f"nvme discover -t rdma -a {lab.ipv4} -s 4420")
    assert f"subnqn:  {NQN}" in said
    assert "Number of Records 2" in said
    assert "subtype: nvme subsystem" in said


def test_two_subsystems(lab: Lab, target: TargetProcess) -> None:
    """Linux discovers both, and has each one's disk for itself: their identifiers differ."""
    guest, other_nqn = lab.guests[0], NQN + "b"
    target.tell(f"subsystem {other_nqn} {8 * MIB}")
    said = guest.run(f"nvme discover -t rdma -a {lab.ipv4} -s 4420")
    names = [line.split()[1] for line in said.splitlines() if line.startswith("subnqn:")]
    assert names[1:] == [NQN, other_nqn]
    first = f"/dev/{connect_disks(guest)}n1"
    second = f"/dev/{connect_disks(guest, nqn=other_nqn)}n1"
    sums = guest.run(
        f"""set -e
        for disk in {first} {second}; do
            dd if=/dev/urandom of=/tmp/x bs=64k count=1 2>/dev/null; md5sum < /tmp/x
            dd if=/tmp/x of=$disk oflag=direct 2>/dev/null
        done
        for disk in {first} {second}; do
            dd if=$disk bs=64k count=1 iflag=direct 2>/dev/null | md5sum
        done"""
    ).split()[::2]
    assert sums[:2] == sums[2:]
    assert sums[0] != sums[1]
    identified = guest.run(f"for disk in {first} {second}; do nvme id-ns $disk; done")
    nguids = [line.split()[-1] for line in identified.splitlines() if line.startswith("nguid")]
    assert len(set(nguids)) == 2
    assert "duplicate IDs" not in guest.run("dmesg")


@pytest.mark.parametrize("namespace", [1, 2], ids=["file", "memory"])
def test_a_file_system(lab: Lab, target: TargetProcess, namespace: int) -> None:
    guest = lab.guests[0]
    disk = f"/dev/{connect_disks(guest)}n{namespace}"
    sums = guest.run(
        f"""set -e
        mkfs.ext4 -q {disk}; mount -t ext4 {disk} /mnt
        dd if=/dev/urandom of=/mnt/file bs=64k count=128 2>/dev/null; md5sum < /mnt/file
        umount /mnt; echo 3 > /proc/sys/vm/drop_caches
        mount -t ext4 {disk} /mnt; md5sum < /mnt/file; umount /mnt; e2fsck -fn {disk}"""
    ).split()
    assert sums[0] == sums[2]


def test_two_hosts_at_once(lab: Lab, target: TargetProcess) -> None:
    disks = [f"/dev/{connect_disks(g, number)}n1" for number, g in enumerate(lab.guests, 1)]
    assert target.tell("queues") == 4
    running = [
        guest.start(verify_command(f"{disk.removesuffix('1')}{number}", 40, number))
        for number, (guest, disk) in enumerate(zip(lab.guests, disks, strict=True), 1)
    ]
    for each in running:
        output, _ = each.communicate(timeout=200)
        assert "VERIFIED" in output, output
    # What one has written the other one reads.
    first, second = lab.guests
    first.run(
        f"dd if=/dev/urandom of=/tmp/x bs=64k count=1; dd if=/tmp/x of={disks[0]} oflag=direct"
    )
    sums = [
        first.run("md5sum < /tmp/x"),
        second.run(f"dd if={disks[1]} bs=64k count=1 iflag=direct 2>/dev/null | md5sum"),
    ]
    assert sums[0].split()[0] == sums[1].split()[0]


def test_a_cable_that_is_cut(lab: Lab, target: TargetProcess) -> None:
    """For ten seconds, with I/O going on: nothing is lost, and the other host does not notice."""
    guest, other = lab.guests
    disk = f"/dev/{connect_disks(guest, keep_alive_tmo=2)}n1"
    undisturbed = f"/dev/{connect_disks(other, 2)}n2"
    running = guest.start(verify_command(disk, 120, 5))
    time.sleep(4)
    begun = other.start(verify_command(undisturbed, 20, 6))
    cut_cable(lab, guest, 10)
    assert "VERIFIED" in begun.communicate(timeout=200)[0]
    output, _ = running.communicate(timeout=250)
    assert "VERIFIED" in output, output + guest.run("dmesg | tail -50")
    said = guest.run("dmesg")
    assert "reconnect" in said.lower()
    assert "I/O error" not in said


def test_a_target_that_is_killed(lab: Lab, target: TargetProcess) -> None:
    """And started again, under a mounted file system that is being written."""
    guest = lab.guests[0]
    disk = f"/dev/{connect_disks(guest)}n1"
    guest.run(f"set -e; mkfs.ext4 -q {disk}; mount -t ext4 {disk} /mnt")
    running = guest.start(
        "set -e; for i in $(seq 60); do dd if=/dev/urandom of=/tmp/part bs=16k count=4 2>/dev/null;"
        " cp /tmp/part /mnt/f$i; cp /tmp/part /tmp/f$i; sync; done; echo WRITTEN"
    )
    for _ in range(2):
        time.sleep(5)
        target.kill()
        time.sleep(3)
        target.restart()
    output, _ = running.communicate(timeout=250)
    assert "WRITTEN" in output, output + guest.run("dmesg | tail -50")
    guest.run(
        f"""set -e
        umount /mnt; echo 3 > /proc/sys/vm/drop_caches; e2fsck -fn {disk}
        mount -t ext4 {disk} /mnt
        for i in $(seq 60); do cmp /mnt/f$i /tmp/f$i; done; umount /mnt; rm -f /tmp/f*"""
    )
    said = guest.run("dmesg")
    assert "I/O error" not in said
    assert "EXT4-fs error" not in said
    assert "reconnect" in said.lower()


def test_namespaces_that_come_and_go(lab: Lab, target: TargetProcess) -> None:
    guest = lab.guests[0]
    controller = connect_disks(guest)
    target.tell(f"add {8 * MIB}")
    wait_for(guest, f"[ -b /dev/{controller}n3 ]")
    size = guest.run(f"cat /sys/block/{controller}n3/size")
    assert int(size) * 512 == 8 * MIB
    target.tell("remove 3")
    wait_for(guest, f"[ ! -b /dev/{controller}n3 ]")


def test_hosts_that_are_not_in_the_list(lab: Lab, target: TargetProcess) -> None:
    guest = lab.guests[0]
    target.tell(f"allow {HOST_NQN.format(number=9)}")
    refused = options_of(guest, 1, 1)
    with pytest.raises(RuntimeError):
        guest.run(f"modprobe nvme-rdma; echo -n '{refused}' > /dev/nvme-fabrics")
    assert NQN not in guest.run(f"nvme discover -t rdma -a {lab.ipv4} -s 4420")
    connect_disks(guest, 9)
    with pytest.raises(RuntimeError):
        guest.run(f"echo -n '{options_of(guest, 9, 1, nqn=NQN + 'x')}' > /dev/nvme-fabrics")


def test_other_commands(lab: Lab, target: TargetProcess) -> None:
    """Discard, write zeroes, flush, compare and reservations, by nvme-cli and Linux."""
    guest, other = lab.guests
    first = f"/dev/{connect_disks(guest)}n2"
    second = f"/dev/{connect_disks(other, 2)}n2"
    guest.run(
        f"""set -e
        dd if=/dev/urandom of=/tmp/x bs=64k count=1 2>/dev/null
        dd if=/tmp/x of={first} oflag=direct 2>/dev/null
        nvme flush {first} -n 2
        dd if=/tmp/x of=/tmp/one bs=4096 count=1 2>/dev/null
        nvme compare {first} -s 0 -c 0 -z 4096 -d /tmp/one
        ! nvme compare {first} -s 1 -c 0 -z 4096 -d /tmp/one
        nvme write-zeroes {first} -n 2 -s 0 -c 7
        dd if={first} bs=32k count=1 iflag=direct 2>/dev/null | cmp -n 32768 - /dev/zero
        blkdiscard -o 1048576 -l 1048576 {first}
        nvme smart-log {first} > /dev/null
        nvme resv-register {first} -n 2 -k 5 -r 0
        nvme resv-acquire {first} -n 2 -c 5 -t 1 -a 0"""
    )
    with pytest.raises(RuntimeError):
        other.run(f"dd if=/dev/zero of={second} bs=4096 count=1 oflag=direct")
    other.run(f"dd if={second} of=/dev/null bs=4096 count=1 iflag=direct")
    guest.run(f"nvme resv-release {first} -n 2 -c 5 -t 1 -a 0")
    other.run(f"dd if=/dev/zero of={second} bs=4096 count=1 oflag=direct")


def test_keys_of_linux_are_gone_with_the_completion(lab: Lab, tmp_path: Path) -> None:
    """Linux asks for that with each request that it registers memory for, and takes it."""
    guest, file = lab.guests[0], tmp_path / "target.pcapng"
    capture.begin(file)
    target = TargetProcess(lab, 8 * MIB, VERBENA_CAPTURE=str(file))
    try:
        controller = connect_disks(guest)
        guest.run(
            f"""set -e
            dd if=/dev/urandom of=/tmp/x bs=64k count=4 2>/dev/null
            dd if=/tmp/x of=/dev/{controller}n1 bs=64k oflag=direct 2>/dev/null
            dd if=/dev/{controller}n1 bs=64k count=4 iflag=direct 2>/dev/null | cmp - /tmp/x"""
        )
        disconnect_disks(guest, controller)
    finally:
        target.kill()
    packets = [wire.parse(frame) for frame in frames(file)]
    capsules = [parse_command(each.payload[:64]) for each in packets if is_command(each)]
    asked = [each.sgl.key for each in capsules if each.sgl.kind == SGL_KEYED_INVALIDATE]
    gone = [each.ieth.rkey for each in packets if each.ieth is not None]
    assert len(asked) > 8
    assert set(gone) == set(asked)
    said = guest.run("dmesg")
    assert "invalidation" not in said
    assert "reconnect" not in said.lower()


def is_command(packet: wire.Packet) -> bool:
    """Whether a packet is a command's capsule, whose descriptor is keyed."""
    is_send = packet.opcode_name.endswith(("SEND_FIRST", "SEND_ONLY"))
    return is_send and len(packet.payload) >= 64 and packet.payload[39] >> 4 == 4
