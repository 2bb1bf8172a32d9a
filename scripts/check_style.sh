#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a grep can tell: format, ASCII, licence lines, and what the library must never do.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh

failed=0
report() {
  [ -z "$2" ] && return
  printf '%s:\n%s\n' "$1" "$2"
  failed=1
}

mapfile -t sources < <(git ls-files '*.h' '*.cpp' '*.cu' '*.cuh')
"clang-format-$LLVM_VERSION" --dry-run -Werror "${sources[@]}" || failed=1
report "not ASCII" "$(grep -nP '[^\x00-\x7F]' "${sources[@]}" || true)"
report "first line is not the licence" "$(for f in "${sources[@]}"; do
  head -n 1 "$f" | grep -q '^// SPDX-License-Identifier: Apache-2.0$' || echo "$f"; done)"
report "a note to do later (do it, or write it down in docs/)" "$(grep -nE '\b(TODO|FIXME|XXX)\b' "${sources[@]}" || true)"
report "the environment is read by tools only" "$(git grep -nE '\bgetenv\b' -- src include || true)"
report "the library prints, aborts or exits" \
  "$(git grep -nE '\b(printf|fprintf|puts|abort|exit|_exit)\(|std::c(out|err)|fmt::print' -- src include \
     | grep -vE 'transport.*abort\(|abort\(const Status|->abort\(|[.]abort\(' || true)"
report "files over 500 lines (a table of test cases may be longer)" \
  "$(git ls-files 'src/*.h' 'src/*.cpp' 'src/*.cu' 'src/*.cuh' 'tools/*' 'include/*' | xargs wc -l | awk '$2 != "total" && $1 > 500')"
report "a lock without a name is gone at once" \
  "$(git grep -nE '^[[:space:]]*std::(lock_guard|scoped_lock|unique_lock|shared_lock)(<[^>]*>)?[[:space:]]*[({]' -- src include tools || true)"
report "functions over 60 lines" "$(python3 scripts/function_sizes.py --limit 60 2>&1 || true)"
exit $failed
