#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fuzz_smoke.sh SECONDS: runs every fuzz target of build/asan from its corpus, SECONDS in all. New inputs go to the
# build folder; add one to tests/fuzz/corpus only when it found something.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:?usage: fuzz_smoke.sh SECONDS}
build=${HALFBYTE_FUZZ_BUILD:-build/asan}
shopt -s nullglob
targets=()
for file in "$build"/fuzz/fuzz_*; do
  if [ -x "$file" ]; then targets+=("$file"); fi  # their logs lie beside them
done
if [ ${#targets[@]} -eq 0 ]; then
  echo "no fuzz targets in $build/fuzz: build the preset asan first" >&2
  exit 1
fi
each=$((seconds / ${#targets[@]}))
for target in "${targets[@]}"; do
  name=$(basename "$target")
  found="$build/fuzz/corpus-${name#fuzz_}"
  mkdir -p "$found"
  log="$build/fuzz/$name.log"
  "$target" -max_total_time=$((each > 0 ? each : 1)) -timeout=10 -rss_limit_mb=2048 \
    -artifact_prefix="$build/fuzz/" "$found" "tests/fuzz/corpus/${name#fuzz_}" >"$log" 2>&1 || { tail -40 "$log"; exit 1; }
  echo "$name: ok"
done
