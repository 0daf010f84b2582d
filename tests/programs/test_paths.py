# SPDX-License-Identifier: Apache-2.0
"""The files below /sys and /dev that programs find over Verbena, and the calls that show them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.support import (
    ROOT,
    clean_environment,
    own_network,
    plain_environment,
    program_or_skip,
    verbena_command,
)
from verbena._native import library

SYSFS = "/sys/class/infiniband"
DEVICE = f"{SYSFS}/verbena0"
CHILD = Path(__file__).with_name("paths_child.py")

Outcomes = dict[str, dict[str, str | list[str]]]


def over_verbena(network: list[str], *program: str) -> str:
    done = subprocess.run(
        [*network, *verbena_command("run", "--", *program)],
        env=clean_environment() | {"LC_ALL": "C"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def verbena() -> Callable[..., str]:
    """verbena(*program): what a program prints over Verbena; it must succeed and say no error."""
    return partial(over_verbena, [])


@pytest.fixture(scope="module")
def alone() -> Callable[..., str]:
    """As `verbena`, where no other program sends: the device counts the packets of all."""
    return partial(over_verbena, own_network())


# ---- every function on every kind of path ------------------------------------------------------


@pytest.fixture(scope="module")
def outcomes(verbena: Callable[..., str]) -> Outcomes:
    found: Outcomes = json.loads(verbena(sys.executable, str(CHILD)))
    return found


def expected(kinds: str, *values: object) -> dict[str, object]:
    return dict(zip(kinds.split(), values, strict=True))


KINDS = "file directory link device"
LOST = {"missing": "ENOENT", "below a file": "ENOTDIR", "foreign missing": "ENOENT"}
PORTS, BELOW_LINK = [".", "..", "1"], {".", "..", "net", "numa_node", "vendor", "device"}

READING = expected(KINDS, "1: CA", "directory", "directory", "") | LOST
WRITING = expected(KINDS, "EACCES", "EISDIR", "EISDIR", "EBADF") | LOST
FOLLOWING = expected(KINDS, "-r--r--r--", "drwxr-xr-x", "drwxr-xr-x", "crw-rw-rw-") | LOST
NOT_FOLLOWING = FOLLOWING | {"link": "lrwxrwxrwx"}
STREAM_WRITING = expected(KINDS, "EACCES", "EISDIR", "EISDIR", "") | LOST
RESOLVED = expected(
    KINDS, f"{DEVICE}/node_type", f"{DEVICE}/ports", f"{DEVICE}/device", "/dev/infiniband/uverbs0"
)
LINKS = expected(KINDS, "EINVAL", "EINVAL", f"{DEVICE}/device", "EINVAL")
GLOBBED = {
    "file": [f"{DEVICE}/node_type"],
    "device": ["/dev/infiniband/uverbs0"],
    "missing": "no match",
}
EXPECTED: dict[str, dict[str, object]] = {
    r"(__)?open(at)?(64)?(_2)? r": READING,
    r"open(at)?(64)? w": WRITING,
    r"open creating": dict.fromkeys(KINDS.split(), "EEXIST") | LOST | {"missing": "EACCES"},
    r"open directory": READING | {"file": "ENOTDIR", "device": "ENOTDIR"},
    r"open nofollow": READING | {"link": "ELOOP"},
    r"fopen(64)? re": READING | {"directory": "", "link": ""},
    r"fopen(64)? r\+": STREAM_WRITING,
    r"fopen(64)? a": STREAM_WRITING | {"missing": "EACCES"},
    r"(f?stat(at)?(64)?|__f?xstat(at)?(64)?|statx)": FOLLOWING,
    r"(lstat(64)?|__lxstat(64)?|fstatat nofollow)": NOT_FOLLOWING,
    r"(access|euidaccess|eaccess|faccessat) 4": dict.fromkeys(KINDS.split(), "0") | LOST,
    r"(access|euidaccess|eaccess|faccessat) 2": expected(KINDS, *["EACCES"] * 3, "0") | LOST,
    r"(access|euidaccess|eaccess|faccessat) 1": expected(KINDS, "EACCES", "0", "0", "EACCES")
    | LOST,
    r"readlink(at)?": LINKS | LOST,
    r"(realpath|canonicalize_file_name|__realpath_chk)": RESOLVED | LOST,
    r"l?(get|list)xattr": dict.fromkeys(KINDS.split(), "ENOTSUP") | LOST,
    r"(opendir readdir(64)?(_r)?|fdopendir)": {
        "file": "ENOTDIR",
        "directory": PORTS,
        "device": "ENOTDIR",
    }
    | LOST,
    r"scandir(at)?(64)?": {"file": "ENOTDIR", "directory": PORTS[1:], "device": "ENOTDIR"} | LOST,
    r"glob(64)?": GLOBBED,
}


def test_every_call_has_an_expectation(outcomes: Outcomes) -> None:
    matches = {name: [p for p in EXPECTED if re.fullmatch(p, name)] for name in outcomes}
    assert [name for name, patterns in matches.items() if len(patterns) != 1] == []


def test_every_exported_function_is_called(outcomes: Outcomes) -> None:
    command = ["nm", "--dynamic", "--defined-only", str(library("libverbena_paths.so"))]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    exported = {line.split()[-1] for line in output.splitlines()}
    called = {word for name in outcomes for word in name.split()}
    used_by_all_listings = {"closedir", "rewinddir", "seekdir", "telldir", "dirfd"}
    c_tests = ROOT / "tests" / "native" / "dropin"
    watched = {
        name
        for test in ("test_faults.c", "test_watched_calls.c", "test_freed_memory.c")
        for name in re.findall(r"\b(\w+)\(", (c_tests / test).read_text())
    }
    working_directory = set(re.findall(r"\w+", CHANGES)) | {"chdir", "fchdir"}
    elsewhere = used_by_all_listings | watched | working_directory
    elsewhere |= {"socket", "write", "ioctl"}  # test_unused.py, test_rdma_cm.py, test_umad.py
    assert exported - called - elsewhere == set()
    assert "open64" in exported


@pytest.mark.parametrize("pattern", EXPECTED)
def test_outcomes_are_those_of_sysfs(outcomes: Outcomes, pattern: str) -> None:
    calls = [name for name in outcomes if re.fullmatch(pattern, name)]
    assert calls
    for name in calls:
        got = {kind: outcomes[name][kind] for kind in EXPECTED[pattern]}
        assert got == EXPECTED[pattern], name


def test_other_files_are_left_alone(outcomes: Outcomes) -> None:
    assert outcomes["open64 r"]["foreign"] == outcomes["fopen64 re"]["foreign"]
    assert outcomes["stat64"]["foreign"] == "-rw-r--r--"
    assert outcomes["readlink"]["foreign"] == "EINVAL"
    assert outcomes["glob"]["foreign"] == ["/proc/self/comm"]


def test_link_lists_what_it_leads_to(outcomes: Outcomes) -> None:
    assert set(outcomes["opendir readdir"]["link"]) >= BELOW_LINK


# ---- programs see the same tree as on a disk ---------------------------------------------------

WALK = """
import pathlib, sys
root = pathlib.Path(sys.argv[1])
for path in sorted(root.rglob("*")):
    kind = "l" if path.is_symlink() else "d" if path.is_dir() else "f"
    text = path.read_text() if kind == "f" else ""
    print(path.relative_to(root), kind, repr(text))
"""

# {root} stands for the folder that is looked at.
PROGRAMS = {
    "ls": ["ls", "-R", "{root}"],
    "find": ["sh", "-c", "find {root} -type f -printf '%p %s %m\\n' -o -printf '%p %y\\n' | sort"],
    "cat": ["sh", "-c", "for f in {root}/*_* {root}/ports/1/gids/*; do cat $f; done"],
    "grep": ["sh", "-c", "grep -r '' {root} | sort"],
    "stat": ["sh", "-c", "stat -c '%n %F %s %a' {root}/ports/1/* | grep -v directory"],
    "bash": ["bash", "-c", "for f in {root}/*; do [ -f $f ] && read -r x < $f; echo $f $x; done"],
    "pathlib": [sys.executable, "-c", WALK, "{root}"],
}


@pytest.fixture(scope="module")
def copy(alone: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The device's folder, copied to a disk by cp."""
    folder = tmp_path_factory.mktemp("sysfs") / "verbena0"
    alone("cp", "-a", DEVICE, str(folder))
    return folder


def seen_on_disk(name: str, copy: Path) -> str:
    """What a program of PROGRAMS prints of a copy, without the copy's own path."""
    shown = subprocess.run(
        [word.replace("{root}", str(copy)) for word in PROGRAMS[name]],
        env=plain_environment() | {"LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert len(shown.splitlines()) > 5
    return shown.replace(str(copy), "")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_sees_what_is_on_disk(alone: Callable[..., str], copy: Path, name: str) -> None:
    virtual = alone(*(word.replace("{root}", DEVICE) for word in PROGRAMS[name]))
    assert virtual.replace(DEVICE, "") == seen_on_disk(name, copy)


def test_cpp_stream_reads_it(verbena: Callable[..., str], tmp_path: Path) -> None:
    compiler = program_or_skip("g++")
    source, program = tmp_path / "stream.cpp", tmp_path / "stream"
    source.write_text(
        """
        #include <filesystem>
        #include <fstream>
        #include <iostream>
        #include <string>
        int main(int, char **argv)
        {
            std::string word;
            std::ifstream(std::string(argv[1]) + "/fw_ver") >> word;
            int files = 0;
            for (auto &entry : std::filesystem::recursive_directory_iterator(argv[1]))
                files += entry.is_regular_file();
            std::cout << word << ' ' << (files > 50) << std::endl;
        }
        """
    )
    build = [compiler, "-std=c++17", "-O2", "-D_FORTIFY_SOURCE=2", "-o", program, source]
    subprocess.run(build, env=plain_environment(), check=True)
    version, many = verbena(str(program), DEVICE).split()
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert many == "1"


def test_list_with_attributes_has_no_error(verbena: Callable[..., str]) -> None:
    listing = verbena("ls", "-la", DEVICE, "/dev/infiniband", f"{DEVICE}/device/net")
    assert re.search(r"^crw-rw-rw- .* 231, 192 .* uverbs0$", listing, re.MULTILINE)
    assert re.search(r"^-r--r--r-- .* node_guid$", listing, re.MULTILINE)


def test_names_are_resolved_as_the_kernel_does(verbena: Callable[..., str]) -> None:
    same = [f"/sys//class/./infiniband/verbena0//{part}" for part in ("fw_ver", "ports/../fw_ver")]
    assert len(set(verbena("cat", f"{DEVICE}/fw_ver", *same).split())) == 1
    host = verbena("ls", "-d", f"{SYSFS}/../net/", "/dev/infiniband/../null")
    assert len(host.split()) == 2


def test_link_leads_out_to_the_kernels_own_files(verbena: Callable[..., str]) -> None:
    (interface,) = verbena("ls", f"{DEVICE}/device/net").split()
    index = verbena("cat", f"{DEVICE}/device/net/{interface}/ifindex")
    assert index == Path(f"/sys/class/net/{interface}/ifindex").read_text()


def test_entries_of_the_host_stand_beside_ours(verbena_run: Run) -> None:
    """In a mount namespace of its own, the host gets a device file like a real adapter's."""
    namespace = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*namespace, "true"], capture_output=True).returncode:
        pytest.skip(
            "no mount namespace may be made; sysctl user.max_user_namespaces=1000 allows it"
        )
    make = "mount -t tmpfs none /dev && mkdir /dev/infiniband && echo umad > /dev/infiniband/umad7"
    look = "ls /dev/infiniband; cat /dev/infiniband/umad7"
    done = verbena_run(*namespace, "sh", "-c", f"{make} && {look}")
    assert done.stdout.split() == ["rdma_cm", "umad0", "umad7", "uverbs0", "umad"]


# ---- values ------------------------------------------------------------------------------------


def test_guid_is_the_same_in_all_places(verbena: Callable[..., str]) -> None:
    guid, system = verbena("cat", f"{DEVICE}/node_guid", f"{DEVICE}/sys_image_guid").split()
    assert guid == system
    first = int(guid[:2], 16)
    assert first & 0b11 == 0b10  # locally administered, not a group
    assert verbena("cat", f"{DEVICE}/ports/1/gids/1") == f"fe80:0000:0000:0000:{guid}\n"


def test_gids_are_the_hosts_addresses(verbena: Callable[..., str]) -> None:
    files = verbena("sh", "-c", f"cat {DEVICE}/ports/1/gids/*").split()
    mapped = [gid.split(":") for gid in files if gid.startswith("0000:0000:0000:0000:0000:ffff:")]
    numbers = [int(upper + lower, 16) for *_, upper, lower in mapped]
    found = {".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0)) for number in numbers}
    command = ["ip", "-j", "-4", "addr", "show", "up"]
    interfaces = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    addresses = {a["local"] for i in interfaces for a in i.get("addr_info", [])}
    assert found == addresses


def test_state_is_what_the_device_says(verbena_run: Run) -> None:
    """An interface that is not there has no carrier."""
    for netdev, state, physical, port in (
        ("lo", "4: ACTIVE", "5: LinkUp", "PORT_ACTIVE"),
        ("nosuch0", "1: DOWN", "3: Disabled", "PORT_DOWN"),
    ):
        env = {"VERBENA_NETDEV": netdev}
        files = [f"{DEVICE}/ports/1/{name}" for name in ("state", "phys_state")]
        assert verbena_run("cat", *files, env=env).stdout.splitlines() == [state, physical]
        assert port in verbena_run("ibv_devinfo", env=env).stdout


def test_each_gid_has_a_type_and_an_interface(verbena: Callable[..., str]) -> None:
    port = f"{DEVICE}/ports/1"
    count = len(verbena("ls", f"{port}/gids").split())
    types = verbena("sh", "-c", f"cat {port}/gid_attrs/types/*").splitlines()
    assert types == ["RoCE v2"] * count
    names = verbena("sh", "-c", f"cat {port}/gid_attrs/ndevs/*").split()
    assert set(names) <= set(os.listdir("/sys/class/net"))


# ---- the working directory ---------------------------------------------------------------------


def test_a_shell_works_inside_the_tree(verbena: Callable[..., str]) -> None:
    """Its own calls and its commands' take relative paths from there, and the way out is open."""
    script = f"""
        cd {SYSFS} && pwd -P && echo * && cat verbena0/node_type
        (cd verbena0/ports && echo * && /bin/pwd && sh -c 'cat 1/state; ls -d 1/gids; cd ..; pwd')
        cd verbena0/ports/1 && test -r state && ! test -e nothing && ls -l rate | wc -l
        cd ../../.. && pwd && cd .. && pwd && cd / && pwd -P && ls -d etc
    """
    expected = [SYSFS, "verbena0", "1: CA", "1", f"{DEVICE}/ports", "4: ACTIVE", "1/gids", DEVICE]
    expected += ["1", SYSFS, "/sys/class", "/", "etc"]
    for shell in ("dash", "bash"):
        assert verbena(shell, "-c", script).splitlines() == expected, shell


CHANGES = f"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
os.environ["TMPDIR"] = sys.argv[1]
before = len(os.listdir("/proc/self/fd"))
os.chdir("{DEVICE}")
buffer = ctypes.create_string_buffer(4096)
for name, *arguments in (
    ("getcwd", buffer, 4096), ("__getcwd_chk", buffer, 4096, 4096), ("getcwd", None, 0),
    ("get_current_dir_name",),
):
    function = getattr(libc, name)
    function.restype = ctypes.c_char_p
    assert function(*(ctypes.c_size_t(a) if isinstance(a, int) else a for a in arguments)) \
        == b"{DEVICE}", name
assert libc.getcwd(buffer, ctypes.c_size_t(5)) is None
assert os.path.samefile(".", "{DEVICE}") and os.getcwd() == "{DEVICE}"
fd = os.open("ports/1", os.O_RDONLY | os.O_DIRECTORY)
os.fchdir(fd)
assert os.getcwd() == "{DEVICE}/ports/1" and open("state").read() == "4: ACTIVE\\n"
for wrong, error in (("nothing", FileNotFoundError), ("state", NotADirectoryError)):
    try:
        os.chdir(wrong)
    except error:
        assert os.getcwd() == "{DEVICE}/ports/1"
    else:
        raise AssertionError(wrong)
os.close(fd)
fd = os.open("/", os.O_RDONLY)
os.fchdir(fd)
os.close(fd)
assert os.getcwd() == "/" and not os.path.exists("state")
assert (os.listdir(sys.argv[1]), len(os.listdir("/proc/self/fd"))) == ([], before)
"""


def test_every_call_about_the_working_directory(
    verbena: Callable[..., str], tmp_path: Path
) -> None:
    verbena(sys.executable, "-c", CHANGES, str(tmp_path))


# ---- where it stops ----------------------------------------------------------------------------


def test_nothing_is_seen_without_verbena_run() -> None:
    done = subprocess.run(["ls", DEVICE], env=plain_environment(), capture_output=True, text=True)
    assert done.returncode != 0


def test_nothing_is_left_on_disk(verbena: Callable[..., str], tmp_path: Path) -> None:
    before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    verbena("env", f"TMPDIR={tmp_path}", "grep", "-r", "ACTIVE", DEVICE)
    assert list(tmp_path.iterdir()) == []
    assert not os.path.isdir("/dev/shm") or set(os.listdir("/dev/shm")) <= before


def test_opened_file_cannot_be_changed(verbena: Callable[..., str]) -> None:
    script = f"""
import os
fd = os.open({DEVICE + "/fw_ver"!r}, os.O_RDONLY)
for change in (lambda: os.write(fd, b"x"), lambda: os.ftruncate(fd, 0)):
    try:
        change()
        print("changed")
    except OSError:
        pass
print(os.fstat(fd).st_ino == os.stat({DEVICE + "/fw_ver"!r}).st_ino)
"""
    assert verbena(sys.executable, "-c", script) == "True\n"


def test_directory_descriptor_survives_dup_and_fork(verbena: Callable[..., str]) -> None:
    script = f"""
import os
fd = os.dup(os.open({DEVICE!r}, os.O_RDONLY | os.O_DIRECTORY))
if os.fork() == 0:
    file = os.open("ports/1/state", os.O_RDONLY, dir_fd=fd)
    print(os.read(file, 100).decode().strip(), os.stat("device", dir_fd=fd).st_nlink, flush=True)
    link = "device/net/" + os.listdir("{DEVICE}/device/net")[0]
    print(len(os.listdir(fd)) > 5, os.readlink(link, dir_fd=fd)[:15], flush=True)
    os._exit(0)
os.wait()
"""
    assert verbena(sys.executable, "-c", script) == "4: ACTIVE 3\nTrue /sys/class/net/\n"


def test_log_level_info_says_that_a_device_is_shown(verbena_run: Run) -> None:
    quiet, loud = (verbena_run("true", options=options) for options in ((), ("--log", "info")))
    assert quiet.stdout == ""
    assert "(true) sees verbena0 below /sys/class/infiniband" in loud.stdout


# ---- the rdma tool -----------------------------------------------------------------------------


def test_rdma_lists_the_link_as_json(verbena: Callable[..., str]) -> None:
    (link,) = json.loads(verbena("rdma", "link", "show", "-j"))
    interface = os.listdir("/sys/class/net")
    expected_values = {"ifname": "verbena0", "port": 1, "state": "ACTIVE"}
    assert {key: link[key] for key in expected_values} == expected_values
    assert link["physical_state"] == "LINK_UP"
    assert link["netdev"] in interface
    index = Path(f"/sys/class/net/{link['netdev']}/ifindex").read_text()
    assert link["netdev_index"] == int(index)


def test_rdma_lists_the_link_as_text(verbena: Callable[..., str]) -> None:
    assert verbena("rdma", "link", "show", "verbena0/1").startswith(
        "link verbena0/1 state ACTIVE physical_state LINK_UP netdev "
    )


def test_rdma_knows_no_other_device(verbena_run: Run) -> None:
    done = verbena_run("rdma", "link", "show", "mlx5_0")
    assert (done.returncode, done.stdout) == (1, "Wrong device name\n")


def test_rdma_lists_the_device(verbena: Callable[..., str], verbena_run: Run) -> None:
    (device,) = json.loads(verbena("rdma", "-j", "dev"))
    guid = verbena("cat", "/sys/class/infiniband/verbena0/node_guid").strip()
    assert device["ifname"] == "verbena0"
    assert (device["node_type"], device["node_guid"]) == ("ca", guid)
    assert verbena("rdma", "dev", "show", "verbena0").startswith(
        f"0: verbena0: node_type ca fw {device['fw']} node_guid {guid} sys_image_guid "
    )
    other = verbena_run("rdma", "dev", "show", "mlx5_0")
    assert (other.returncode, "Wrong device name" in other.stdout) == (1, True)


@pytest.mark.parametrize(
    "words", [("resource", "show", "qp"), ("statistic",), ("link", "add", "a")]
)
def test_rdma_says_what_to_use_instead(verbena_run: Run, words: tuple[str, ...]) -> None:
    """The kernel, which iproute2's asks, does not know the device: it shows nothing, or fails."""
    said = verbena_run("rdma", *words).stdout
    assert f"'{' '.join(words)}' asks the kernel, which does not know Verbena's device" in said
    assert "'verbena devices' and 'verbena info'" in said


def test_rdma_hands_on_what_it_does_not_answer(verbena_run: Run) -> None:
    done = verbena_run("rdma", "-V")
    real = shutil.which("rdma", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if real is None:
        assert "install iproute2" in done.stdout
    else:
        assert done.stdout == subprocess.run([real, "-V"], capture_output=True, text=True).stdout
