# SPDX-License-Identifier: Apache-2.0
"""What the tests with Linux' own NVMe over RDMA share: a target, and commands for guests."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.nvmeof.restarts import KilledAndRestarted
from tests.roce.linux_guest import DISKS, Guest, Lab
from tests.support import clean_environment

NQN = "nqn.2026-01.org.example:disk0"
HOST_NQN = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-0000000000{number:02x}"
CHILD = str(Path(__file__).with_name("target_child.py"))
PORT = 4420


class TargetProcess(KilledAndRestarted):
    """target_child.py on this side of the laboratory."""

    def __init__(self, lab: Lab, *files: object, **variables: str) -> None:
        self.lab, self.files = lab, [str(each) for each in files]
        self.variables = variables
        self.process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        words = [sys.executable, CHILD, self.lab.ipv4, str(PORT), *self.files]
        process = subprocess.Popen(
            self.lab.command(*words),
            env=clean_environment() | self.variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == f"{PORT}\n"
        return process


def options_of(guest: Guest, number: int, queues: int, **others: object) -> str:
    host_nqn = HOST_NQN.format(number=number)
    given: dict[str, Any] = {
        "nqn": NQN,
        "transport": "rdma",
        "traddr": guest.lab.ipv4,
        "trsvcid": PORT,
        "hostnqn": host_nqn,
        "hostid": host_nqn.rpartition("uuid:")[2],
        "nr_io_queues": queues,
        "reconnect_delay": 1,
        **others,
    }
    return ",".join(f"{name}={value}" for name, value in given.items())


def connect_disks(guest: Guest, number: int = 1, queues: int = 1, **others: object) -> str:
    """Connect Linux' host to the target here; returns the controller, as nvme0."""
    options = options_of(guest, number, queues, **others)
    said = guest.run(
        f"modprobe nvme-rdma; exec 3<>/dev/nvme-fabrics; echo -n '{options}' >&3 && head -n1 <&3"
    )
    instance = said.split("instance=")[1].split(",")[0]
    wait_for(guest, f"[ -b /dev/nvme{instance}n1 ]")
    return f"nvme{instance}"


def wait_for(guest: Guest, condition: str, seconds: int = 30) -> None:
    guest.run(
        f"for i in $(seq {seconds * 10}); do {condition} && exit 0; sleep 0.1; done; exit 1",
        seconds + 30,
    )


def disconnect_disks(guest: Guest, controller: str) -> None:
    guest.run(f"echo 1 > /sys/class/nvme/{controller}/delete_controller")


def settle_ready(guest: Guest) -> None:
    """Modules that the tests use."""
    guest.run("modprobe nvme-rdma; modprobe ext4; mkdir -p /mnt; dmesg -c > /dev/null")


def boot_guests(lab: Lab, *numbers: int) -> list[Guest]:
    guests = lab.boot_all(*numbers, image=DISKS)
    for guest in guests:
        settle_ready(guest)
    return guests


# Each writer has a region of its own; what it writes goes into a shadow of the disk in memory, too.
VERIFY = """
set -e
disk={disk}; shadow=/tmp/shadow.$$; size={size}
dd if=$disk of=$shadow bs=64k count=$((size / 65536)) iflag=direct 2>/dev/null
writer() {{
    n=$1; part=$((size / 4 / 4096)); seed=$((n * 7919 + {seed}))
    dd if=/dev/urandom of=/tmp/random.$n bs=64k count=4 2>/dev/null
    for i in $(seq {rounds}); do
        seed=$(( (seed * 1103515245 + 12345) & 0x7fffffff ))
        blocks=$(( seed % 16 + 1 )); at=$(( n * part + (seed >> 8) % (part - 16) ))
        from=$(( (seed >> 4) % 47 ))
        what="if=/tmp/random.$n bs=4096 skip=$from seek=$at count=$blocks"
        dd $what of=$disk oflag=direct 2>/dev/null
        dd $what of=$shadow conv=notrunc 2>/dev/null
    done
}}
jobs=
for n in 0 1 2 3; do writer $n & jobs="$jobs $!"; done
for j in $jobs; do wait $j; done
dd if=$disk of=/tmp/now.$$ bs=64k count=$((size / 65536)) iflag=direct 2>/dev/null
cmp $shadow /tmp/now.$$
rm -f $shadow /tmp/now.$$ /tmp/random.*
echo VERIFIED
"""


def verify_command(disk: str, rounds: int, seed: int, size: int = 16 << 20) -> str:
    """Four writers at random places at once; the whole is compared with what they wrote."""
    return VERIFY.format(disk=disk, rounds=rounds, seed=seed, size=size)


def cut_cable(lab: Lab, guest: Guest, seconds: float) -> None:
    lab.run("ip", "link", "set", guest.tap, "down")
    time.sleep(seconds)
    lab.run("ip", "link", "set", guest.tap, "up")


LINUX_TARGET = """
set -e
modprobe nvmet-rdma; [ -b /dev/ram0 ] || modprobe brd rd_nr=1 rd_size={kib}
mount -t configfs none /sys/kernel/config 2>/dev/null || true
cd /sys/kernel/config/nvmet
mkdir subsystems/{nqn}; echo 1 > subsystems/{nqn}/attr_allow_any_host
mkdir subsystems/{nqn}/namespaces/1
echo -n /dev/ram0 > subsystems/{nqn}/namespaces/1/device_path
echo 1 > subsystems/{nqn}/namespaces/1/enable
mkdir ports/1; cd ports/1
echo ipv4 > addr_adrfam; echo rdma > addr_trtype; echo {address} > addr_traddr
echo {port} > addr_trsvcid
ln -s /sys/kernel/config/nvmet/subsystems/{nqn} subsystems/{nqn}
"""


def start_linux_target(guest: Guest, kib: int = 32_768) -> None:
    guest.run(LINUX_TARGET.format(nqn=NQN, kib=kib, address=guest.ipv4, port=PORT))


@contextmanager
def serving_guests(lab: Lab, folder: Path) -> Iterator[TargetProcess]:
    """A target for Linux: namespace 1 is a file, 2 is in memory, of 64 MiB each."""
    file, size = folder / "disk.img", 64 << 20
    with file.open("wb") as made:
        made.truncate(size)
    running = TargetProcess(lab, file, size)
    yield running
    for guest in lab.guests:
        guest.run("umount /mnt 2>/dev/null; nvme disconnect-all; dmesg -c > /dev/null")
    running.kill()
