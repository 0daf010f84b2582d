# SPDX-License-Identifier: Apache-2.0
"""`verbena doctor`, on this machine and on machines that lack something."""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.robust.child import deny
from tests.support import own_network, verbena_command
from verbena.cli import checks, host, reach
from verbena.cli.doctor import report, summary
from verbena.cli.finding import Finding, Verdict, good


def test_this_machine_works() -> None:
    done = subprocess.run(verbena_command("doctor"), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1].startswith("Verbena works here")


def test_eight_threads_are_no_limit() -> None:
    found = host.threads()
    assert found.verdict is Verdict.GOOD
    assert found.text == "at least 8 more can be started"


def test_json_has_every_finding() -> None:
    command = verbena_command("doctor", "--json")
    found = json.loads(subprocess.run(command, capture_output=True, timeout=60).stdout)
    names = {finding["name"] for finding in found}
    assert {"native libraries", "device", "cross-process copy", "processors"} <= names
    assert all(f["advice"] for f in found if f["verdict"] in ("bad", "slow"))


def test_bad_finding_is_counted_and_advice_is_shown() -> None:
    findings = [good("a", "fine"), Finding("b", Verdict.BAD, "broken", "mend it\nor buy one")]
    assert (
        report(findings) == "good  a: fine\n bad  b: broken\n      -> mend it\n      -> or buy one"
    )
    assert "1 of 2" in summary(findings)


def test_missing_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(**options: object) -> dict[str, str]:
        raise FileNotFoundError("libibverbs.so.1 is in none of: /x")

    monkeypatch.setattr("verbena.launch.environment", missing)
    finding = checks.libraries()
    assert finding.verdict is Verdict.BAD
    assert "pip install" in finding.advice


def test_libraries_that_do_not_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "libibverbs.so.1").write_text("not a library")
    environment = {"LD_LIBRARY_PATH": str(tmp_path), "PATH": "/bin"}
    monkeypatch.setattr("verbena.launch.environment", lambda **options: environment)
    finding = checks.libraries()
    assert finding.verdict is Verdict.BAD
    assert "libibverbs.so.1" in finding.text


def test_missing_programs_name_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "PACKAGES", {"perftest": "no-such-program", "coreutils": "ls"})
    finding = checks.programs()
    assert finding.verdict is Verdict.NOTE
    assert finding.advice.endswith("--no-install-recommends perftest")


def test_copy_that_yama_forbids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "copy_error", lambda: errno.EPERM)
    monkeypatch.setattr(reach, "yama_scope", lambda: 2)
    finding = checks.cross_process_copy()
    assert finding.verdict is Verdict.SLOW
    assert "kernel.yama.ptrace_scope=1" in finding.advice
    assert "--shared-heap" in finding.advice


def test_copy_that_a_filter_forbids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "yama_scope", lambda: None)
    monkeypatch.setattr(reach, "seccomp_filtered", lambda: True)
    why, advice = reach.explain(errno.EPERM)
    assert "system call filter" in why
    assert "SYS_PTRACE" in advice


def test_copy_between_siblings_is_really_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "read_error", lambda holder, buffer: errno.EPERM)
    assert reach.copy_error() == errno.EPERM


def test_reader_that_is_killed_counts_as_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(holder: int, buffer: object) -> int:
        import os

        os._exit(9)

    monkeypatch.setattr(reach, "read_error", killed)
    assert reach.copy_error() == errno.EPERM


def test_no_memory_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(name: str, flags: int = 0) -> int:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.memfd_create", forbidden)
    finding = host.shared_memory()
    assert finding.verdict is Verdict.BAD
    assert "memfd_create" in finding.advice


def test_no_shared_memory_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "SHM", tmp_path / "shm")
    assert host.shared_memory_room().verdict is Verdict.NOTE


def test_limited_address_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1 << 30, 1 << 30))
    finding = host.address_space()
    assert finding.verdict is Verdict.SLOW
    assert "1024 MiB" in finding.text


def test_few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 4096))
    assert host.descriptors().advice == "ulimit -n 4096"


def test_a_hard_limit_that_is_in_force_has_to_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (12, 12))
    assert host.descriptors().advice.startswith("The hard limit, 12, is in force")
    assert "hard limit" in host.address_space().advice


def test_a_device_that_does_not_open_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (12, 12))
    assert "hard limit" in checks.remedy(OSError(errno.EMFILE, "many"))
    assert "VERBENA_LOG" not in checks.remedy(OSError(errno.EFBIG, "large"))
    assert "VERBENA_LOG" in checks.remedy(OSError(errno.EIO, "odd"))


@pytest.mark.parametrize("call", ["clone3", "memfd_create"])
def test_a_filter_is_told_by_its_call(call: str) -> None:
    done = subprocess.run(
        verbena_command("doctor"),
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: deny([call]),
    )
    assert done.returncode == 1
    assert f"Allow this in the container's seccomp profile: {call}" in done.stdout


@pytest.mark.parametrize(
    ("text", "quota"), [("150000 100000\n", 1.5), ("max 100000\n", None), ("", None)]
)
def test_cpu_quota(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, quota: float | None
) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(text)
    monkeypatch.setattr(host, "CPU_QUOTA", file)
    assert host.cpu_quota() == quota


def test_one_processor_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    finding = host.processors()
    assert finding.verdict is Verdict.SLOW
    assert "Wait for events" in finding.advice


@pytest.mark.parametrize(
    ("text", "verdict"),
    [("always [advise] never", Verdict.GOOD), ("always advise [never]", Verdict.NOTE)],
)
def test_huge_pages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, verdict: Verdict
) -> None:
    file = tmp_path / "shmem_enabled"
    file.write_text(text)
    monkeypatch.setattr(host, "SHMEM_HUGE", file)
    assert host.huge_pages().verdict is verdict


# ---- limits that leave no room for a pair of programs -----------------------------------------


def limited_doctor(*prefix: str) -> tuple[int, str]:
    """`verbena doctor` behind a command that takes something away."""
    command = [*prefix, *verbena_command("doctor")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_no_interface_is_up() -> None:
    if os.geteuid():
        pytest.skip("this user may not make a network namespace; run the tests as root")
    status, said = limited_doctor("unshare", "-n")
    assert status == 1
    assert "bad  network interfaces: no interface is up" in said
    assert "-> ip link set lo up" in said


# Another user may not be let to this interpreter's files, so the modules are imported before.
FEW_THREADS = """
import os, resource, sys
from verbena import verbs
from verbena.cli import doctor, checks, host
os.setgroups([])
os.setuid(54321)
resource.setrlimit(resource.RLIMIT_NPROC, (4, 4))
sys.exit(doctor.main([]))
"""


def test_no_thread_can_be_started() -> None:
    if os.geteuid():
        pytest.skip("this process cannot become another user; run the tests as root")
    # In the machine's network a process of this user may have the port, which is no other's then.
    command = [*own_network(), sys.executable, "-c", FEW_THREADS]
    done = subprocess.run(command, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "bad  threads: only 3 more can be started" in said
    assert "ulimit -u counts" in said
    assert "ss -ulnpe" not in said
    assert "Traceback" not in said


@pytest.mark.parametrize("most", [14, 16, 20])
def test_too_few_descriptors_for_the_device(most: int) -> None:
    status, said = limited_doctor("prlimit", f"--nofile={most}")
    assert status == 1
    assert f"bad  file descriptors: {most}" in said
    assert "ss -ulnpe" not in said
    assert "Traceback" not in said


def test_a_device_without_threads_is_explained() -> None:
    assert "ulimit -u" in checks.remedy(OSError(errno.EAGAIN, "Resource temporarily unavailable"))


# ---- RoCE --------------------------------------------------------------------------------------


def test_the_roce_port_is_ours() -> None:
    finding = checks.roce_port()
    assert finding.verdict is Verdict.GOOD
    assert "4791" in finding.text


def test_the_roce_port_is_not_asked_for() -> None:
    command = verbena_command("doctor", "--json")
    env = os.environ | {"VERBENA_CARRIER": "direct"}
    found = json.loads(subprocess.run(command, env=env, capture_output=True, timeout=60).stdout)
    (finding,) = [finding for finding in found if finding["name"] == "RoCE port"]
    assert finding["verdict"] == "note"
    assert finding["text"].startswith("VERBENA_CARRIER=direct asks for it; only processes on this")


@pytest.mark.parametrize(
    ("received", "verdict"), [(212_992, Verdict.SLOW), (16 << 20, Verdict.GOOD)]
)
def test_small_packet_buffers_cost_speed(
    monkeypatch: pytest.MonkeyPatch, received: int, verdict: Verdict
) -> None:
    monkeypatch.setattr(host, "buffer_had", lambda option, forced: received)
    finding = host.packet_buffers()
    assert finding.verdict is verdict
    assert ("net.core.rmem_max=16777216" in finding.advice) == (verdict is Verdict.SLOW)


def test_packet_buffers_are_those_that_a_socket_gets() -> None:
    assert 0 < host.buffer_had(socket.SO_RCVBUF, host.SO_RCVBUFFORCE) <= host.WANTED_BUFFER
