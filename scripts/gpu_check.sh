#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the GPU kernels, tests and benchmarks on a machine with a Hopper GPU and runs them.
#   scripts/gpu_check.sh STEP...   with STEPs of: build test memcheck racecheck bench layer
# GPU_DEPS names a folder with include/{fmt,CLI,nlohmann} and googletest/ (default: Debian's), GPU_BUILD the build
# folder, OUT where logs, bench.json and layer.jsonl go, BENCH_FILTER the kernels' cases to time, BENCH_MODE the activation
# mode, LAYER_CASES what `layer` times: SHAPE:TOKENS,... words.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${GPU_BUILD:-/tmp/halfbyte_gpu}
out=${OUT:-$build}
deps=${GPU_DEPS:-}
if [ -z "$deps" ]; then
  deps=$build.deps
  mkdir -p "$deps/include"
  for headers in fmt CLI nlohmann; do ln -sfn "/usr/include/$headers" "$deps/include/$headers"; done
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
        --gtest_filter="${SANITIZER_FILTER:-*Tail:GridTokens*:ActivateTiles*:GroupRows*:Combine*:*Nvfp4*:*WithoutAnyRow*}"
      ;;
    racecheck)
      compute-sanitizer --tool racecheck --error-exitcode 9 "$build/tests/gpu_kernels" --gtest_brief=1 \
        --gtest_filter="${SANITIZER_FILTER:-Combine*:*Nvfp4*:GridTokens*:ActivateTiles*}"
      ;;
    bench) "$build/gpu_moe_layer_bench" "$out/bench.json" "${BENCH_FILTER:-}" "${BENCH_MODE:-w4a16}" ;;
    layer)
      : >"$out/layer.jsonl"
      for case in ${LAYER_CASES:-deepseek-v3-ep1:1,8,64 deepseek-v3-ep8:64,256,1024,4096,16384 qwen3-30b-a3b:1,8,64,512,4096}; do
        "$build/halfbyte_layer_bench" layer --moe-runner-backend cuda_sm90 --moe-activation-mode "${BENCH_MODE:-w4a16}" \
          --shape "${case%%:*}" --tokens "${case#*:}" --cache-dir "$out/tactics" --show-plan --json "$out/layer-part.jsonl"
        cat "$out/layer-part.jsonl" >>"$out/layer.jsonl"
      done
      "$build/halfbyte_layer_bench" plot "$out/layer.jsonl" --output "$out/layer.svg" --title "${BENCH_MODE:-w4a16}"
      ;;
    *) echo "unknown step $step" >&2; exit 2 ;;
  esac
done
