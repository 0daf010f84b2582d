#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that a step needs, when they are missing.
#   scripts/setup-debian.sh toolchain [PYTHON]   what builds Verbena
#   scripts/setup-debian.sh demo                 programs that the demo runs
#   scripts/setup-debian.sh test                 programs that the tests run
#   scripts/setup-debian.sh compatibility        more programs, for make compatibility
#   scripts/setup-debian.sh rdma-core            what rdma-core's newest release is built with
#   scripts/setup-debian.sh fabtests             what libfabric's tests are built with
#   scripts/setup-debian.sh fuzz                 clang with libFuzzer, for make sanitize
# As root it runs apt-get; otherwise it prints the command to run and stops.
set -eu

demo_packages=(ibverbs-utils perftest)
test_packages=("${demo_packages[@]}" python3-pyverbs rdma-core ucx-utils libibverbs-dev iproute2 strace tshark
    qperf infiniband-diags rdmacm-utils libfabric-bin gdb valgrind
    clang libclang-rt-dev # builds Verbena, and programs with its sanitizers
    nasm                  # its programs run on the processor of verbena.host
    zsh fish              # shells of verbena env
    chromium chromium-driver # these look at the documentation's pages
    qemu-system-x86 busybox-static cpio kmod) # the Linux guest of tests/roce
# Libraries whose symbols tests/abi reads; not every release has them under these names.
library_packages=(libfabric1 libgloo0)
compatibility_packages=(openmpi-bin libopenmpi-dev mpich libmpich-dev)
rdma_core_packages=(libnl-3-dev libnl-route-3-dev pkg-config python3-dev)
fabtests_packages=(libfabric-dev autoconf automake libtool make pkg-config git)
# One program or file of each package, to check systems that are not Debian.
declare -A evidence=(
    [ibverbs-utils]=ibv_rc_pingpong [perftest]=ib_write_bw [rdma-core]=/usr/lib/udev/rules.d
    [python3-pyverbs]=/usr/lib/python3/dist-packages/pyverbs [ucx-utils]=ucx_perftest
    [libibverbs-dev]=/usr/include/infiniband/verbs.h [iproute2]=ip [strace]=strace [tshark]=tshark
    [qemu-system-x86]=qemu-system-x86_64 [busybox-static]=busybox [cpio]=cpio [kmod]=depmod
    [qperf]=qperf [infiniband-diags]=ibstatus [rdmacm-utils]=rping [gdb]=gdb [valgrind]=valgrind
    [chromium]=chromium [chromium-driver]=chromedriver
    [clang]=clang [libclang-rt-dev]=clang [nasm]=nasm [zsh]=zsh [fish]=fish
    [openmpi-bin]=mpirun [libopenmpi-dev]=mpicc [mpich]=mpiexec.mpich [libmpich-dev]=mpicc.mpich
    [libfabric-bin]=fi_info [libnl-3-dev]=/usr/include/libnl3
    [libnl-route-3-dev]=/usr/include/libnl3/netlink/route
    [libfabric-dev]=/usr/include/rdma/fabric.h [autoconf]=autoconf [automake]=automake
    [libtool]=libtoolize [make]=make [git]=git [pkg-config]=pkg-config [python3-dev]=python3-config)

toolchain_packages() {
    local python=$1
    command -v gcc >/dev/null || echo gcc libc6-dev
    command -v "$python" >/dev/null || { echo python3 python3-venv python3-dev; return; }
    "$python" -c 'import ensurepip' 2>/dev/null || echo python3-venv
    "$python" - <<'PY' || echo python3-dev
import pathlib, sys, sysconfig
sys.exit(not (pathlib.Path(sysconfig.get_path("include")) / "Python.h").exists())
PY
}

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null)" = "ii " ]
}

present() {
    case $1 in
    /*) [ -e "$1" ] ;;
    *) PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null ;;
    esac
}

missing() {
    local package
    for package in "$@"; do
        if command -v dpkg-query >/dev/null; then
            installed "$package" || echo "$package"
        else
            present "${evidence[$package]}" || echo "$package"
        fi
    done
}

# Those of the packages that this release has.
offered() {
    local package
    for package in "$@"; do
        if apt-cache show "$package" >/dev/null 2>&1; then echo "$package"; fi
    done
}

fuzzes() {
    echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' |
        clang -fsanitize=fuzzer,address,undefined -x c -o /dev/null - 2>/dev/null
}

install() {
    [ $# -gt 0 ] || return 0
    if ! command -v apt-get >/dev/null; then
        echo "Missing here: what Debian packages as: $*" >&2
        echo "This system has no apt-get. Install its equivalents, then run make again." >&2
        exit 1
    fi
    if [ "$(id -u)" -ne 0 ]; then
        echo "Debian packages are missing. Run this, then make again:" >&2
        echo "    sudo apt-get update && sudo apt-get install --no-install-recommends $*" >&2
        exit 1
    fi
    echo "Installing Debian packages: $*"
    local log
    log=$(mktemp)
    if ! { apt-get update && DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "$@"; } >"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        echo "apt-get failed (its whole output: $log). Repair that, then run make again." >&2
        exit 1
    fi
    rm -f "$log"
}

check_python() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
        echo "Verbena needs Python 3.11 or newer; $1 is $("$1" -V 2>&1)." >&2
        echo "Name another one: make PYTHON=/path/to/python3.12 ..." >&2
        exit 1
    }
}

case ${1:-} in
toolchain)
    python=${2:-python3}
    read -r -a packages < <(toolchain_packages "$python" | tr '\n' ' '; echo)
    install ${packages[@]+"${packages[@]}"}
    check_python "$python"
    ;;
demo)
    mapfile -t packages < <(missing "${demo_packages[@]}")
    install ${packages[@]+"${packages[@]}"}
    ;;
test)
    mapfile -t packages < <(missing "${test_packages[@]}")
    install ${packages[@]+"${packages[@]}"}
    mapfile -t packages < <(offered "${library_packages[@]}")
    mapfile -t packages < <(missing ${packages[@]+"${packages[@]}"})
    install ${packages[@]+"${packages[@]}"}
    ;;
compatibility)
    mapfile -t packages < <(missing "${compatibility_packages[@]}")
    install ${packages[@]+"${packages[@]}"}
    ;;
rdma-core)
    mapfile -t packages < <(missing "${rdma_core_packages[@]}")
    install ${packages[@]+"${packages[@]}"}
    ;;
fabtests)
    mapfile -t packages < <(missing "${fabtests_packages[@]}")
    install ${packages[@]+"${packages[@]}"}
    ;;
fuzz)
    fuzzes || install clang libclang-rt-dev
    ;;
*)
    sed -n '3,12s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
