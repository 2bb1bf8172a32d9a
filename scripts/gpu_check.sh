#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the GPU kernels, tests and benchmarks on a machine with a Hopper GPU and runs them.
#   scripts/gpu_check.sh STEP...   with STEPs of: build test memcheck racecheck bench
# GPU_DEPS names a folder with include/fmt and googletest/ (default: Debian's), GPU_BUILD the build
# folder, OUT where logs and bench.json go, BENCH_FILTER the shapes to time.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${GPU_BUILD:-/tmp/halfbyte_gpu}
out=${OUT:-$build}
deps=${GPU_DEPS:-}
if [ -z "$deps" ]; then
  deps=$build.deps
  mkdir -p "$deps/include"
  ln -sfn /usr/include/fmt "$deps/include/fmt"
  ln -sfn /usr/src/googletest "$deps/googletest"
fi

for step in "$@"; do
  echo "== $step"
  case $step in
    build)
      cmake -S "$root/scripts/gpu" -B "$build" -G Ninja -DGPU_DEPS="$deps" -DCMAKE_BUILD_TYPE=Release >"$out/configure.log" 2>&1 ||
        { tail -20 "$out/configure.log"; exit 1; }
      ninja -C "$build" >"$out/build.log" 2>&1 || { grep -E -A5 "error|FAILED" "$out/build.log" | head -60; exit 1; }
      ! grep -E "C7508|C7512|C7513|[1-9][0-9]* bytes spill" "$out/build.log"
      ;;
    test)
      for program in gpu_kernels gpu_configs gpu_layer; do
        "$build/tests/$program" --gtest_brief=1
      done
      ;;
    memcheck)
      compute-sanitizer --tool memcheck --error-exitcode 9 "$build/tests/gpu_kernels" --gtest_brief=1 \
        --gtest_filter="${SANITIZER_FILTER:-*Bound*Tail*:GroupRows*:Combine*:*Nvfp4*:*WithoutAnyRow*}"
      ;;
    racecheck)
      compute-sanitizer --tool racecheck --error-exitcode 9 "$build/tests/gpu_kernels" --gtest_brief=1 \
        --gtest_filter="${SANITIZER_FILTER:-Combine*:*Nvfp4*}"
      ;;
    bench) "$build/gpu_moe_layer_bench" "$out/bench.json" ${BENCH_FILTER:-} ;;
    *) echo "unknown step $step" >&2; exit 2 ;;
  esac
done
