#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/function_sizes.py sees functions and nothing else. Expected values: counted by hand in the sources below."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import function_sizes


def functions(text):
    return list(function_sizes.functions_of(text))


class FunctionSizes(unittest.TestCase):
    def test_a_function_runs_from_its_signature_to_its_closing_brace(self):
        self.assertEqual(functions("namespace a {\nint f(int x,\n      int y) {\n  return x;\n}\n}\n"), [("f", 2, 5)])

    def test_braces_in_text_and_comments_open_nothing(self):
        self.assertEqual(functions('#define A {\nint f() {\n  // {\n  g("}", \'{\');\n}\n'), [("f", 2, 5)])

    def test_a_lambda_belongs_to_the_function_around_it(self):
        self.assertEqual(functions("void f() {\n  run([](int x) {\n    if (x) { g(); }\n  });\n}\n"), [("f", 1, 5)])

    def test_members_and_their_first_values_are_told_from_the_body(self):
        source = "struct S {\n  S(int a) : a_{a}, b_(a) {\n    check();\n  }\n  int g() const { return a_; }\n  int a_{0};\n};\n"
        self.assertEqual(functions(source), [("S", 2, 4), ("g", 5, 5)])

    def test_types_tables_and_declarations_are_no_functions(self):
        self.assertEqual(functions("enum class E : int { kA };\nconst int k[] = {f(1), 2};\nint f(int = 3);\n"), [])

    def test_a_percentile_is_a_value_that_is_there(self):
        self.assertEqual([function_sizes.percentile([1, 2, 3, 4], p) for p in (50, 90, 99)], [2, 4, 4])


if __name__ == "__main__":
    unittest.main()
