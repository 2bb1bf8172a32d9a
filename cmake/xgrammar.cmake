# SPDX-License-Identifier: Apache-2.0
# XGrammar's C++ core, which holds answers to grammars (docs/decisions/0007-grammars-by-xgrammar.md). It is in no
# Debian package; its source archive is fetched once per machine or clone (cmake/fetch_pypi.cmake), and every build
# folder unpacks that copy.
option(HALFBYTE_GRAMMAR "Build constrained output; it needs XGrammar 0.2.9. OFF: requests for it are refused" ON)
if(NOT HALFBYTE_GRAMMAR)
  return()
endif()
message(STATUS "Constrained output needs XGrammar; -DHALFBYTE_GRAMMAR=OFF builds without it")
include(fetch_pypi)
halfbyte_fetch_pypi(HALFBYTE_XGRAMMAR NAME xgrammar VERSION 0.2.9 FILE xgrammar-0.2.9.tar.gz
  SHA256 87b466bca2475e29bb0323abc62c6c33cbcbcff47e5fb800a3e2099ac9620b90
  PATTERNS "*/cpp/*" "*/include/*" "*/3rdparty/picojson/*")
set(xgrammar "${HALFBYTE_XGRAMMAR}")
if(EXISTS "${xgrammar}/xgrammar-0.2.9")
  string(APPEND xgrammar "/xgrammar-0.2.9")
endif()

# Its own CMakeLists.txt insists on Python bindings' flags, link-time optimisation and -Werror. cpp/tvm_ffi/ is those
# bindings; testing.cc defines what other files call. Objects, not a library: halfbyte_text's archive takes them in, so
# that nobody who links it, installed or not, has to know XGrammar.
file(GLOB sources "${xgrammar}/cpp/*.cc" "${xgrammar}/cpp/support/*.cc" "${xgrammar}/cpp/converter_ext/*.cc")
if(NOT sources)
  message(FATAL_ERROR "${xgrammar}: want an unpacked XGrammar 0.2.9, got no cpp/*.cc\n"
    "Remedy: leave -DHALFBYTE_XGRAMMAR out, so that it is fetched")
endif()
add_library(xgrammar OBJECT ${sources})
set(HALFBYTE_XGRAMMAR_INCLUDES "${xgrammar}/include" "${xgrammar}/3rdparty/dlpack/include")
target_include_directories(xgrammar SYSTEM PRIVATE ${HALFBYTE_XGRAMMAR_INCLUDES} "${xgrammar}/3rdparty/picojson")
target_compile_definitions(xgrammar PRIVATE
  XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0 XGRAMMAR_LOG_CUSTOMIZE=1)
# Not our code: no warnings, no debug information (half of the objects' bytes), and fast only where users run it.
target_compile_options(xgrammar PRIVATE -w -g0 $<IF:$<CONFIG:Release>,-O2,-O0>)
set_target_properties(xgrammar PROPERTIES CXX_STANDARD 17)
# ThreadSanitizer must see every atomic of inlined library code that both sides share; the other sanitizers watch our
# own code alone.
if(HALFBYTE_SANITIZE STREQUAL "thread")
  target_compile_options(xgrammar PRIVATE -fsanitize=thread)
endif()
