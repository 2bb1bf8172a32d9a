# SPDX-License-Identifier: Apache-2.0
"""Options of `halfbyte serve` that no other test gives it: options_test.py COMMAND MODEL."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

from serving import Server, chat_body

COMMAND, MODEL = sys.argv[1:3]
OPTIONS = ["--sampling-defaults", "openai", "--schedule-policy", "fcfs", "--disable-radix-cache", "--grammar-backend", "none",
           "--sse-keepalive", "1", "--max-running-requests", "1", "--log-requests", "--mem-fraction-static", "0.2",
           "--max-total-tokens", "4096"]
KEY = {"Authorization": "Bearer second"}


class Options(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        keys = os.path.join(cls.folder.name, "keys")
        with open(keys, "wb") as file:
            file.write(b"first\r\n\r\n\nsecond")
        cls.server = Server(COMMAND, MODEL, "--api-key-file", keys, *OPTIONS).ready()

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        cls.folder.cleanup()
        assert status == 0, "".join(cls.server.log)

    def chat(self, **fields):
        status, _, data = self.server.request("POST", "/v1/chat/completions", chat_body("What is 12 / 4?", **fields), KEY)
        return status, json.loads(data)

    def test_keys_are_the_lines_of_a_file(self):
        for key, want in (("first", 200), ("second", 200), ("firs", 401), ("third", 401)):
            header = {"Authorization": f"Bearer {key}"}
            self.assertEqual(self.server.request("GET", "/v1/models", None, header)[0], want, key)

    def test_defaults_may_be_openais(self):
        info = json.loads(self.server.request("GET", "/server_info", None, KEY)[2])
        self.assertEqual(info["sampling_defaults"],
                         {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0})

    def test_no_prefix_is_kept(self):
        for _ in range(2):
            status, answer = self.chat(max_tokens=2)
            self.assertEqual((status, answer["usage"]["prompt_tokens_details"]["cached_tokens"]), (200, 0))

    def test_requests_for_constrained_output_are_refused(self):
        status, answer = self.chat(response_format={"type": "json_object"})
        self.assertEqual((status, answer["error"]["param"]), (400, "response_format"))

    def test_a_priority_is_a_number(self):
        self.assertEqual(self.chat(max_tokens=1, priority=3)[0], 200)
        status, answer = self.chat(max_tokens=1, priority="high")
        self.assertEqual((status, answer["error"]["param"]), (400, "priority"))

    def test_a_stream_that_waits_has_comments(self):
        # Sixteen answers of a whole context, one after the other: seconds, on any machine.
        occupant = self.server.connect()
        body = chat_body("Count.", ignore_eos=True, stream=True, n=16)
        headers = {"Content-Type": "application/json", **KEY}
        with contextlib.closing(occupant):
            occupant.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            occupant.getresponse().read(1)
            with contextlib.closing(self.server.connect()) as connection:
                connection.request("POST", "/v1/chat/completions", json.dumps(chat_body("Hi", stream=True)), headers)
                self.assertEqual(connection.getresponse().readline(), b": keep-alive\n")

    def test_what_requests_say_is_told_where_that_is_asked_for(self):
        self.chat(max_tokens=1, user="somebody")
        line = json.loads(self.wait_for_line(r'\{"request":.*somebody'))
        self.assertEqual((line["request"], line["body_bytes"]), ("/v1/chat/completions", len(line["body"])))
        self.assertEqual(json.loads(line["body"])["messages"][0]["content"], "What is 12 / 4?")

    def test_the_start_tells_where_memory_goes(self):
        self.wait_for_line(r"memory: weights \d+\.\d\d GiB; KV cache \d+\.\d\d GiB, 4096 tokens\n")
        self.wait_for_line(r"memory: \d+\.\d\d GiB were available; both are \d\.\d\d of it \(--mem-fraction-static\)\n")

    def test_a_lower_level_tells_less(self):
        for level, num_notices in (("info", 1), ("warning", 1), ("error", 0)):
            done = subprocess.run([COMMAND, "serve", MODEL, "--port", str(self.server.port), "--trust-remote-code",
                                   "--log-level", level], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr.count("notice: "), done.stderr.count("error: ")),
                             (1, num_notices, 1), done.stderr)

    def wait_for_line(self, pattern):
        """The first line of the log that begins so; the thread that reads it may be behind."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for line in list(self.server.log):
                if re.match(pattern, line):
                    return line
            time.sleep(0.01)
        raise AssertionError(pattern + ": not in " + "".join(self.server.log))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
