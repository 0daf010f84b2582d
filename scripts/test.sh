#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the test-suite: what only computes beside what runs programs and minds the time.
#   scripts/test.sh VENV [PYTEST ARGUMENTS]
# With arguments it is one pytest with these.
set -eu
cd "$(dirname "$0")/.."
python=$1/bin/python
shift

# None of these shares a port, a device, a build folder or a bound in wall time with the others.
computing=(tests/fabrics tests/packaging tests/sim tests/validation tests/wire tests/model)
# The suite as a whole must end; a single test has its own limit in pyproject.toml.
pytest=(timeout --kill-after=30 1500 env -u LD_PRELOAD "$python" -m pytest --durations=25 --durations-min=4)

if [ $# -gt 0 ]; then
    exec "${pytest[@]}" "$@"
fi

report=$(mktemp)
trap 'rm -f "$report"' EXIT
"${pytest[@]}" -p no:cacheprovider "${computing[@]}" > "$report" 2>&1 &
beside=$!
trap 'kill $beside 2>/dev/null; exit 130' INT TERM

status=0
"${pytest[@]}" "${computing[@]/#/--ignore=}" || status=$?
wait $beside || status=$?
echo
echo "Beside these:"
cat "$report"
exit $status
