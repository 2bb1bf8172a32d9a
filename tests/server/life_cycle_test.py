# SPDX-License-Identifier: Apache-2.0
"""Start, keys and shutdown of `halfbyte serve`: life_cycle_test.py COMMAND MODEL."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
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

    def test_logs_each_request_and_nothing_that_was_said(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "access.log")
            server = Server(COMMAND, MODEL, "--access-log", path).ready()
            answer = server.post("/v1/chat/completions", chat_body("Secret words", max_tokens=3))[1]
            server.request("POST", "/v1/completions", {"prompt": ""})
            raw = server.send_raw(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n")
            body = json.dumps(LONG).encode()
            raw.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            raw.recv(100)
            raw.close()
            server.wait_until_idle()
            self.assertEqual(server.stop(), 0)
            with open(path, encoding="utf-8") as file:
                text = file.read()
        lines = {line["status"]: line for line in map(json.loads, text.splitlines()) if line["path"].startswith("/v1/")}
        self.assertEqual(sorted(lines), [200, 400, 499])
        self.assertEqual((lines[200]["id"], lines[200]["completion_tokens"]), (answer["id"], 3))
        self.assertEqual((lines[200]["method"], lines[200]["client"]), ("POST", "127.0.0.1"))
        self.assertNotIn("Secret", text)

    def test_serves_although_its_log_cannot_be_written(self):
        server = Server(COMMAND, MODEL, "--access-log", "/dev/full").ready()
        for _ in range(3):
            self.assertEqual(server.request("POST", "/v1/chat/completions", chat_body("Hi", max_tokens=1))[0], 200)
        self.assertEqual(server.stop(), 0)

    def test_takes_another_chat_template(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "template.jinja")
            with open(path, "w", encoding="utf-8") as file:
                file.write("{% for m in messages %}{{ m.content }}{% endfor %}")
            server = Server(COMMAND, MODEL, "--chat-template", path, "--tokenizer-path", MODEL).ready()
            count = server.post("/tokenize", {"messages": chat_body("12")["messages"]})[1]["count"]
            self.assertEqual(count, server.post("/tokenize", {"prompt": "12"})[1]["count"])
            self.assertEqual(server.stop(), 0)

    def test_a_seed_of_the_server_makes_its_draws_those_of_another(self):
        texts = []
        for _ in range(2):
            server = Server(COMMAND, MODEL, "--random-seed", "7").ready()
            body = chat_body("Count.", max_tokens=12, ignore_eos=True) | {"temperature": 2}
            texts.append([server.post("/v1/chat/completions", body)[1]["choices"][0]["message"]["content"]
                          for _ in range(2)])
            self.assertEqual(server.stop(), 0)
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0][0], texts[0][1])

    def test_says_that_an_option_of_other_servers_does_nothing(self):
        server = Server(COMMAND, MODEL, "--trust-remote-code", "--protect-metrics")
        self.assertIn("notice: --trust-remote-code has no effect: no code of a checkpoint is ever run\n", server.log)
        self.assertIn("notice: --protect-metrics has no effect: there is no key\n", server.log)
        self.assertEqual(server.ready().stop(), 0)

    def test_says_an_address_that_a_browser_takes(self):
        with socket.socket(socket.AF_INET6) as probe:
            try:
                probe.bind(("::1", 0))
            except OSError:
                self.skipTest("this machine has no IPv6")
        process = subprocess.Popen([COMMAND, "serve", MODEL, "--host", "::1", "--port", "0"],
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertRegex(process.stderr.readline(), r"^listening on http://\[::1\]:\d+\n$")

    def test_names_what_is_wrong_and_exits_with_1(self):
        taken = Server(COMMAND, MODEL)
        for arguments, words in (
                ([MODEL, "--port", str(taken.port)], "give another --host or --port"),
                ([MODEL, "--port", "0", "--max-total-tokens", "-1"], "--max-total-tokens"),
                (["/nothing"], "/nothing: no such folder"),
                ([MODEL, "--prot", "0"], "did you mean --port?"),
                ([MODEL, "--port", "0", "--access-log", "/nothing/log"], "--access-log /nothing/log"),
                ([MODEL, "--port", "0", "--api-key-file", "/nothing"], "--api-key-file /nothing: No such file"),
                ([MODEL, "--port", "0", "--api-key-file", "/dev/null"], "/dev/null: no API key in it"),
                ([MODEL, "--port", "0", "--chat-template", "/nothing"], "/nothing: there is no chat template"),
                ([MODEL, "--port", "0", "--tokenizer", "/nothing"], "/nothing: no such folder"),
                ([MODEL, "--port", "0", "--moe-runner-backend", "cuda_sm90"], "cuda_sm90")):
            done = subprocess.run([COMMAND, "serve", *arguments], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(words, done.stderr)
        taken.ready()
        self.assertEqual(taken.stop(), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
