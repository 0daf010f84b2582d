#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the test-suite in three parts beside each other, on two processors: a third of the time the
# tests wait.
#   scripts/test.sh VENV [PYTEST ARGUMENTS]
# With arguments it is one pytest with these, in the machine's own network.
#
# The first part has the tests that read the machine's interfaces or have a bound in wall time. The
# second one has those that only compute, and then, in a network of its own, those of hosts and of
# the core. The third one has, in another, programs that would meet those of the first part, and
# others that may run anywhere: UDP port 4791, devices and abstract sockets belong to a network
# namespace. These have a /dev/shm of their own too, because tests look at what is left there.
set -eu
cd "$(dirname "$0")/.."
python=$1/bin/python
shift

computing=(tests/fabrics tests/manage tests/sim tests/validation tests/wire tests/host tests/internet tests/lan)
guests=tests/roce/test_linux_guest.py
hosts=(tests/roce tests/native tests/subnet_process)
# Of tests/robust one file needs a machine that has addresses of its own.
shopt -s extglob
apart=(tests/docs tests/examples $guests tests/abi tests/aio tests/fuzz tests/wrap
    tests/suite tests/peers tests/rpc tests/nvmeof tests/collectives tests/dask_comm tests/remote_files tests/pytest_plugin
    tests/hardware tests/robust/test_!(conditions).py)

# The suite as a whole must end, on a slow machine too; a single test has its own limit in
# pyproject.toml.
pytest=(timeout --kill-after=30 2400 env -u LD_PRELOAD "$python" -m pytest --durations=25 --durations-min=4)

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
    echo "No network namespace can be made here, so the first part also runs: ${hosts[*]} ${apart[*]}"
    hosts=()
    apart=()
fi

second_part() {
    local status=0
    trap 'kill $! 2>/dev/null; exit 143' TERM
    "${pytest[@]}" -p no:cacheprovider "${computing[@]}" &
    wait $! || status=$?
    [ ${#hosts[@]} -gt 0 ] || return $status
    "${network[@]}" "${pytest[@]}" -p no:cacheprovider "--ignore=$guests" "${hosts[@]}" &
    wait $! || status=$?
    return $status
}

third_part() {
    local status=0
    trap 'kill $! 2>/dev/null; exit 143' TERM
    [ ${#apart[@]} -gt 0 ] || return 0
    # Its kernel, programs and tests are fetched from Debian, which the network of its own cannot
    # reach.
    "$python" -m tests.roce.linux_guest &
    wait $! || true
    "$python" -m tests.dask_comm.suite &
    wait $! || true
    "${network[@]}" "${pytest[@]}" -p no:cacheprovider "${apart[@]}" &
    wait $! || status=$?
    return $status
}

# Where NumPy is imported, OpenBLAS starts a thread for each processor, which spins for 90 ms of
# processor time. No test multiplies matrices that need them, and thousands of processes import it.
export OPENBLAS_NUM_THREADS=1

# The processes that tests start would each compile what they import where PYTHONDONTWRITEBYTECODE
# is set.
"$python" -m compileall -q src/verbena tests

second_report=$(mktemp)
third_report=$(mktemp)
trap 'rm -f "$second_report" "$third_report"' EXIT
second_part >"$second_report" 2>&1 &
second=$!
third_part >"$third_report" 2>&1 &
third=$!
elsewhere=("${computing[@]}" "${hosts[@]}" "${apart[@]}")
"${pytest[@]}" "${elsewhere[@]/#/--ignore=}" &
first=$!
trap 'kill $first $second $third 2>/dev/null; wait; exit 130' INT TERM

status=0
for part in $first $second $third; do
    wait $part || status=$?
done
echo
echo "Beside these:"
cat "$second_report" "$third_report"
exit $status
