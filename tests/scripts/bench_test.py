# SPDX-License-Identifier: Apache-2.0
"""bench_test.py HALFBYTE MODEL SHAPES: `halfbyte bench` answers with these keys, and says what is wrong with its options."""
import csv
import json
import subprocess
import sys
import tempfile
import unittest

HALFBYTE, MODEL, SHAPES = sys.argv[1:4]
LAYER_KEYS = ["shape", "tokens", "mode", "backend", "threads", "isa", "ms", "gbps", "gops", "limit", "percent_of_limit",
              "limited_by"]
LATENCY_KEYS = ["mean", "median", "p90", "p99", "std"]


def bench(*args, folder=None):
    return subprocess.run([HALFBYTE, "bench", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120,
                          cwd=folder)


class BenchTest(unittest.TestCase):
    def assert_error(self, result, *wanted):
        """Status 1, nothing on stdout, and one line of error that holds every text of `wanted`."""
        lines = [line for line in result.stderr.decode().splitlines() if line.startswith("error: ")]
        self.assertEqual((result.returncode, result.stdout, len(lines)), (1, b"", 1), result.stderr)
        for text in wanted:
            self.assertIn(text, lines[0])

    def rows(self, *args, **kwargs):
        result = bench(*args, "--json", **kwargs)
        self.assertEqual(result.returncode, 0, result.stderr)
        return [json.loads(line) for line in result.stdout.splitlines()]

    def test_a_shape_that_does_not_exist_is_answered_with_those_that_do(self):
        with open(SHAPES, encoding="utf-8") as file:
            self.assert_error(bench("layer", "--shape", "qwen"), '"qwen"', *json.load(file))

    def test_a_layer_needs_a_shape(self):
        self.assert_error(bench("layer"), "--shape", "halfbyte bench layer --help")

    def test_options_of_a_layer_that_cannot_be_are_refused(self):
        gsm = ("layer", "--shape", "gsm-mini")
        self.assert_error(bench(*gsm, "--tokens", "0"), "--tokens", "0")
        self.assert_error(bench(*gsm, "--tokens", "1,x"), "--tokens", "x")
        self.assert_error(bench(*gsm, "--experts", "3"), "--experts 3", "4 different experts")
        self.assert_error(bench(*gsm, "--threads", "-1"), "--threads", "-1")
        self.assert_error(bench(*gsm, "--moe-activation-mode", "w5"), '"w5"', "w4a16")
        self.assert_error(bench(*gsm, "--moe-runner-backend", "nope"), "nope", "cpu")

    def test_a_layer_that_does_not_fit_says_how_much_it_wants_and_what_to_do(self):
        result = bench("layer", "--shape", "mixtral-8x7b", "--experts", "65536")
        self.assert_error(result, "out_of_memory", "bytes wanted", "bytes available", "--experts ")

    def test_a_row_of_a_layer_has_these_keys_and_agrees_with_itself(self):
        # From another folder: the shapes are in the command.
        with tempfile.TemporaryDirectory() as folder:
            rows = self.rows("layer", "--shape", "gsm-mini", "--tokens", "1,4", "--threads", "1", folder=folder)
        self.assertEqual([row["tokens"] for row in rows], [1, 4])
        for row in rows:
            self.assertEqual(list(row), LAYER_KEYS)
            self.assertEqual((row["shape"], row["mode"], row["backend"], row["threads"]), ("gsm-mini", "w4a16", "cpu", 1))
            self.assertIn(row["limited_by"], ("memory", "compute"))
            speed = row["gbps"] if row["limited_by"] == "memory" else row["gops"]
            self.assertAlmostEqual(row["percent_of_limit"] / (100 * speed / row["limit"]), 1, delta=1e-3)
        # 4 experts of 3 * 256 * 128 weights, 4.5 bits and 2 operations each.
        weights = 4 * 3 * 256 * 128
        self.assertAlmostEqual(rows[0]["gbps"] * rows[0]["ms"] / (weights * 9 / 16 / 1e6), 1, delta=1e-3)
        self.assertAlmostEqual(rows[0]["gops"] * rows[0]["ms"] / (weights * 2 / 1e6), 1, delta=1e-3)

    def test_rows_of_a_layer_go_to_a_file_and_from_there_into_a_picture(self):
        with tempfile.TemporaryDirectory() as folder:
            result = bench("layer", "--shape", "gsm-mini", "--tokens", "1,4", "--threads", "1", "--json", "layer.jsonl",
                           folder=folder)
            self.assertIn(b"of the limit", result.stdout)
            with open(f"{folder}/layer.jsonl", encoding="utf-8") as file:
                self.assertEqual([list(json.loads(line)) for line in file], [LAYER_KEYS, LAYER_KEYS])
            result = bench("plot", "layer.jsonl", "--output", "layer.svg", folder=folder)
            self.assertEqual((result.returncode, result.stdout), (0, b""), result.stderr)
            with open(f"{folder}/layer.svg", encoding="utf-8") as file:
                self.assertIn("gsm-mini, w4a16 on cpu", file.read())
            self.assert_error(bench("plot", "layer.svg", "--output", "other.svg", folder=folder), "corrupt_data", "line 1")
            self.assert_error(bench("plot", "none", "--output", "other.svg", folder=folder), "none: cannot be read")

    def test_a_layer_on_a_device_that_is_not_there_says_what_inspect_backends_says(self):
        answer = subprocess.run([HALFBYTE, "inspect", "backends", "--json"], stdout=subprocess.PIPE, timeout=120, check=True)
        reports = json.loads(answer.stdout)["backends"]
        reason = next(r["reason"] for r in reports if (r["transport"], r["backend"]) == ("local", "cuda_sm90"))
        if "no CUDA device" not in reason and "not built" not in reason:
            self.skipTest("there is a device")
        result = bench("layer", "--shape", "gsm-mini", "--moe-runner-backend", "cuda_sm90")
        self.assert_error(result, "unsupported", reason)

    def test_the_table_of_a_layer_names_its_columns(self):
        result = bench("layer", "--shape", "gsm-mini", "--experts", "8", "--moe-activation-mode", "w4a4_dynamic")
        heading, row = result.stdout.decode().splitlines()
        self.assertEqual(heading.split()[:6], ["shape", "tokens", "mode", "backend", "threads", "isa"])
        self.assertIn("gsm-mini with 8 experts", row)
        self.assertIn("w4a4_dynamic", row)

    def test_a_run_of_the_engine_has_these_keys_and_agrees_with_itself(self):
        rows = self.rows("engine", MODEL, "--prompt-tokens", "8", "--new-tokens", "3", "--requests", "5", "--concurrency", "1,2")
        self.assertEqual([row["concurrency"] for row in rows], [1, 2])
        for row in rows:
            self.assertEqual((row["requests"], row["prompt_tokens"], row["new_tokens"]), (5, 8, 3))
            self.assertAlmostEqual(row["output_tokens_per_s"] * row["duration_s"] / 15, 1, delta=1e-3)
            for key in ("prefill_tokens_per_s", "decode_tokens_per_s", "requests_per_s"):
                self.assertGreater(row[key], 0)
            for key in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
                self.assertEqual(list(row[key]), LATENCY_KEYS)
            self.assertLess(row["ttft_ms"]["median"], row["e2e_ms"]["median"])

    def test_rows_of_the_engine_have_a_mean_over_the_repetitions(self):
        load = ("engine", MODEL, "-p", "8", "-n", "3", "-b", "1,2", "-r", "2", "-o")
        lines = bench(*load, "md").stdout.decode().splitlines()
        self.assertEqual(lines[:2], ["| model | backend | mode | at a time | test | tok/s |", "|---|---|---|--:|---|--:|"])
        cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]
        self.assertEqual([row[3:5] for row in cells], [["1", "pp8"], ["1", "tg3"], ["2", "pp8"], ["2", "tg3"]])
        for row in cells:
            self.assertRegex(row[5], r"^\d+\.\d\d \u00b1 \d+\.\d\d$")
        rows = list(csv.DictReader(bench(*load, "csv").stdout.decode().splitlines()))
        self.assertEqual([(row["concurrency"], row["test"], row["repetitions"]) for row in rows],
                         [("1", "pp8", "2"), ("1", "tg3", "2"), ("2", "pp8", "2"), ("2", "tg3", "2")])
        self.assertTrue(all(float(row["tokens_per_s"]) > 0 for row in rows))

    def test_repetitions_of_the_engine_add_up(self):
        row, = self.rows("engine", MODEL, "-p", "8", "-n", "3", "-b", "2", "-r", "3")
        self.assertEqual((row["repetitions"], row["requests"]), (3, 6))
        self.assertGreater(row["host_us_per_step"], 0)
        self.assertGreaterEqual(row["decode_tokens_per_s_std"], 0)

    def test_options_of_the_engine_that_cannot_be_are_refused(self):
        self.assert_error(bench("engine"), "required", "halfbyte bench engine --help")
        self.assert_error(bench("engine", MODEL, "--concurrency", "0"), "--concurrency", "0")
        self.assert_error(bench("engine", MODEL, "-p", "1000", "-n", "100"), "--prompt-tokens 1000", "context of 1024")
        self.assert_error(bench("engine", "/nowhere"), "/nowhere")
        self.assert_error(bench("engine", MODEL, "-o", "xml"), "--output", "xml")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
