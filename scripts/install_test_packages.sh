#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Python packages that tests of the server use (clients of the API, schemathesis), into build/python, where ctest finds
# them. Without pip or a package index it says so, and those tests are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
wanted=tests/server/requirements.txt
target=build/python

cmp -s "$wanted" "$target/requirements.txt" && exit 0
rm -rf "$target"
if python3 -m pip install --quiet --disable-pip-version-check --no-warn-script-location --root-user-action=ignore \
  --target "$target" -r "$wanted"; then
  cp "$wanted" "$target/requirements.txt"
else
  rm -rf "$target"
  echo "The packages of $wanted could not be installed: tests that need them are skipped." >&2
fi
