#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the pyverbs of rdma-core's newest release on PyPI, from source, with the tests beside it.
#   scripts/rdma-core-latest.sh FOLDER [SOURCE]
# FOLDER gets a virtual environment, the source (SOURCE, a checkout of rdma-core, stands in its place)
# and its build; FOLDER/ready then names the tests, the modules, the Python and the version.
set -eu
folder=$(mkdir -p "$1" && cd "$1" && pwd)
source=${2:-}
python=$folder/venv/bin/python

[ -x "$python" ] || python3 -m venv "$folder/venv"
"$python" -m pip install -qq "cython>=3.0.12,<3.2" "cmake>=3.25" ninja

if [ -z "$source" ]; then
    # Its build system is not asked: rdma-core's own CMake builds it, with the tests' place known.
    rm -rf "$folder/sdist"
    "$python" -m pip install -qq scikit-build-core setuptools-scm
    "$python" -m pip download -qq --no-deps --no-binary :all: --no-build-isolation \
        --dest "$folder/sdist" pyverbs
    tar -xzf "$folder"/sdist/pyverbs-*.tar.gz -C "$folder/sdist"
    source=$(echo "$folder"/sdist/pyverbs-*/rdma-core)
fi

export PATH="$folder/venv/bin:$PATH"
cmake -S "$source" -B "$folder/build" -G Ninja -DIN_PLACE=1 -DNO_MAN_PAGES=1 \
    -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE="$python" -DPYTHON_EXECUTABLE="$python" \
    >"$folder/log" 2>&1 || { tail -n 20 "$folder/log" >&2; exit 1; }
cmake --build "$folder/build" >>"$folder/log" 2>&1 || { tail -n 20 "$folder/log" >&2; exit 1; }
version=$(sed -n 's/^set(PACKAGE_VERSION "\(.*\)")$/\1/p' "$source/CMakeLists.txt")
printf '%s\n' "$source/tests" "$folder/build/python" "$python" "$version" >"$folder/ready"
echo "rdma-core $version: pyverbs is in $folder/build/python"
