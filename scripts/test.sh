#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the test-suite in two halves beside each other, on two processors.
#   scripts/test.sh VENV [PYTEST ARGUMENTS]
# With arguments it is one pytest with these, in the machine's own network.
#
# The first half has the tests that read the machine's interfaces or have a bound in wall time. The
# second half has those that only compute, and then, in a network of its own, programs that would
# meet those of the first half, and others that may run anywhere: UDP port 4791, devices and
# abstract sockets belong to a network namespace. It has a /dev/shm of its own too, because tests of
# both look at what is left there.
set -eu
cd "$(dirname "$0")/.."
python=$1/bin/python
shift

computing=(tests/fabrics tests/manage tests/packaging tests/sim tests/validation tests/wire tests/model tests/host tests/internet tests/lan)
# Of tests/robust one file needs a machine that has addresses of its own.
shopt -s extglob
apart=(tests/docs tests/examples tests/roce/test_linux_guest.py tests/abi tests/aio tests/fuzz tests/wrap
    tests/suite tests/peers tests/rpc tests/nvmeof tests/collectives tests/dask_comm tests/remote_files tests/pytest_plugin
    tests/robust/test_!(conditions).py)

# The suite as a whole must end; a single test has its own limit in pyproject.toml.
pytest=(timeout --kill-after=30 1500 env -u LD_PRELOAD "$python" -m pytest --durations=25 --durations-min=4)

if [ $# -gt 0 ]; then
    exec "${pytest[@]}" "$@"
fi

# What to put before a command of the network of its own. Root makes namespaces; another user makes
# them in a user namespace, stays who it is there, and gives its new rights up before the tests.
PATH="$PATH:/usr/sbin:/sbin"
make='mount -t tmpfs -o mode=1777,nosuid,nodev none /dev/shm && ip link set lo up && exec "$@"'
network=(unshare --net --mount sh -c "$make" sh)
if ! "${network[@]}" true 2>/dev/null; then
    network=(unshare --user --map-current-user --keep-caps --net --mount sh -c "$make" sh
        setpriv --inh-caps=-all --ambient-caps=-all)
fi
if ! "${network[@]}" true 2>/dev/null; then
    echo "No network namespace can be made here, so the first half also runs: ${apart[*]}"
    apart=()
fi

second_half() {
    local status=0
    trap 'kill $! 2>/dev/null; exit 143' TERM
    "${pytest[@]}" -p no:cacheprovider "${computing[@]}" &
    wait $! || status=$?
    [ ${#apart[@]} -gt 0 ] || return $status
    # Its kernel and programs are fetched from Debian, which the network of its own cannot reach.
    "$python" -m tests.roce.linux_guest &
    wait $! || true
    "${network[@]}" "${pytest[@]}" -p no:cacheprovider "${apart[@]}" &
    wait $! || status=$?
    return $status
}

report=$(mktemp)
trap 'rm -f "$report"' EXIT
second_half >"$report" 2>&1 &
beside=$!
elsewhere=("${computing[@]}" "${apart[@]}")
"${pytest[@]}" "${elsewhere[@]/#/--ignore=}" &
first=$!
trap 'kill $first $beside 2>/dev/null; wait; exit 130' INT TERM

status=0
wait $first || status=$?
wait $beside || status=$?
echo
echo "Beside these:"
cat "$report"
exit $status
