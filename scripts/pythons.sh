#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds Verbena for other interpreters and runs the tests of asyncio programs with each.
#   scripts/pythons.sh PYTHON...
# Those tests compare the event loop of simulated hosts with asyncio's own, which differs between
# versions of Python. Each interpreter has a virtual environment in build/python-VERSION.
set -eu
cd "$(dirname "$0")/.."
tests=(tests/aio tests/sim/test_loop.py tests/sim/test_loop_order.py tests/sim/test_program*.py tests/sim/test_two_ports.py)

if [ $# -eq 0 ]; then
    echo "usage: scripts/pythons.sh PYTHON...  as in: make pythons PYTHONS='python3.12 python3.13'" >&2
    exit 2
fi
for python; do
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    venv=build/python-$version
    "$python" -m venv "$venv"
    "$venv/bin/pip" install -qq --upgrade "pip>=23.1"
    "$venv/bin/python" scripts/extras.py build test sim | xargs -d '\n' "$venv/bin/pip" install -qq
    "$venv/bin/pip" install -qq --no-build-isolation -Cbuild-dir="$venv/build" -e .
    echo "$("$venv/bin/python" -VV):"
    "$venv/bin/python" -m pytest -q -p no:cacheprovider -m "not over_roce" "${tests[@]}"
done
