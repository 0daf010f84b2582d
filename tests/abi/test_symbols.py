# SPDX-License-Identifier: Apache-2.0
"""libibverbs.so.1 exports what symbols.csv says, and that is all that programs ask for."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

from tests.abi.elf import PACKAGES, environment_over_verbena, files_of, needed_symbols, our_symbols
from tests.support import ROOT, load_script

DROPIN = ROOT / "src" / "native" / "dropin"

# Looks each name@version up in the library of argv[1], as NCCL does; prints those that are missing.
LOOK_UP = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.dlvsym.restype = ctypes.c_void_p
libc.dlvsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
handle = ctypes.CDLL(sys.argv[1])._handle
for pair in sys.stdin.read().split():
    name, version = pair.split("@")
    if not libc.dlvsym(handle, name.encode(), version.encode()):
        print(pair)
"""
NCCL_SYMBOLS = {
    "IBVERBS_1.1": "get_device_list free_device_list get_device_name open_device close_device "
    "get_async_event ack_async_event query_device query_port query_gid query_qp alloc_pd "
    "dealloc_pd reg_mr dereg_mr create_cq destroy_cq create_qp modify_qp destroy_qp fork_init "
    "event_type_str query_pkey create_ah destroy_ah create_srq destroy_srq wc_status_str",
    "IBVERBS_1.8": "reg_mr_iova2",
    "IBVERBS_1.12": "reg_dmabuf_mr",
    "IBVERBS_1.10": "query_ece set_ece",
    "IBVERBS_1.16": "query_port_speed",
}


def generator() -> ModuleType:
    return load_script("src/native/dropin/symbols.py")


def test_the_library_exports_the_table_and_nothing_else() -> None:
    symbols = generator()
    expected = symbols.exported(symbols.read_symbols())
    exported = {pair for pair in our_symbols() if not pair[0].startswith(("IBVERBS_", "VERBENA_"))}
    assert exported == expected


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.debian
def test_debian_package_finds_its_symbols(package: str) -> None:
    files = files_of(package)
    missing = {
        f"{name}@{version} of {path.name}"
        for path in files
        for name, version in needed_symbols(path) - our_symbols()
    }
    assert missing == set()


def test_versioned_look_ups_as_nccl_makes_them() -> None:
    wanted = [
        f"ibv_{name}@{version}" for version, names in NCCL_SYMBOLS.items() for name in names.split()
    ]
    command = [sys.executable, "-c", LOOK_UP, "libibverbs.so.1"]
    environment = environment_over_verbena()
    done = subprocess.run(
        command, env=environment, input=" ".join(wanted), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
    again = subprocess.run(
        command, env=environment, input="ibv_none@IBVERBS_1.1", capture_output=True, text=True
    )
    assert again.stdout.split() == ["ibv_none@IBVERBS_1.1"]
