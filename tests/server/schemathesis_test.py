# SPDX-License-Identifier: Apache-2.0
"""`halfbyte serve` against its own description, docs/openapi.json: schemathesis_test.py COMMAND MODEL [PROBLEMS].

Exits with 77 (skipped) without the Python package schemathesis.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest

from serving import Server, chat_body

if importlib.util.find_spec("schemathesis") is None:
    print("skipped: the Python package schemathesis is not installed")
    sys.exit(77)

import jsonschema_rs  # which it brings

COMMAND, MODEL = sys.argv[1:3]
FILE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "docs", "openapi.json"))
with open(FILE, encoding="utf-8") as file:
    DESCRIPTION = json.load(file)
CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
          "response_schema_conformance", "unsupported_method", "allow_header_conformance",
          "negative_data_rejection")


class Description(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Few tokens of context: an answer to a prompt that says nothing goes on to its end.
        cls.server = Server(COMMAND, MODEL, "--context-length", "128").ready()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_is_what_the_server_gives(self):
        self.assertEqual(json.loads(self.server.request("GET", "/openapi.json")[2]), DESCRIPTION)

    def test_holds_for_requests_that_are_made_from_it(self):
        with tempfile.TemporaryDirectory() as folder:  # for what it writes beside its report
            done = subprocess.run(
                [sys.executable, "-m", "schemathesis.cli", "run", FILE, "--url", f"http://127.0.0.1:{self.server.port}",
                 "--checks", ",".join(CHECKS), "--phases", "coverage,fuzzing", "--mode", "all",
                 "--max-examples", "5", "--seed", "1", "--workers", "1", "--no-color"],
                capture_output=True, text=True, timeout=300, cwd=folder)
        self.assertEqual(done.returncode, 0, done.stdout[-8000:] + done.stderr[-2000:])
        self.assertEqual(self.server.post("/v1/chat/completions", chat_body("Hi", max_tokens=2))[0], 200)

    def check_stream(self, path, body):
        content = DESCRIPTION["paths"][path]["post"]["responses"]["200"]["content"]
        form = jsonschema_rs.Draft202012Validator(
            {**content["text/event-stream"]["x-event"], "components": DESCRIPTION["components"]})
        status, _, data = self.server.request("POST", path, {**body, "stream": True})
        self.assertEqual(status, 200, data)
        lines = [line[len("data: "):] for line in data.decode().split("\n") if line.startswith("data: ")]
        self.assertGreater(len(lines), 2)
        for line in lines:
            if line != "[DONE]":
                form.validate(json.loads(line))

    def test_holds_for_each_event_of_a_stream(self):
        for fields in ({}, {"stream_options": {"include_usage": True}}, {"n": 2, "return_token_ids": True}):
            self.check_stream("/v1/chat/completions", chat_body("Hi", **fields))
            self.check_stream("/v1/completions", {"prompt": "12 / 4 =", **fields})
        self.check_stream("/v1/chat/completions", chat_body("Hi", logprobs=True, top_logprobs=2, max_tokens=4))
        self.check_stream("/v1/completions", {"prompt": "12 / 4 =", "logprobs": 2, "echo": True})
        self.check_stream("/v1/responses", {"input": "Hi", "top_logprobs": 2})
        self.check_stream("/v1/messages", chat_body("Hi", max_tokens=9))
        self.check_stream("/generate", {"text": ["12 / 4 =", "1 +"], "return_logprob": True, "logprob_start_len": 0})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
