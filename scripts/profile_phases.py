#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""profile_phases.py HALFBYTE MODEL [OPTION...]: which part of a step costs how many instructions.

Runs `HALFBYTE bench engine MODEL --num-threads 1 OPTION...` under valgrind's callgrind, which counts in the engine's steps
alone (loading is left out), and adds up the functions of each phase. -p 1 -n 16 is decode, -p 64 -n 1 prefill. Instructions
are not time: a phase that waits for memory takes longer than its share.
"""

import os
import re
import subprocess
import sys
import tempfile

STEP = "halfbyte::EngineLoop::step()"
# Phase -> the functions whose whole cost is the phase's. None of them calls another of the list, but for those subtracted.
PHASES = {
    "experts": [r"MoeLayer::Impl::run_experts\("],
    "dispatch and combine": [r"MoeLayer::start\(", r"MoeLayer::finish\("],
    "dense linears": [r"Ops::linear\(", r"Ops::linear_f32\(", r"Ops::linear_per_head\("],
    "attention and cache": [r"Ops::attention\(", r"Ops::append\(", r"Ops::rope\("],
    "router's choice": [r"MoeLayer::route\("],
    "norms": [r"Ops::rms_norm\("],
    "sampler": [r"EngineLoop::accept_logits\("],
}
SUBTRACTED = {"dispatch and combine": "experts"}
LINE = re.compile(r"^\s*([\d,]+) \(\s*[\d.]+%\)\s+(.*)$")


class ProfileError(Exception):
    pass


def run(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError as error:
        raise ProfileError(f"{command[0]} is not installed: apt-get install valgrind") from error
    except subprocess.CalledProcessError as error:
        raise ProfileError(f"{' '.join(command)} ended with {error.returncode}:\n{error.stderr[-2000:]}") from error


def inclusive_costs(annotated):
    """(function, instructions with those of what it calls), from the text of callgrind_annotate --inclusive=yes."""
    found = [LINE.match(line) for line in annotated.splitlines()]
    return [(match.group(2), int(match.group(1).replace(",", ""))) for match in found if match]


def is_function(name, pattern):
    """Whether `name` ("file:function [program]") is the member itself: a template or a lambda that names it is not."""
    return re.search(r"^[^ ]*?:halfbyte::(\(anonymous namespace\)::)?\w*" + pattern, name) and "{lambda" not in name


def phase_costs(functions):
    """Instructions of each phase, and of the whole step."""
    total = sum(cost for name, cost in functions if is_function(name, r"EngineLoop::step\("))
    if total == 0:
        raise ProfileError(f"{STEP} was not seen: is the command built with symbols?")
    costs = {phase: sum(cost for name, cost in functions if any(is_function(name, pattern) for pattern in patterns))
             for phase, patterns in PHASES.items()}
    for phase, part in SUBTRACTED.items():
        costs[phase] -= costs[part]
    costs["everything else"] = total - sum(costs.values())
    return costs, total


def profile(command, options):
    with tempfile.TemporaryDirectory() as folder:
        counts = os.path.join(folder, "callgrind.out")
        run(["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--toggle-collect={STEP}",
             f"--callgrind-out-file={counts}", command, "bench", "engine", *options, "--num-threads", "1"])
        return inclusive_costs(run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", counts]))


def main():
    if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        costs, total = phase_costs(profile(sys.argv[1], sys.argv[2:]))
    except ProfileError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for phase, cost in sorted(costs.items(), key=lambda entry: -entry[1]):
        print(f"{phase:<22} {cost / 1e6:>10.1f} million instructions {100 * cost / total:>5.1f} %")
    print(f"{'all':<22} {total / 1e6:>10.1f} million instructions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
