# SPDX-License-Identifier: Apache-2.0
# Everything here is a Debian package (scripts/packages.sh); what Debian does not have is fetched (cmake/fetch_pypi.cmake).
# Nothing is vendored.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Boost 1.81 REQUIRED)  # headers only: Asio and Beast, before which clang has no coroutines
find_package(prometheus-cpp REQUIRED COMPONENTS core)
find_package(PkgConfig REQUIRED)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
if(HALFBYTE_TESTS)
  find_package(GTest REQUIRED)
endif()
