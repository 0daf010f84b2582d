#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every check of `make lint`; runs all of them, then fails if one did.
#   scripts/lint.sh VENV
set -u
cd "$(dirname "$0")/.."
bin=$1/bin
export PATH="$PWD/$bin:$PATH" # cython-lint starts pycodestyle by name
failed=()

check() {
    local name=$1
    shift
    "$@" || failed+=("$name")
}

# It takes as long as all others together, so it runs beside them.
types=$(mktemp)
trap 'rm -f "$types"' EXIT
"$bin/mypy" --no-error-summary >"$types" 2>&1 &
mypy=$!

mapfile -t c_files < <(find src tests benchmarks docs examples -name '*.[ch]' | sort)
mapfile -t pyx_files < <(find src -name '*.pyx' -o -name '*.px[di]' | sort)

check ruff "$bin/ruff" check --quiet src tests benchmarks scripts docs
check "ruff format" "$bin/ruff" format --quiet --check src tests benchmarks scripts docs examples
[ ${#c_files[@]} -eq 0 ] || check clang-format "$bin/clang-format" --dry-run --Werror "${c_files[@]}"
[ ${#pyx_files[@]} -eq 0 ] || check cython-lint "$bin/cython-lint" "${pyx_files[@]}"
schema() {
    "$bin/check-jsonschema" --quiet --builtin-schema "vendor.$1" "${@:2}"
}
check workflows schema github-workflows .github/workflows/*.yml
check CITATION.cff schema citation-file-format --force-filetype yaml CITATION.cff
check "stubs (make generated)" "$bin/python" scripts/stub_docstrings.py --check
check "native sources (make generated)" "$bin/python" scripts/native_sources.py --check
check sizes "$bin/python" scripts/check_sizes.py
check layers "$bin/python" scripts/check_layers.py
check names "$bin/python" scripts/check_names.py
check skips "$bin/python" scripts/check_skips.py
check mypy wait $mypy
cat "$types"

if [ ${#failed[@]} -gt 0 ]; then
    echo "lint failed: $(IFS=,; echo "${failed[*]}")  (make format repairs the formatting)" >&2
    exit 1
fi
echo "lint: all checks passed"
