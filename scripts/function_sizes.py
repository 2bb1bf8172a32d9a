#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints how long the functions and files of src/, tools/ and include/ are, and how many lines each folder has.

A function's length is counted from the first line of its signature to its closing brace. Functions without a body
and lambdas are not counted: a lambda is part of the function around it. `function_sizes.py ROOT` measures another
tree, `--most N` lists more of the largest, `--limit N` says only which functions are longer, and fails when one is.
"""

import argparse
import pathlib
import re
import sys

FOLDERS = ("src", "tools", "include")
SUFFIXES = (".h", ".cpp", ".cu", ".cuh")

# Comments, string and character literals, preprocessor lines: they may hold braces that open nothing.
OPAQUE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'|^[ \t]*\#(?:\\\n|[^\n])*',
    re.DOTALL | re.MULTILINE)
ATTRIBUTE = re.compile(r"\b(?:alignas|__launch_bounds__|__attribute__|decltype)\s*\((?:[^()]|\([^()]*\))*\)|\[\[.*?\]\]", re.DOTALL)
NAME = re.compile(r"((?:[\w~]+(?:<[^<>]*>)?::)*(?:operator\s*(?:\(\)|[^\s\w(]+|\w+)|~?\w+))\s*\(")
INITIALISER = re.compile(r"\)\s*(?:noexcept\s*)?:[^:]")


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def function_name(header):
    """The name of the function that `header {` begins, or None when it begins something else."""
    header = ATTRIBUTE.sub(" ", header)
    if re.match(r"\s*(?:namespace|enum|extern)\b", header) or "(" not in header:
        return None
    before_parameters = header[:header.index("(")]
    if "=" in before_parameters and "operator" not in before_parameters:
        return None
    match = NAME.search(header)
    return match.group(1) if match else None


def functions_of(text):
    """Yields (name, first line, last line) of every function body in `text`."""
    text = OPAQUE.sub(blank, text)
    scopes = []       # a (name, first line) for a function, None for a namespace or a type
    depth_inside = 0  # braces open inside the innermost function
    start = 0         # where the current declaration begins
    parentheses = 0
    for at, char in enumerate(text):
        if char in "()":
            parentheses += 1 if char == "(" else -1
        if scopes and scopes[-1] is not None:
            depth_inside += {"{": 1, "}": -1}.get(char, 0)
            if depth_inside == 0:
                name, first = scopes.pop()
                yield name, first, text.count("\n", 0, at) + 1
                start = at + 1
        elif char == "{" and (parentheses or is_member_initialiser(text[start:at])):
            scopes.append(None)
        elif char == "{":
            name = function_name(text[start:at])
            first = text.count("\n", 0, start + len(text[start:at]) - len(text[start:at].lstrip())) + 1
            scopes.append(None if name is None else (name, first))
            depth_inside = 1
            start = at + 1 if name is None else start
        elif char == "}" and scopes:
            scopes.pop()
            if not parentheses and not is_member_initialiser(text[start:at]):
                start = at + 1
        elif char == ";" and not parentheses:
            start = at + 1


def is_member_initialiser(header):
    """Whether a brace after `header` gives a member its first value: `X(int a) : a_{a}`."""
    return bool(INITIALISER.search(header)) and bool(re.search(r"\w\s*(?:\{[^{}]*)?$", header))


def percentile(sorted_values, percent):
    """The value that `percent` of the values do not exceed."""
    return sorted_values[max(0, -(-len(sorted_values) * percent // 100) - 1)]


def folder_of(path):
    parts = path.parts
    return "/".join(parts[:3] if parts[:2] == ("src", "kernels") else parts[:2])


def print_distribution(what, values):
    values = sorted(values)
    print(f"{what}: {len(values)}; median {percentile(values, 50)}, p90 {percentile(values, 90)}, "
          f"p99 {percentile(values, 99)}, largest {values[-1]} lines")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent)
    parser.add_argument("--most", type=int, default=10, help="how many of the largest to list")
    parser.add_argument("--limit", type=int, help="list functions of more lines than this, and nothing else")
    options = parser.parse_args()
    root = options.root.resolve()
    files, functions, folders = [], [], {}
    for path in (p for f in FOLDERS for p in sorted((root / f).rglob("*")) if p.suffix in SUFFIXES):
        text, where = path.read_text(), path.relative_to(root)
        num_lines = text.count("\n")
        files.append((num_lines, str(where)))
        folders[folder_of(where)] = folders.get(folder_of(where), 0) + num_lines
        functions += [(last - first + 1, f"{where}:{first} {name}") for name, first, last in functions_of(text)]

    if options.limit is not None:
        longer = [f"{where}: {length} lines" for length, where in functions if length > options.limit]
        sys.exit("\n".join(longer) or None)
    print_distribution("functions", [length for length, _ in functions])
    over = sum(length > 60 for length, _ in functions)
    print(f"functions over 60 lines: {over} ({100 * over / len(functions):.1f} %)")
    print_distribution("files", [length for length, _ in files])
    for title, rows in (("largest functions", functions), ("largest files", files)):
        print(f"\n{title}")
        for length, where in sorted(rows, key=lambda row: (-row[0], row[1]))[:options.most]:
            print(f"{length:6} {where}")
    print("\nlines per folder")
    for folder, num_lines in sorted(folders.items()):
        print(f"{num_lines:6} {folder}")
    print(f"{sum(folders.values()):6} in all")


if __name__ == "__main__":
    main()
