# SPDX-License-Identifier: Apache-2.0
"""A small virtual machine with the real Linux soft-RoCE driver, and a network to reach it by.

An unmodified Debian kernel with rdma_rxe, and Debian's pingpongs and perftest. It is attached to a
bridge in a network namespace that is made here and removed again; the host's network is not
touched. Kernel and programs are fetched from Debian once and kept in the user's cache folder.

    python -m tests.roce.linux_guest      assemble it now, so that the first test need not
"""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from tests import debian_packages

PACKAGES = (
    "ibverbs-utils libibverbs1 ibverbs-providers librdmacm1 rdmacm-utils perftest "
    "libibumad3 iproute2 "
    "libnl-3-200 libnl-route-3-200 libmnl0 libelf1 libbpf1 libcap2 libpci3 libtirpc3 libbsd0 "
    "libmd0 libxtables12 libssl3 zlib1g liblzma5 libzstd1 libkmod2 libudev1 libgssapi-krb5-2 "
    "libkrb5-3 libk5crypto3 libcom-err2 libkrb5support0 libkeyutils1"
)
MODULES = (
    "drivers/infiniband/core",
    "drivers/infiniband/sw",
    "drivers/net/virtio_net",
    "drivers/net/net_failover",
    "net/ipv4",
    "net/ipv6",
    "net/core",
    "net/sched",
    "drivers/virtio",
    "fs/configfs",
    "crypto",
    "lib",
)
C_RUNTIME = "libc.so.6 libm.so.6 libpthread.so.0 libdl.so.2 librt.so.1 libresolv.so.2 libgcc_s.so.1"


@dataclass(frozen=True)
class Image:
    """What a guest has besides the kernel, and the folder of the cache that keeps it.

    With ``reads_this_host`` it can mount this host's files, read-only, by 9p under the tag "host".
    """

    name: str = "linux-guest"
    packages: str = PACKAGES
    modules: tuple[str, ...] = MODULES
    megabytes: int = 512
    processor: str = "qemu64"
    reads_this_host: bool = False

    @property
    def folder(self) -> Path:
        return debian_packages.CACHE / self.name


ROCE = Image()
DISKS = Image(
    "linux-guest-disks",
    f"{PACKAGES} nvme-cli libnvme1 libjson-c5 libuuid1 libdbus-1-3 libsystemd0 libgcrypt20 "
    "libgpg-error0 liblz4-1 e2fsprogs libext2fs2 libblkid1 libss2 logsave",
    (
        *MODULES,
        "drivers/nvme",
        "drivers/block/brd",
        "block",
        "fs/ext4",
        "fs/jbd2",
        "fs/mbcache",
    ),
)
# For the Python that runs the tests, which the guest reads from this host (tests/hardware). NumPy
# needs SSE 4.2, which QEMU's usual processor lacks.
PYTHON = Image(
    "linux-guest-python",
    modules=(*MODULES, "net/9p", "fs/9p", "fs/netfs", "fs/fscache"),
    megabytes=1024,
    processor="max",
    reads_this_host=True,
)
WASTE = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/bash-completion")
FOLDERS = "proc sys dev tmp run lib64 bin sbin lib/x86_64-linux-gnu etc"
SHELL_PORT = 7000
THIS_HOST = "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"
READY = b"GUEST-IS-READY"
# What has to be installed, and by which Debian package.
TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "cpio": "cpio",
    "depmod": "kmod",
    "ip": "iproute2",
    "apt-get": "apt",
}

# modprobe is where the kernel looks for it when it wants a module by itself.
INIT = f"""#!/bin/busybox sh
/bin/busybox --install -s /bin
ln -sf /bin/busybox /sbin/modprobe
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
export LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu:/lib/x86_64-linux-gnu
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
ulimit -l unlimited
for m in virtio_pci virtio_net configfs rdma_rxe ib_uverbs rdma_ucm; do modprobe $m; done
for a in $(cat /proc/cmdline); do
    case $a in number=*) N=${{a#number=}};; mtu=*) MTU=${{a#mtu=}};; esac
done
echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_dad
ip link set lo up; ip link set eth0 mtu $MTU up
ip addr add 10.77.0.$N/24 dev eth0; ip addr add fd00:77::$N/64 dev eth0
while ! ip addr show eth0 | grep -q 'inet6 fe80.* scope link *$'; do sleep 0.1; done
rdma link add rxe0 type rxe netdev eth0
echo {READY.decode()}
exec nc -ll -p {SHELL_PORT} -e /bin/sh
"""


def reason_not_to() -> str | None:
    """Why no guest can run here, or None."""
    if os.geteuid() != 0:
        return "this user may not connect a virtual machine to a bridge; run the tests as root"
    if not os.path.exists("/dev/net/tun"):
        return "this system has no /dev/net/tun; modprobe tun, or docker run --device, makes one"
    for tool, package in TOOLS.items():
        if not shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin"):
            return f"{tool} is not installed; apt-get install {package} brings it"
    return None


# ---- assembling it -----------------------------------------------------------------------------


def kernel_package() -> str:
    depends = subprocess.run(
        ["apt-cache", "depends", "linux-image-amd64"], capture_output=True, text=True, check=True
    ).stdout
    prefix = "linux-image-"
    return next(w for w in depends.split() if w.startswith(prefix) and w[len(prefix)].isdigit())


def take(package: str, folder: Path, work: Path) -> None:
    if not debian_packages.unpack(package, folder, work):
        print(f"{package} is not available: left out of the guest", file=sys.stderr)


def keep_modules(kernel: Path, root: Path, release: str, modules: tuple[str, ...]) -> None:
    source = kernel / "lib/modules" / release / "kernel"
    target = root / "lib/modules" / release / "kernel"
    for module in source.rglob("*.ko*"):
        relative = module.relative_to(source)
        if str(relative).startswith(modules):
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(module, target / relative)
    subprocess.run(["depmod", "-b", root, release], check=True, stderr=subprocess.DEVNULL)


def add_runtime(root: Path) -> None:
    for folder in FOLDERS.split():
        (root / folder).mkdir(parents=True, exist_ok=True)
    shutil.copy(shutil.which("busybox") or "", root / "bin/busybox")
    for library in C_RUNTIME.split():
        shutil.copy(f"/lib/x86_64-linux-gnu/{library}", root / "lib/x86_64-linux-gnu")
    shutil.copy("/lib64/ld-linux-x86-64.so.2", root / "lib64")
    for waste in WASTE:
        shutil.rmtree(root / waste, ignore_errors=True)
    (root / "init").write_text(INIT)
    (root / "init").chmod(0o755)


def unpacked_kernel(file: bytes) -> bytes:
    """The kernel itself, which QEMU starts too: to unpack it is half of what an emulated processor
    does until the guest is up. A file that holds none that is packed by xz is returned as it is."""
    start = file.find(b"\xfd7zXZ\0")
    if start < 0:
        return file
    kernel = lzma.LZMADecompressor().decompress(file[start:])
    return kernel if kernel.startswith(b"\x7fELF") else file


def build(image: Image = ROCE) -> tuple[Path, Path]:
    """Kernel and initial file system, from the cache or assembled from Debian's packages."""
    cache = image.folder
    kernel, initrd = cache / "linux", cache / "initrd"
    script = cache / "init"
    recipe = "\n".join((INIT, image.packages, *image.modules))
    if initrd.exists() and script.exists() and script.read_text() == recipe:
        return kernel, initrd
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        work, root, unpacked = (Path(folder) / name for name in ("work", "root", "image"))
        for path in (work, root, unpacked):
            path.mkdir()
        package = kernel_package()
        take(package, unpacked, work)
        for name in image.packages.split():
            take(name, root, work)
        release = package.removeprefix("linux-image-")
        packed = unpacked / "boot" / f"vmlinuz-{release}"
        kernel.write_bytes(unpacked_kernel(packed.read_bytes()))
        keep_modules(unpacked, root, release, image.modules)
        add_runtime(root)
        pack = f"find . | cpio --quiet -o -H newc > {initrd}.part"
        subprocess.run(["sh", "-c", pack], cwd=root, check=True)
        Path(f"{initrd}.part").rename(initrd)
        script.write_text(recipe)
    return kernel, initrd


# ---- running it --------------------------------------------------------------------------------

# Commands for the guest's shell travel over TCP, from within the namespace.
RELAY = """
import socket, sys, time
for _ in range(50):
    try:
        link = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)
        break
    except OSError:
        time.sleep(0.1)
link.settimeout(None)
link.sendall(sys.stdin.read().encode())
while data := link.recv(65536):
    sys.stdout.write(data.decode(errors="replace"))
    sys.stdout.flush()
"""
STATUS = "__STATUS="

# An emulated machine is slow by itself: beside other tests it goes ahead of them, so that it is up
# and answers as soon as on a quiet host. Where this user may not ask for that, `nice` says so and
# starts it anyway.
AHEAD = ("nice", "-n", "-10")


class Guest:
    """One running machine with the device rxe0."""

    def __init__(self, lab: Lab, number: int, image: Image = ROCE) -> None:
        self.lab = lab
        self.tap = f"tap{number}"
        self.ipv4, self.ipv6 = f"10.77.0.{number}", f"fd00:77::{number}"
        tap = self.tap
        lab.run("ip", "tuntap", "add", tap, "mode", "tap")
        lab.run("ip", "link", "set", tap, "mtu", str(lab.mtu), "master", "br0", "up")
        kernel, initrd = build(image)
        self.log = Path(tempfile.mkstemp(prefix="verbena-guest-")[1])
        options = {
            "m": str(image.megabytes),
            "cpu": image.processor,
            "smp": str(lab.processors.get(number, 1)),
            "machine": "accel=tcg",  # everywhere the same, and nested virtualisation need not work
            "serial": "stdio",
            "kernel": str(kernel),
            "initrd": str(initrd),
            "append": f"console=ttyS0 quiet panic=1 number={number} mtu={lab.mtu}",
            "netdev": f"tap,id=n0,ifname={tap},script=no,downscript=no",
            "device": f"virtio-net-pci,netdev=n0,romfile=,host_mtu={lab.mtu},"
            f"mac=52:54:00:77:00:{number:02x}",
        }
        if image.reads_this_host:
            options["virtfs"] = THIS_HOST
        words = [word for name, value in options.items() for word in (f"-{name}", value)]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                lab.command(
                    *AHEAD, "qemu-system-x86_64", "-nographic", "-no-reboot", "-nodefaults", *words
                ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait_ready(self, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while READY not in self.log.read_bytes():
            if self.process.poll() is not None or time.monotonic() > deadline:
                said = self.log.read_text(errors="replace")[-3000:]
                raise RuntimeError(f"the guest did not come up:\n{said}")
            time.sleep(0.1)

    def start(self, command: str) -> subprocess.Popen[str]:
        """A command in the guest's shell: its output is the process's, the status at its end."""
        relay = subprocess.Popen(
            self.lab.command(sys.executable, "-c", RELAY, self.ipv4, str(SHELL_PORT)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert relay.stdin
        relay.stdin.write(f"({command}) 2>&1; echo {STATUS}$?\nexit\n")
        relay.stdin.close()
        relay.stdin = None
        return relay

    @staticmethod
    def status_and_text(output: str) -> tuple[int, str]:
        text, _, status = output.rpartition(STATUS)
        return int(status.strip() or -1) if status.strip().isdigit() else -1, text

    def run(self, command: str, seconds: float = 60) -> str:
        """Run a command to its end. Raises RuntimeError when it fails."""
        output, _ = self.start(command).communicate(timeout=seconds)
        status, text = self.status_and_text(output)
        if status:
            raise RuntimeError(f"{command!r} ended with {status} in the guest:\n{output}")
        return text

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=10)
        self.log.unlink(missing_ok=True)


_labs = count()  # a process may have several, one after the other or beside each other


class Lab:
    """A network namespace with a bridge, on which this side is 10.77.0.1 and fd00:77::1.

    ``processors`` are those of guests, by number, that have more than one: emulated processors that
    wait for each other make a guest several times as slow on a busy host.
    """

    ipv4, ipv6 = "10.77.0.1", "fd00:77::1"

    def __init__(self, mtu: int = 1500, processors: Mapping[int, int] | None = None) -> None:
        self.namespace = f"vbguest{os.getpid()}n{next(_labs)}"
        self.mtu = mtu
        self.processors = processors or {}
        self.guests: list[Guest] = []

    def command(self, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.namespace, *words]

    def run(self, *words: str) -> None:
        subprocess.run(self.command(*words), check=True)

    def __enter__(self) -> Self:
        subprocess.run(["ip", "netns", "add", self.namespace], check=True)
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "link", "add", "br0", "mtu", str(self.mtu), "type", "bridge")
        self.run("ip", "addr", "add", f"{self.ipv4}/24", "dev", "br0")
        self.run("ip", "addr", "add", f"{self.ipv6}/64", "dev", "br0", "nodad")
        self.run("ip", "link", "set", "br0", "up")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for guest in self.guests:
            guest.stop()
        subprocess.run(["ip", "netns", "del", self.namespace], check=True)

    def boot(self, number: int = 2, image: Image = ROCE) -> Guest:
        return self.boot_all(number, image=image)[0]

    def boot_all(self, *numbers: int, image: Image = ROCE) -> list[Guest]:
        started = [Guest(self, number, image) for number in numbers]
        self.guests += started
        for guest in started:
            guest.wait_ready()
        return started


if __name__ == "__main__":
    images = (ROCE, DISKS, PYTHON)
    print(reason_not_to() or " ".join(str(path) for each in images for path in build(each)))
