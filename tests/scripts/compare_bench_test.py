# SPDX-License-Identifier: Apache-2.0
"""scripts/compare_bench.py pairs rows and tells how much faster they became. Expected values: by hand."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "compare_bench.py"


def row(tokens, ms, **changes):
    return {"shape": "s", "tokens": tokens, "mode": "w4a16", "backend": "cpu", "threads": 2, "isa": "avx2", "ms": ms,
            "gbps": 1.0, "gops": 1.0, "limit": 2.0, "percent_of_limit": 50.0, "limited_by": "memory", **changes}


class CompareBench(unittest.TestCase):
    def compare(self, before, after, *options):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, rows in (("before", before), ("after", after)):
                paths.append(os.path.join(folder, name))
                text = rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows)
                pathlib.Path(paths[-1]).write_text(text, encoding="utf-8")
            return subprocess.run([sys.executable, SCRIPT, *paths, *options], capture_output=True, text=True, timeout=60)

    def test_the_ratio_is_before_over_after(self):
        result = self.compare([row(1, 3.0), row(16, 8.0)], [row(16, 2.0), row(1, 6.0)])
        self.assertEqual(result.returncode, 0, result.stderr)
        _, first, second = result.stdout.splitlines()
        self.assertEqual(first.split()[1:8], ["1", "w4a16", "cpu", "2", "3.000", "6.000", "0.50"])
        self.assertEqual(second.split()[7], "4.00")

    def test_a_repeated_row_counts_with_its_fastest_time(self):
        result = self.compare([row(1, 3.0), row(1, 2.0)], [row(1, 1.0), row(1, 5.0)])
        self.assertEqual(result.stdout.splitlines()[1].split()[7], "2.00")

    def test_rows_of_one_file_are_named(self):
        result = self.compare([row(1, 1.0), row(2, 1.0)], [row(1, 1.0), row(3, 1.0)])
        self.assertIn("only before", result.stdout)
        self.assertIn("only after", result.stdout)

    def test_another_instruction_set_is_another_row_unless_told_otherwise(self):
        rows = [row(1, 1.0)], [row(1, 0.5, isa="avx512")]
        self.assertEqual(self.compare(*rows).returncode, 2)
        self.assertEqual(self.compare(*rows, "--any-isa").returncode, 0)

    def test_a_row_that_became_slower_than_allowed_fails(self):
        rows = [row(1, 1.0)], [row(1, 1.05)]
        self.assertEqual(self.compare(*rows, "--fail-above", "6").returncode, 0)
        result = self.compare(*rows, "--fail-above", "3")
        self.assertEqual(result.returncode, 1)
        self.assertIn("5.0 % slower", result.stderr)

    def test_a_file_that_is_none_of_these_is_named_with_the_line(self):
        for text, wanted in (("", "no rows"), ("{}\n", "no shape"), ('\n{"', ":2: not JSON"), ("[1]\n", "no shape"),
                             (json.dumps(row(1, 0)), "ms is 0")):
            result = self.compare(text, [row(1, 1.0)])
            self.assertEqual((result.returncode, result.stdout), (2, ""), text)
            self.assertIn(wanted, result.stderr)


if __name__ == "__main__":
    unittest.main()
