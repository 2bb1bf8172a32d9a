# SPDX-License-Identifier: Apache-2.0
# What halfbyte is built with, by package name (Debian 12; Ubuntu 24.04 uses the same names but one, untried). The one
# place where they are listed.
# shellcheck shell=bash
# Boost 1.81 or later: Debian 12's own is 1.74 and has 1.81 beside it, Ubuntu 24.04's own is 1.83.
boost_package() {
  if grep -q '^VERSION_CODENAME=bookworm' /etc/os-release; then echo libboost1.81-dev; else echo libboost-dev; fi
}
BUILD_PACKAGES=(g++ cmake ninja-build ccache pkg-config nlohmann-json3-dev libcli11-dev libfmt-dev libutf8proc-dev
  libpcre2-dev "$(boost_package)" prometheus-cpp-dev libgtest-dev libgmock-dev
  python3-pip) # which fetches what Debian does not have (cmake/fetch_pypi.cmake)
LLVM_VERSION=19
CHECK_PACKAGES=("clang-$LLVM_VERSION" "clang-format-$LLVM_VERSION" "clang-tidy-$LLVM_VERSION"
  "libclang-rt-$LLVM_VERSION-dev")
