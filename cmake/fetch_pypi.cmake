# SPDX-License-Identifier: Apache-2.0
# Sources that Debian does not have, from the Python package index that this machine's pip is set up for.
set(HALFBYTE_DOWNLOADS "${PROJECT_SOURCE_DIR}/build/downloads" CACHE PATH
  "Folder of fetched archives: looked into before the index is asked, and shared by all build folders")

# halfbyte_fetch_pypi(OPTION NAME package VERSION version FILE archive SHA256 hash [PATTERNS glob ...])
# Sets the variable OPTION to a folder with the archive's content (an sdist's own top folder is kept); PATTERNS
# says which part of it to unpack. As a cache variable OPTION is the user's: -DOPTION=FOLDER takes an unpacked
# copy instead. Nothing is fetched when HALFBYTE_DOWNLOADS holds the archive.
function(halfbyte_fetch_pypi option)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "NAME;VERSION;FILE;SHA256" "PATTERNS")
  set(${option} "" CACHE PATH "Unpacked ${arg_NAME} ${arg_VERSION}; fetched when empty")
  if(${option})
    return()
  endif()
  set(folder "${CMAKE_BINARY_DIR}/_deps/${arg_NAME}-${arg_VERSION}")
  set(mark "${folder}/${arg_SHA256}")
  if(NOT EXISTS "${mark}")
    set(archive "${HALFBYTE_DOWNLOADS}/${arg_FILE}")
    if(NOT EXISTS "${archive}")
      halfbyte_download_pypi(${option} "${arg_NAME}" "${arg_VERSION}" "${arg_FILE}" "${arg_SHA256}")
    endif()
    file(SHA256 "${archive}" sha256)
    if(NOT sha256 STREQUAL arg_SHA256)
      message(FATAL_ERROR "${archive}: want SHA-256 ${arg_SHA256}, got ${sha256}\n"
        "Remedy: delete it; it is fetched anew")
    endif()
    file(REMOVE_RECURSE "${folder}")
    if(arg_PATTERNS)
      list(PREPEND arg_PATTERNS PATTERNS)
    endif()
    file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${folder}" ${arg_PATTERNS})
    file(TOUCH "${mark}")
  endif()
  set(${option} "${folder}" PARENT_SCOPE)
endfunction()

# Puts the archive into HALFBYTE_DOWNLOADS, under its name only when it is whole: other presets may be configured
# at the same time.
function(halfbyte_download_pypi option name version file sha256)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  string(RANDOM LENGTH 8 suffix)
  set(folder "${HALFBYTE_DOWNLOADS}/${name}-${suffix}")
  file(WRITE "${folder}/requirements.txt" "${name}==${version} --hash=sha256:${sha256}\n")
  # A source archive of this package alone: what its build back end asks for may well be wheels.
  set(kind --no-binary ${name})
  if(file MATCHES "\\.whl$")
    set(kind --only-binary :all:)
  endif()
  message(STATUS "Fetching ${name} ${version}")
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -m pip download --disable-pip-version-check --quiet --no-deps --require-hashes
      ${kind} -r "${folder}/requirements.txt" -d "${folder}"
    RESULT_VARIABLE result ERROR_VARIABLE error)
  if(NOT result EQUAL 0 OR NOT EXISTS "${folder}/${file}")
    file(REMOVE_RECURSE "${folder}")
    message(FATAL_ERROR "${name} ${version}: no ${file} from pip download (${result}):\n${error}\n"
      "Remedy: -DHALFBYTE_DOWNLOADS=FOLDER with that file in it, or -D${option}=an unpacked copy")
  endif()
  file(RENAME "${folder}/${file}" "${HALFBYTE_DOWNLOADS}/${file}")
  file(REMOVE_RECURSE "${folder}")
endfunction()
