# SPDX-License-Identifier: Apache-2.0
# halfbyte_precompile(TARGET OWNER): TARGET reads the standard headers that most files include from OWNER's
# precompiled ones. Off by default: then a file that forgets an include does not compile. The sanitizer presets switch
# it on, where a third of a test's compile time is reading headers.
option(HALFBYTE_PRECOMPILE_HEADERS "Precompile the standard headers (clang only)" OFF)

set(HALFBYTE_COMMON_HEADERS <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstdint> <functional>
  <map> <memory> <mutex> <optional> <random> <span> <sstream> <string> <string_view> <thread> <unordered_map>
  <variant> <vector> <fmt/format.h> <nlohmann/json.hpp>)

# Owners are targets of their own: whoever reads precompiled headers must be compiled with the same flags.
function(halfbyte_precompiled_headers owner)
  file(CONFIGURE OUTPUT ${owner}.cpp CONTENT "int main() {}\n")
  target_sources(${owner} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${owner}.cpp)
  # Without a time in it the same headers give the same file, and the compiler cache knows what it made of it.
  target_compile_options(${owner} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  target_precompile_headers(${owner} PRIVATE ${ARGN})
endfunction()

function(halfbyte_precompile target owner)
  if(HALFBYTE_PRECOMPILE_HEADERS)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()

if(HALFBYTE_PRECOMPILE_HEADERS)
  foreach(owner layer_headers optimized_layer_headers)
    add_library(${owner} STATIC EXCLUDE_FROM_ALL)
    target_link_libraries(${owner} PRIVATE halfbyte_options)
    halfbyte_precompiled_headers(${owner} ${HALFBYTE_COMMON_HEADERS})
  endforeach()
  target_compile_options(optimized_layer_headers PRIVATE -O1)
endif()
