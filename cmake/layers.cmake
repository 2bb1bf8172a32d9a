# SPDX-License-Identifier: Apache-2.0
# halfbyte_layer(NAME SOURCES ... [DEPENDS layer ...] [LIBRARIES target ...])
# One static library per folder of src/. DEPENDS is the whole list of folders it may include
# (docs/architecture.md); scripts/check_layers.py holds the sources to it. LIBRARIES are third-party
# targets, which no other layer sees.
include(precompiled_headers)
function(halfbyte_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS;LIBRARIES")
  add_library(halfbyte_${name} STATIC ${arg_SOURCES})
  target_include_directories(halfbyte_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
    $<INSTALL_INTERFACE:include>)
  list(TRANSFORM arg_DEPENDS PREPEND halfbyte_)
  target_link_libraries(halfbyte_${name} PUBLIC ${arg_DEPENDS}
    PRIVATE $<BUILD_INTERFACE:halfbyte_options> ${arg_LIBRARIES})
  halfbyte_precompile(halfbyte_${name} layer_headers)
  set_property(GLOBAL APPEND PROPERTY HALFBYTE_LAYERS halfbyte_${name})
endfunction()

# halfbyte_optimize(TARGET): a layer that computes, where tests spend their time, is optimised under the sanitizers too. It
# then reads no precompiled headers, for its flags differ.
function(halfbyte_optimize target)
  if(HALFBYTE_SANITIZE)
    target_compile_options(${target} PRIVATE -O1)
  endif()
  set_property(TARGET ${target} PROPERTY DISABLE_PRECOMPILE_HEADERS ON)
endfunction()
