# SPDX-License-Identifier: Apache-2.0
"""The checks of `verbena doctor` that concern software: Verbena's own, and RDMA programs.

verbena.cli.doctor calls findings(). No check changes anything on the machine.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from verbena import _native, launch
from verbena.cli import host, probe, reach
from verbena.cli.finding import Finding, Verdict, good
from verbena.version import full_version

SYSFS_DEVICES = Path("/sys/class/infiniband")
SYSTEM_FOLDERS = "/usr/sbin:/sbin:/usr/bin:/bin"

# A program, or a folder, of each Debian package that is worth having.
PACKAGES = {
    "ibverbs-utils": "ibv_rc_pingpong",
    "perftest": "ib_write_bw",
    "ucx-utils": "ucx_perftest",
    "python3-pyverbs": "/usr/lib/python3/dist-packages/pyverbs",
}

PORT_ADVICE = (
    "Who has it: ss -ulnpe 'sport = :4791'; soft-RoCE: rdma link show, rdma link delete NAME.\n"
    "Processes share the port if they belong to one user. It must not be VERBENA_CARRIER=direct."
)

# Runs with the environment of `verbena run`.
LOOK = """
import ctypes, os
ctypes.CDLL("libibverbs.so.1")
print(os.path.exists("/sys/class/infiniband/verbena0"))
"""


def findings() -> Iterator[Finding]:
    """Yield every finding about software."""
    yield libraries()
    yield device()
    yield two_processes()
    yield roce_port()
    yield programs()
    yield cross_process_copy()
    yield real_devices()


def libraries() -> Finding:
    """Check that Verbena's libraries exist, and that the dynamic linker loads them into a
    program."""
    name = "native libraries"
    try:
        environment = launch.environment(log=launch.LogLevel.ERRORS)
    except (FileNotFoundError, ValueError) as error:
        return Finding(name, Verdict.BAD, str(error), "Install Verbena: pip install .")
    try:
        done = subprocess.run(
            [sys.executable, "-c", LOOK], env=environment, capture_output=True, text=True
        )
    except OSError as error:
        return Finding(name, Verdict.BAD, f"no process can be started: {error}", remedy(error))
    if done.returncode or done.stderr or done.stdout.strip() != "True":
        said = done.stderr.strip().splitlines()
        return Finding(
            name,
            Verdict.BAD,
            f"those in {_native.library_dir()} do not load: {said[-1] if said else 'no device'}",
            "Build them for this system: pip install --force-reinstall .",
        )
    built = f"Verbena {full_version()}, {_native.library_dir()}"
    return good(name, f"{built} (built; running needs no compiler)")


def device() -> Finding:
    """Check that the device opens in this process."""
    try:
        from verbena import verbs

        with verbs.open_device() as context:
            return good("device", f"{context.name} opens")
    except (ImportError, OSError) as error:
        return Finding("device", Verdict.BAD, f"it does not open: {error}", remedy(error))


def two_processes() -> Finding:
    """Check that two processes of this user, with the limits of this one, connect."""
    name = "two processes"
    try:
        probe.probe()
    except OSError as error:
        return Finding(name, Verdict.BAD, str(error), remedy(error))
    return good(name, "they connect")


def remedy(error: Exception) -> str:
    """Return what to do about a device that does not open."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EMFILE:
        return host.more_descriptors()
    if number == errno.EAGAIN:
        return host.more_threads()
    if number in (errno.EPERM, errno.ENOSYS) and (calls := host.forbidden_calls()):
        return f"Allow this in the container's seccomp profile: {', '.join(calls)}"
    if number in (errno.EFBIG, errno.ENOMEM, errno.ENFILE, errno.EUSERS):
        return "Its last words say what to do."
    return "Set VERBENA_LOG=debug to see why."


def roce_port() -> Finding:
    """Check UDP port 4791, by which other hosts are reached."""
    name = "RoCE port"
    try:
        from verbena import verbs

        with verbs.open_device() as context:
            found = (context.describe() or {}).get("roce", {})
    except (ImportError, OSError) as error:
        return Finding(name, Verdict.NOTE, f"not looked at, for the device does not open: {error}")
    if "udp_port" in found:
        return good(name, f"UDP port {found['udp_port']} is ours: other hosts are reached by RoCE")
    reason = found.get("reason", "none")
    limit = next(
        (limit for limit in (errno.EMFILE, errno.EAGAIN) if os.strerror(limit) in reason), 0
    )
    return Finding(
        name,
        Verdict.BAD if limit else Verdict.NOTE,
        f"{reason}; only processes on this host are reached",
        remedy(OSError(limit, reason)) if limit else PORT_ADVICE,
    )


def present(evidence: str) -> bool:
    if evidence.startswith("/"):
        return Path(evidence).exists()
    return shutil.which(evidence, path=f"{os.environ.get('PATH', '')}:{SYSTEM_FOLDERS}") is not None


def programs() -> Finding:
    """Check for RDMA programs to run over Verbena, which works without them."""
    missing = [package for package, evidence in PACKAGES.items() if not present(evidence)]
    if not missing:
        return good("RDMA programs", f"{', '.join(PACKAGES)} are installed")
    return Finding(
        "RDMA programs",
        Verdict.NOTE,
        f"not installed: {', '.join(missing)}",
        f"On Debian: sudo apt install --no-install-recommends {' '.join(missing)}",
    )


def cross_process_copy() -> Finding:
    """Check how peers reach memory that a program allocated by itself."""
    name = "cross-process copy"
    try:
        error = reach.copy_error()
    except OSError as failed:
        return Finding(name, Verdict.BAD, f"no process can be started: {failed}", remedy(failed))
    if not error:
        scope = reach.yama_scope()
        detail = "" if not scope else f" (Yama scope {scope}: Verbena's processes permit it)"
        return good(name, f"allowed: peers copy a program's own memory directly{detail}")
    why, advice = reach.explain(error)
    text = f"{why}; a program's own memory goes through a bounce ring, which costs speed only"
    return Finding(name, Verdict.SLOW, text, f"{advice}\nOr use verbena run --shared-heap.")


def real_devices() -> Finding:
    """List real adapters of this host. Programs without `verbena run` still use them."""
    try:
        found = sorted(path.name for path in SYSFS_DEVICES.iterdir())
    except OSError:
        found = []
    ours = [name for name in found if name.startswith("verbena")]
    if ours:
        return good("real RDMA devices", "not looked for: this is already running over Verbena")
    if not found:
        return good("real RDMA devices", "none here; Verbena needs none")
    return Finding(
        "real RDMA devices",
        Verdict.NOTE,
        f"{', '.join(found)}; a program under `verbena run` sees verbena0 instead of them",
        "Start the program without `verbena run` to use them.",
    )
