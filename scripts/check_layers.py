#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds every #include of src/ and include/ to the table of docs/architecture.md, "Who may include whom".

Prints one line per violation and exits 1 when there is any. `check_layers.py ROOT` checks another tree.
"""

import pathlib
import re
import sys

# Folder -> folders it may include beside itself, base and include/halfbyte. The longest prefix decides.
LAYERS = {
    "base": [],
    "formats": [],
    "device": [],
    "comm": ["device"],
    "kernels/reference": ["formats"],
    "kernels/cpu": ["formats"],
    "kernels/cuda/ptx": ["formats"],
    "kernels/cuda/common": ["formats", "device", "kernels/cuda/ptx"],
    "kernels/cuda/sm90": ["formats", "device", "kernels/cuda/ptx", "kernels/cuda/common"],
    "kernels/cuda/sm100": ["formats", "device", "kernels/cuda/ptx", "kernels/cuda/common"],
    "checkpoint": [],
    "weights": ["formats", "device", "checkpoint"],
    "moe": ["formats", "device", "comm", "weights"],
    "moe/backends": ["formats", "device", "comm", "weights", "moe", "kernels"],
    "moe/dispatch": ["formats", "device", "comm", "weights", "moe", "kernels"],
    "moe/router.cpp": ["formats", "device", "comm", "weights", "moe", "kernels"],
    "model": ["moe", "weights", "checkpoint", "formats", "device", "comm"],
    "model/ops_": ["model", "moe", "weights", "checkpoint", "formats", "device", "comm", "kernels"],
    "text": [],
    "engine": ["model", "device", "comm", "weights", "checkpoint", "moe"],
    "server": ["engine", "text"],
    "capi": ["engine", "moe"],
}

# Third-party headers and the folders that may see them.
THIRD_PARTY = {
    r"^fmt/": None,  # anywhere under src
    r"^nlohmann/": ["checkpoint", "text", "server"],
    r"^pcre2": ["checkpoint", "text"],
    r"^utf8proc": ["text"],
    r"^(xgrammar|dlpack)/": ["text"],
    r"^(cuda|cublas|nccl)": ["device", "kernels/cuda", "comm", "model"],
    r"^(cute|cutlass)/": ["kernels/cuda/sm100"],
    r"^mpi": ["comm"],
    r"^(boost|prometheus)/": ["server"],
}

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')


def layer_of(path):
    """The longest key of LAYERS that `path` (relative to src) starts with; "x/y_" covers the files x/y_*."""
    hits = [k for k in LAYERS if path == k or path.startswith(k if k.endswith("_") else k + "/")]
    return max(hits, key=len) if hits else None


def allowed(layer, target):
    own = layer.split("/")[0] if layer.endswith((".cpp", "_")) else layer
    bases = LAYERS[layer] + ["base", own]
    return any(target == b or target.startswith(b + "/") for b in bases)


def check_src_include(path, target):
    layer = layer_of(path)
    if layer is None:
        return f"src/{path}: no layer of this name; add it to scripts/check_layers.py and docs/architecture.md"
    if target.startswith("halfbyte/") or allowed(layer, target):
        return None
    return f"src/{path}: {layer} may not include {target}"


def check_third_party(path, target):
    for pattern, folders in THIRD_PARTY.items():
        if re.match(pattern, target) and folders is not None:
            if not any(path.startswith(folder + "/") for folder in folders):
                return f"src/{path}: {target} belongs to {', '.join(folders)}"
    return None


def check_file(root, file):
    problems = []
    in_src = file.is_relative_to(root / "src")
    path = str(file.relative_to(root / ("src" if in_src else "include")))
    for line in file.read_text().splitlines():
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, target = match.groups()
        if not in_src:
            if quote == '"' and not target.startswith("halfbyte/"):
                problems.append(f"include/{path}: a public header includes {target}")
            elif quote == "<" and ("/" in target or target.endswith(".h")):
                problems.append(f"include/{path}: a public header includes <{target}>, want the standard library only")
        elif quote == '"':
            problems.append(check_src_include(path, target))
        else:
            problems.append(check_third_party(path, target))
    return [p for p in problems if p]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    files = [f for d in ("src", "include") for f in sorted((root / d).rglob("*")) if f.suffix in (".h", ".cpp", ".cu", ".cuh")]
    problems = [p for f in files for p in check_file(root, f)]
    print("\n".join(problems) if problems else f"layers: {len(files)} files, no violation")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
