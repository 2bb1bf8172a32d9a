# SPDX-License-Identifier: Apache-2.0
# How our own targets are compiled. Linked privately, so that no flag reaches a user's code.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

add_library(halfbyte_options INTERFACE)
# Sums and quantisers are defined operation by operation: a fused multiply-add only where std::fma is
# written (docs/numerics.md).
target_compile_options(halfbyte_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
target_compile_options(halfbyte_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor -Wcast-align
  -Wundef $<$<BOOL:${HALFBYTE_WERROR}>:-Werror>>)
if(HALFBYTE_SANITIZE)
  target_compile_options(halfbyte_options INTERFACE
    -fsanitize=${HALFBYTE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(halfbyte_options INTERFACE -fsanitize=${HALFBYTE_SANITIZE})
endif()
