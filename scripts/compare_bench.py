#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare_bench.py BEFORE AFTER: times of `halfbyte bench layer --json`, row by row.

Each file holds one JSON object a line. Rows are the same when shape, tokens, mode, backend, threads and isa are (the isa
may differ with --any-isa); a row that a file has more than once counts with its fastest time. The ratio is before over
after: above 1 is faster. Exits 1 with --fail-above PERCENT when a row became slower by more, 2 when a file cannot be
read or no row is in both.
"""

import argparse
import json
import sys

KEY = ("shape", "tokens", "mode", "backend", "threads", "isa")
VALUES = ("ms", "percent_of_limit", "limited_by")


class BadFile(Exception):
    pass


def parse_row(text, place):
    try:
        row = json.loads(text)
    except ValueError as error:
        raise BadFile(f"{place}: not JSON: {error}") from error
    missing = [name for name in KEY + VALUES if not isinstance(row, dict) or name not in row]
    if missing:
        raise BadFile(f"{place}: no {', '.join(missing)}: want lines of `halfbyte bench layer --json`")
    if not isinstance(row["ms"], (int, float)) or row["ms"] <= 0:
        raise BadFile(f"{place}: ms is {row['ms']!r}, want a number above 0")
    return row


def read_rows(path, key):
    """Key -> the fastest row of this key, in the order of the file."""
    rows = {}
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadFile(f"{path}: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = parse_row(line, f"{path}:{number}")
        name = tuple(row[part] for part in key)
        if name not in rows or row["ms"] < rows[name]["ms"]:
            rows[name] = row
    if not rows:
        raise BadFile(f"{path}: no rows")
    return rows


def describe(row):
    return f"{row['shape']:<24} {row['tokens']:>6} {row['mode']:<12} {row['backend']:<9} {row['threads']:>7}"


def compare(before, after):
    """Prints the table; returns the ratios, name by name."""
    print(f"{'shape':<24} {'tokens':>6} {'mode':<12} {'backend':<9} {'threads':>7} "
          f"{'before ms':>10} {'after ms':>10} {'ratio':>6}  of the limit")
    ratios = {}
    for name, old in before.items():
        if name not in after:
            print(f"{describe(old)} {old['ms']:>10.3f} {'-':>10} {'-':>6}  only before")
            continue
        new = after[name]
        ratios[name] = old["ms"] / new["ms"]
        print(f"{describe(new)} {old['ms']:>10.3f} {new['ms']:>10.3f} {ratios[name]:>6.2f}  "
              f"{old['percent_of_limit']:.0f} % -> {new['percent_of_limit']:.0f} % ({new['limited_by']})")
    for name, new in after.items():
        if name not in before:
            print(f"{describe(new)} {'-':>10} {new['ms']:>10.3f} {'-':>6}  only after")
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--any-isa", action="store_true", help="a row is the same on another instruction set")
    parser.add_argument("--fail-above", type=float, metavar="PERCENT", help="exit 1 when a row is slower by more")
    options = parser.parse_args()
    key = KEY[:-1] if options.any_isa else KEY
    try:
        ratios = compare(read_rows(options.before, key), read_rows(options.after, key))
    except BadFile as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if not ratios:
        print("error: no row is in both files", file=sys.stderr)
        return 2
    slowest = max(1 / ratio for ratio in ratios.values())
    if options.fail_above is not None and slowest > 1 + options.fail_above / 100:
        print(f"error: a row is {100 * (slowest - 1):.1f} % slower", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
