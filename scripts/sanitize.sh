#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the test-suite over the build with AddressSanitizer and UBSan.
#   scripts/sanitize.sh VENV [PYTEST ARGUMENTS]
# Neither Python nor Debian's programs are built with the sanitizer, so its runtime has to be
# preloaded, and libstdc++ with it: the libraries that draw throw exceptions, which the runtime
# finds only where they are there from the start. Leaks are looked for in our own C test programs
# only (tests/native/test_programs.py).
set -eu
cd "$(dirname "$0")/.."
venv=$1
shift

runtime=$(gcc -print-file-name=libasan.so)
if [ ! -e "$runtime" ]; then
    echo "gcc has no libasan here. On Debian: apt-get install libgcc-12-dev (of gcc's version)." >&2
    exit 1
fi

export VERBENA_SANITIZE=1
# A bytearray of more memory than there is shall be a MemoryError, as it is without the sanitizer.
export ASAN_OPTIONS=detect_leaks=0:detect_odr_violation=1:abort_on_error=1:handle_segv=0:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
# CPython's own allocator hides overruns inside its arenas.
export PYTHONMALLOC=malloc
exec timeout --kill-after=30 3000 \
    env LD_PRELOAD="$runtime libstdc++.so.6" "$venv/bin/python" -m pytest --timeout=300 "$@"
