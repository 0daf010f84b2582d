#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes what reads bytes from outside, from the inputs kept in tests/fuzz/corpus on.
#   scripts/fuzz.sh [SECONDS [TARGET...]]     60 s each; targets: tests/fuzz/fuzz_TARGET.c
# And `segment`, tests/native/test_garbage.c: one of two processes writes garbage into shared memory.
# New inputs are kept in build/fuzz-corpus/, those that crash in build/fuzz-crashes/.
set -eu
cd "$(dirname "$0")/.."
PATH=$PWD/.venv-sanitize/bin:$PWD/.venv/bin:$PATH
seconds=${1:-60}
shift || true
build=build/fuzz

if ! echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' |
    clang -fsanitize=fuzzer,address,undefined -x c -o /dev/null - 2>/dev/null; then
    echo "No clang with libFuzzer here. On Debian: apt-get install clang libclang-rt-dev" >&2
    exit 1
fi

if [ $# -eq 0 ]; then
    for source in tests/fuzz/fuzz_*.c; do
        name=${source##*/fuzz_}
        set -- "$@" "${name%.c}"
    done
    set -- "$@" segment
fi
cmake -S . -B "$build" -G Ninja -DVERBENA_FUZZ=ON -DCMAKE_C_COMPILER=clang >/dev/null
cmake --build "$build" --target fuzz | tail -n 1

unset LD_PRELOAD
export ASAN_OPTIONS=abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
mkdir -p build/fuzz-crashes
for target in "$@"; do
    if [ "$target" = segment ]; then
        cmake --build "$build" --target test_garbage | tail -n 1
        echo "Fuzzing segment for $seconds s"
        (cd "$build" && tests/test_garbage "$seconds") || [ $? -eq 77 ] # no network namespace
        continue
    fi
    program=$build/fuzz/fuzz_$target
    found=build/fuzz-corpus/$target
    log=build/fuzz-$target.log
    mkdir -p "$found"
    echo "Fuzzing $target for $seconds s"
    if ! "$program" -max_total_time="$seconds" -timeout=20 -max_len=1024 -print_final_stats=1 \
        -artifact_prefix="build/fuzz-crashes/$target-" "$found" "tests/fuzz/corpus/$target" \
        >"$log" 2>&1; then
        grep -v '^#' "$log" | tail -n 60 >&2
        input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
        echo "fuzz_$target failed. Once more:  $program $input" >&2
        echo "Smaller:  $program -minimize_crash=1 -max_total_time=60 $input" >&2
        echo "Repaired? Keep it:  cp $input tests/fuzz/corpus/$target/" >&2
        exit 1
    fi
    sed -n 's/^stat::number_of_executed_units: */  inputs: /p' "$log"
done
