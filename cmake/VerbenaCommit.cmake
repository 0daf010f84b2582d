# SPDX-License-Identifier: Apache-2.0
# The commit that a wheel is built from, for `verbena --version` (src/verbena/version.py): installed
# as verbena/commit.txt where the source is a git checkout, and left out where it is none.

set(commit_file "${CMAKE_CURRENT_BINARY_DIR}/commit.txt")
set(commit "")
# A source archive below somebody else's checkout has no commit of ours.
if(EXISTS "${PROJECT_SOURCE_DIR}/.git")
  execute_process(
    COMMAND git -C "${PROJECT_SOURCE_DIR}" describe --always --dirty --exclude=* --abbrev=12
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
endif()
if(commit)
  file(WRITE "${commit_file}" "${commit}\n")
  install(FILES "${commit_file}" DESTINATION verbena COMPONENT python)
endif()
