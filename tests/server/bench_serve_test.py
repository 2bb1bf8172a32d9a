# SPDX-License-Identifier: Apache-2.0
"""`halfbyte bench serve` against `halfbyte serve`: bench_serve_test.py COMMAND MODEL."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

from serving import MODEL_NAME, Server

COMMAND, MODEL = sys.argv[1:3]
SMALL = ("--random-input-len", "12", "--random-output-len", "5", "--num-prompts", "6")


class BenchServe(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(COMMAND, MODEL, "--api-key", "secret").ready()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def bench(self, *options, key="secret"):
        return subprocess.run([COMMAND, "bench", "serve", "--port", str(self.server.port), "--api-key", key, *options],
                              capture_output=True, text=True, timeout=120)

    def rows(self, *options):
        done = self.bench(*options, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def assert_error(self, *options, words, **others):
        done = self.bench(*options, **others)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn(words, done.stderr)

    def test_reports_a_run_for_each_concurrency(self):
        with tempfile.TemporaryDirectory() as folder:
            lines, plot = os.path.join(folder, "runs.jsonl"), os.path.join(folder, "plot.svg")
            rows = self.rows(*SMALL, "--dataset-name", "random-ids", "--max-concurrency", "1,3",
                             "--output-file", lines, "--plot", plot)
            with open(lines, encoding="utf-8") as file:
                self.assertEqual([json.loads(line) for line in file], rows)
            self.assertTrue(xml.etree.ElementTree.parse(plot).getroot().tag.endswith("svg"))
        self.assertEqual([row["max_concurrency"] for row in rows], [1, 3])
        self.assertEqual([row["concurrency_max"] for row in rows], [1, 3])
        for row in rows:
            self.assertEqual((row["successful"], row["failed"], row["aborted"]), (6, 0, 0), row["first_error"])
            self.assertEqual((row["input_tokens"], row["output_tokens"]), (6 * 12, 6 * 5))
            self.assertEqual(row["prompts_counted_otherwise"], 0)
            self.assertEqual((row["model"], row["has_usage"]), (MODEL_NAME, True))
            self.assertLess(0, row["ttft_ms"]["median"])
            self.assertLessEqual(row["ttft_ms"]["median"], row["ttft_ms"]["p99"])
            self.assertLessEqual(row["ttft_ms"]["median"], row["e2e_ms"]["median"])
            self.assertEqual(row["client_version"], row["server_version"])

    def test_counts_with_a_tokenizer_as_the_server_does(self):
        row, = self.rows(*SMALL, "--tokenizer", MODEL, "--goodput", "e2e:60000")
        self.assertEqual((row["successful"], row["prompts_counted_otherwise"]), (6, 0))
        self.assertGreater(row["local_output_tokens"], 0)
        self.assertEqual(row["goodput_requests_per_s"], row["requests_per_s"])

    def test_chats_and_takes_whole_answers(self):
        row, = self.rows(*SMALL, "--backend", "openai-chat", "--disable-stream", "--request-rate", "200",
                         "--extra-request-body", '{"max_tokens": 3}')
        self.assertEqual((row["successful"], row["output_tokens"]), (6, 6 * 3))
        self.assertEqual(row["itl_ms"]["mean"], 0)

    def test_prints_a_table(self):
        done = self.bench(*SMALL)
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("6 successful, 0 failed", "TTFT", "TPOT", "ITL", "E2E", "p99", "out/s"):
            self.assertIn(word, done.stdout)

    def test_says_what_is_wrong(self):
        self.assert_error(*SMALL, words="--api-key", key="wrong")
        self.assert_error(*SMALL, "--model", "other", words="404")
        self.assert_error(*SMALL, "--base-url", "http://127.0.0.1:9", words="127.0.0.1:9")
        self.assert_error(*SMALL, "--base-url", "https://127.0.0.1", words="TLS")
        self.assert_error(*SMALL, "--dataset-name", "sonnet", words='"sonnet" is no data set')
        self.assert_error(*SMALL, "--dataset-name", "sharegpt", words="--dataset-path")
        self.assert_error(*SMALL, "--dataset-name", "random-ids", "--backend", "openai-chat", words="--backend openai")
        self.assert_error(*SMALL, "--goodput", "itl:1", words="itl:1")
        self.assert_error(*SMALL, "--extra-request-body", "[]", words="JSON object")
        self.assert_error(*SMALL, "--backend", "sglang", words="--backend")
        self.assert_error("--random-input-len", "5000", words="context")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
