#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check_layers.py finds planted violations and accepts what the table allows."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "check_layers.py"


def check(files):
    """Runs the script over a tree of {path: text}; returns (exit status, output)."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            file = pathlib.Path(root) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        run = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, check=False)
        return run.returncode, run.stdout


class CheckLayersTest(unittest.TestCase):
    def test_accepts_what_the_table_allows(self):
        status, _ = check({"src/moe/backends/cpu.cpp": '#include "kernels/cpu/linear.h"\n#include <fmt/format.h>\n'})
        self.assertEqual(status, 0)

    def test_refuses_a_folder_that_is_not_in_the_table(self):
        status, output = check({"src/moe/layer.cpp": '#include "kernels/cpu/linear.h"\n'})
        self.assertEqual(status, 1)
        self.assertIn("src/moe/layer.cpp: moe may not include kernels/cpu/linear.h", output)

    def test_refuses_a_third_party_header_outside_its_folder(self):
        status, output = check({"src/engine/engine.cpp": "#include <nlohmann/json.hpp>\n"})
        self.assertEqual(status, 1)
        self.assertIn("belongs to checkpoint, text, server", output)

    def test_refuses_a_public_header_that_leaks_the_source_tree(self):
        status, output = check({"include/halfbyte/moe.h": '#include "moe/plan.h"\n'})
        self.assertEqual(status, 1)
        self.assertIn("a public header includes moe/plan.h", output)


if __name__ == "__main__":
    unittest.main()
