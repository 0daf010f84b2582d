# SPDX-License-Identifier: Apache-2.0
# verbena_add_cython_module(NAME SOURCE_DIR PACKAGE_DIR [LIBRARY...]) compiles SOURCE_DIR/NAME.pyx,
# links it with the libraries and installs the extension module into PACKAGE_DIR of the wheel.

find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)

function(verbena_add_cython_module name source_dir package_dir)
  set(pyx "${PROJECT_SOURCE_DIR}/${source_dir}/${name}.pyx")
  set(generated "${CMAKE_CURRENT_BINARY_DIR}/cython/${name}.c")
  file(MAKE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/cython")
  add_custom_command(
    OUTPUT "${generated}"
    COMMAND Python::Interpreter -m cython -3 --fast-fail
            --depfile --output-file "${generated}" "${pyx}"
    COMMAND "${CMAKE_COMMAND}" "-DDEPFILE=${generated}.dep" "-DBASE=${PROJECT_SOURCE_DIR}/src"
            -P "${PROJECT_SOURCE_DIR}/cmake/VerbenaDepfile.cmake"
    DEPENDS "${pyx}"
    DEPFILE "${generated}.dep"
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}/src"
    COMMENT "Cython ${name}.pyx"
    VERBATIM)
  python_add_library(${name} MODULE WITH_SOABI "${generated}")
  target_link_libraries(${name} PRIVATE verbena_language ${ARGN})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/${source_dir}")
  install(TARGETS ${name} LIBRARY DESTINATION "${package_dir}" COMPONENT python)
endfunction()
