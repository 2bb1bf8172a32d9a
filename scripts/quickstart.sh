#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a clone to an answer: installs what is missing, builds, and asks the model in models/ a word problem.
set -euo pipefail
cd "$(dirname "$0")/.."

bash scripts/build_release.sh halfbyte_tool
question="Uma sold 242 balloons in October and half as many in July. \
How many balloons did Uma sell altogether in October and July?"
printf '\nQuestion: %s\nAnswer:   ' "$question"
build/release/halfbyte run models/gsm-mini-qwen3moe-nvfp4 --prompt "$question"
