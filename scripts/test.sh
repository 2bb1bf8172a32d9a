#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds the release preset, and runs every test that is not labelled slow or gpu.
set -euo pipefail
cd "$(dirname "$0")/.."

bash scripts/build_release.sh
ctest --preset release --progress
