#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds fabtests, the test suite of libfabric, for the libfabric that is installed.
#   scripts/fabtests.sh FOLDER [SOURCE]
# SOURCE is a checkout of libfabric; without it git fetches that of the installed release. FOLDER gets
# a copy of its fabtests and their programs; FOLDER/ready then names the sources, the programs and the
# release.
set -eu
folder=$(mkdir -p "$1" && cd "$1" && pwd)
source=${2:-}
version=$(pkg-config --modversion libfabric)

if [ -z "$source" ]; then
    source=$folder/libfabric
    [ -d "$source" ] || git clone -q --depth 1 --branch "v$version" https://github.com/ofiwg/libfabric "$source" || {
        echo "The sources of libfabric $version cannot be fetched: make fabtests FABTESTS=checkout" >&2
        exit 1
    }
fi
[ -d "$source/fabtests" ] && source=$source/fabtests

rm -rf "$folder/source"
cp -r "$source" "$folder/source"
cd "$folder/source"
{ ./autogen.sh && ./configure --prefix="$folder/installed" && make && make install; } >"$folder/log" 2>&1 || {
    tail -n 20 "$folder/log" >&2
    exit 1
}
printf '%s\n' "$folder/source" "$folder/installed/bin" "$version" >"$folder/ready"
echo "fabtests $version: they are in $folder/installed/bin"
