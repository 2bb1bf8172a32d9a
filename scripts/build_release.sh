#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing and builds the release preset: build/release/halfbyte. Any arguments are ninja targets.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh

bash scripts/install_packages.sh "${BUILD_PACKAGES[@]}"
export CMAKE_CXX_COMPILER_LAUNCHER=ccache
cmake --preset release >build-release.log 2>&1 || { cat build-release.log; exit 1; }
rm build-release.log
NINJA_STATUS='[%f/%t, %e s] ' ninja -C build/release "$@"
