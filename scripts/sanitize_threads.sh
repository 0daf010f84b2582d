#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the C test programs with ThreadSanitizer and runs those that have threads or processes.
#   scripts/sanitize_threads.sh VENV [TEST ...]
# It sees the threads of one process. It cannot see accesses by another process through a shared
# mapping, but each of the processes is checked. Debian's programs and
# Python are not built with it, so the rest of the suite has nothing to say here.
set -eu
cd "$(dirname "$0")/.."
venv=$1
shift
export PATH="$PWD/$venv/bin:$PATH"
build=build/native-tests-threads

# What each is looked at for is in its first comment. Not here: programs without threads, those
# that measure what an idle process costs, and test_processes: it looks at payload byte by byte while
# others write it, each a report that is suppressed after a long look.
# Nor test_gone_memory, whose handler of faults goes on where ThreadSanitizer does not expect it.
tests=(test_threads test_visitors test_engine_threads test_roce_port test_roce_faults test_wrap
    test_capture test_kill test_dies test_stopped test_fault test_sim_partitions
    dropin/test_events dropin/test_any_thread)
if [ $# -gt 0 ]; then
    tests=("$@")
fi

cmake -S . -B "$build" -G Ninja -DVERBENA_NATIVE_TESTS=ON -DVERBENA_LTO=OFF \
    -DVERBENA_SANITIZE_THREADS=ON >/dev/null
cmake --build "$build" --target "${tests[@]//dropin\//dropin_}" -- --quiet

# A first report ends the program: what comes after may be its consequence.
export TSAN_OPTIONS="suppressions=$PWD/scripts/sanitize_threads.supp halt_on_error=1 exitcode=66 \
second_deadlock_stack=1 history_size=4"
# ThreadSanitizer of gcc 12 does not start where the kernel spreads mappings widely.
plain=()
if setarch -R true 2>/dev/null; then
    plain=(setarch -R)
fi
failed=0
cd "$build" # where they may leave files
for test in "${tests[@]}"; do
    status=0
    timeout --kill-after=10 900 "${plain[@]}" "tests/$test" >report 2>&1 || status=$?
    case $status in
    0) echo "ok      $test" ;;
    77) echo "skipped $test: $(tail -n 1 report)" ;;
    *)
        echo "FAILED  $test: status $status"
        cat report
        failed=1
        ;;
    esac
done
exit $failed
