#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install_test.sh BUILD_DIR SOURCE_DIR: installs the build into an empty prefix, then builds and runs the example against it
# as another project would, with find_package(halfbyte) and nothing of the source tree.
set -euo pipefail
build=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
mkdir "$work/consumer"
cp "$source/examples/moe_layer.cpp" "$work/consumer/"
cat >"$work/consumer/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.25)
project(consumer CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(halfbyte REQUIRED)
add_executable(consumer moe_layer.cpp)
target_link_libraries(consumer PRIVATE halfbyte::halfbyte)
EOF
cmake -S "$work/consumer" -B "$work/consumer/build" -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/configure.log" 2>&1 ||
  { cat "$work/configure.log"; exit 1; }
cmake --build "$work/consumer/build"
"$work/consumer/build/consumer"
