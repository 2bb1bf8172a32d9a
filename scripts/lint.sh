#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-tidy over our sources, with the compile commands of the asan preset. A file that passed is not looked at again
# until it, a header of ours, or the configuration changes.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh

cache="${XDG_CACHE_HOME:-$HOME/.cache}/halfbyte-lint"
mkdir -p "$cache"
headers=$(git ls-files '*.h' .clang-tidy | xargs cat | sha256sum | cut -d' ' -f1)

lint_one() {
  local key
  key=$(cat "$1" <(echo "$headers") | sha256sum | cut -d' ' -f1)
  [ -e "$cache/$key" ] && return 0
  "clang-tidy-$LLVM_VERSION" --quiet -p build/asan "$1" 2>/dev/null && touch "$cache/$key"
}
export -f lint_one
export cache headers LLVM_VERSION
git ls-files 'src/*.cpp' 'tools/*.cpp' | xargs -P "$(nproc)" -I{} bash -c 'lint_one {}'
