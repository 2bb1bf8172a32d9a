# SPDX-License-Identifier: Apache-2.0
# What halfbyte is built with, by package name (Debian 12; Ubuntu 24.04 uses the same names, untried). The one place
# where they are listed.
# shellcheck shell=bash
BUILD_PACKAGES=(g++ cmake ninja-build ccache pkg-config nlohmann-json3-dev libcli11-dev libfmt-dev libutf8proc-dev
  libpcre2-dev libgtest-dev libgmock-dev libbenchmark-dev)
LLVM_VERSION=19
CHECK_PACKAGES=("clang-$LLVM_VERSION" "clang-format-$LLVM_VERSION" "clang-tidy-$LLVM_VERSION"
  "libclang-rt-$LLVM_VERSION-dev")
