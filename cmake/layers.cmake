# SPDX-License-Identifier: Apache-2.0
# halfbyte_layer(NAME [OPTIMIZED] SOURCES ... [DEPENDS layer ...] [LIBRARIES target ...])
# One static library per folder of src/. DEPENDS is the whole list of folders it may include
# (docs/architecture.md); scripts/check_layers.py holds the sources to it. LIBRARIES are third-party
# targets, which no other layer sees. OPTIMIZED layers are that under the sanitizers too: there tests spend their time.
include(precompiled_headers)
function(halfbyte_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "OPTIMIZED" "" "SOURCES;DEPENDS;LIBRARIES")
  add_library(halfbyte_${name} STATIC ${arg_SOURCES})
  target_include_directories(halfbyte_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
    $<INSTALL_INTERFACE:include>)
  list(TRANSFORM arg_DEPENDS PREPEND halfbyte_)
  target_link_libraries(halfbyte_${name} PUBLIC ${arg_DEPENDS}
    PRIVATE $<BUILD_INTERFACE:halfbyte_options> ${arg_LIBRARIES})
  if(arg_OPTIMIZED AND HALFBYTE_SANITIZE)
    target_compile_options(halfbyte_${name} PRIVATE -O1)
    halfbyte_precompile(halfbyte_${name} optimized_layer_headers)
  else()
    halfbyte_precompile(halfbyte_${name} layer_headers)
  endif()
  set_property(GLOBAL APPEND PROPERTY HALFBYTE_LAYERS halfbyte_${name})
endfunction()
