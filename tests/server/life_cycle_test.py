# SPDX-License-Identifier: Apache-2.0
"""Start, keys and shutdown of `halfbyte serve`: life_cycle_test.py COMMAND MODEL."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

from serving import Server, chat_body, events

COMMAND, MODEL = sys.argv[1:3]
LONG = chat_body("Count.", ignore_eos=True, stream=True, n=32)  # takes seconds, on a fast machine too


def wait_until_draining(server):
    deadline = time.monotonic() + 20
    while server.request("GET", "/health")[0] == 200 and time.monotonic() < deadline:
        time.sleep(0.01)


def stream_in_background(server, body):
    """A thread that reads a stream into the list it comes with, begun when the first token is there."""
    received = []
    connection = server.connect()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    received.append(response.read(1))

    def read():
        received.append(response.read())
        connection.close()

    thread = threading.Thread(target=read)
    thread.start()
    return thread, received


class LifeCycle(unittest.TestCase):
    def test_a_request_may_be_as_long_as_the_cache_of_its_rank(self):
        server = Server(COMMAND, MODEL, "--ep-size", "2", "--moe-a2a-backend", "all_to_all",
                        "--max-total-tokens", "64").ready()
        models = json.loads(server.request("GET", "/v1/models")[2])
        self.assertEqual(models["data"][0]["max_model_len"], 64)
        self.assertEqual(server.request("POST", "/v1/chat/completions", chat_body("What is 12 / 4?"))[0], 200)
        self.assertEqual(server.stop(), 0)

    def test_finishes_what_runs_after_sigterm(self):
        server = Server(COMMAND, MODEL).ready()
        thread, received = stream_in_background(server, dict(LONG, max_tokens=60))
        os.kill(server.process.pid, signal.SIGTERM)
        thread.join(60)
        self.assertEqual(events(b"".join(received))[-1]["choices"][0]["finish_reason"], "length")
        self.assertEqual(server.process.wait(30), 0)

    def test_ends_what_runs_with_an_error_at_a_second_signal(self):
        server = Server(COMMAND, MODEL).ready()
        thread, received = stream_in_background(server, LONG)
        os.kill(server.process.pid, signal.SIGINT)
        wait_until_draining(server)
        self.assertEqual(server.request("GET", "/health")[0], 503)
        self.assertEqual(server.request("POST", "/v1/chat/completions", chat_body("Hi"))[0], 503)
        os.kill(server.process.pid, signal.SIGINT)
        thread.join(60)
        self.assertIn("shutting down", events(b"".join(received))[-1]["error"]["message"])
        self.assertEqual(server.process.wait(30), 0)

    def test_ends_what_runs_after_the_timeout(self):
        server = Server(COMMAND, MODEL, "--shutdown-timeout", "0").ready()
        thread, received = stream_in_background(server, LONG)
        self.assertEqual(server.stop(), 0)
        thread.join(60)
        self.assertIn("error", events(b"".join(received))[-1])

    def test_asks_for_its_key(self):
        server = Server(COMMAND, MODEL, "--api-key", "secret").ready()
        path, body = "/v1/chat/completions", chat_body("Hi", max_tokens=1)
        status, headers, data = server.request("POST", path, body)
        self.assertEqual((status, headers["WWW-Authenticate"]), (401, "Bearer"))
        self.assertEqual(json.loads(data)["error"]["type"], "authentication_error")
        self.assertEqual(server.request("POST", path, body, {"Authorization": "Bearer wrong"})[0], 401)
        self.assertEqual(server.request("POST", path, body, {"Authorization": "Bearer secret"})[0], 200)
        self.assertEqual(server.stop(), 0)

    def test_asks_for_the_admin_key_where_it_controls(self):
        server = Server(COMMAND, MODEL, "--api-key", "secret", "--admin-api-key", "admin").ready()
        for key, want in (("secret", 401), ("admin", 200)):
            self.assertEqual(server.request("POST", "/flush_cache", None, {"Authorization": f"bearer {key}"})[0], want)
        self.assertEqual(server.stop(), 0)

    def test_names_what_is_wrong_and_exits_with_1(self):
        taken = Server(COMMAND, MODEL)
        for arguments, words in (
                ([MODEL, "--port", str(taken.port)], "give another --host or --port"),
                ([MODEL, "--port", "0", "--max-total-tokens", "-1"], "--max-total-tokens"),
                (["/nothing"], "/nothing: no such folder"),
                ([MODEL, "--port", "0", "--moe-runner-backend", "cuda_sm90"], "cuda_sm90")):
            done = subprocess.run([COMMAND, "serve", *arguments], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(words, done.stderr)
        taken.ready()
        self.assertEqual(taken.stop(), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
