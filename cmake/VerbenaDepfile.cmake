# SPDX-License-Identifier: Apache-2.0
# cmake -DDEPFILE=FILE -DBASE=FOLDER -P VerbenaDepfile.cmake makes the paths of a dependency file that
# Cython wrote absolute. Cython writes them relative to its working directory, BASE, and the build
# reads them relative to its own folder, where they are missing: each build would compile all anew.

file(READ "${DEPFILE}" text)
string(REGEX REPLACE "\n( *)([^/ \n])" "\n\\1${BASE}/\\2" text "\n${text}")
string(SUBSTRING "${text}" 1 -1 text)
file(WRITE "${DEPFILE}" "${text}")
