# SPDX-License-Identifier: Apache-2.0
"""Black-box tests of `halfbyte serve` on the shipped model: serve_test.py COMMAND MODEL PROBLEMS."""

import json
import socket
import subprocess
import sys
import threading
import unittest

from serving import MODEL_NAME, Server, chat_body, events

COMMAND, MODEL, PROBLEMS = sys.argv[1:4]
QUESTION = "60 balloons are split evenly between 12 children. How many balloons does each child have?"


class Serving(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(COMMAND, MODEL).ready()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def chat(self, content=QUESTION, **fields):
        status, answer = self.server.post("/v1/chat/completions", chat_body(content, **fields))
        self.assertEqual(status, 200, answer)
        return answer

    def test_answers_a_chat(self):
        answer = self.chat()
        choice = answer["choices"][0]
        self.assertEqual(answer["object"], "chat.completion")
        self.assertEqual(choice["message"]["role"], "assistant")
        self.assertIn("####", choice["message"]["content"])
        self.assertEqual(choice["finish_reason"], "stop")
        usage = answer["usage"]
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])

    def test_streams_what_it_answers_whole(self):
        for fields in ({}, {"max_tokens": 7}, {"stop": ["####"]}, {"n": 2, "temperature": 0.8, "seed": 3}):
            whole = self.chat(**fields)
            body = chat_body(QUESTION, stream=True, stream_options={"include_usage": True}, **fields)
            status, headers, data = self.server.request("POST", "/v1/chat/completions", body)
            self.assertEqual(status, 200)
            self.assertTrue(headers["Content-Type"].startswith("text/event-stream"))
            chunks = events(data)
            self.assertEqual(chunks[-1]["choices"], [])
            self.assertEqual(chunks[-1]["usage"], whole["usage"])
            for want in whole["choices"]:
                deltas = [c["choices"][0] for c in chunks[:-1] if c["choices"][0]["index"] == want["index"]]
                self.assertEqual(deltas[0]["delta"]["role"], "assistant")
                self.assertEqual("".join(d["delta"].get("content", "") for d in deltas), want["message"]["content"])
                finishes = [d["finish_reason"] for d in deltas]
                self.assertEqual(finishes, [None] * (len(deltas) - 1) + [want["finish_reason"]])

    def test_completes_raw_text(self):
        for prompt in ("12 / 4 =", ["12 / 4 =", "1 + 1 ="], [10, 20, 30], [[10, 20], [30]]):
            status, answer = self.server.post(
                "/v1/completions", {"prompt": prompt, "max_tokens": 4, "temperature": 0})
            self.assertEqual(status, 200, answer)
            many = isinstance(prompt, list) and not isinstance(prompt[0], int)
            self.assertEqual(len(answer["choices"]), len(prompt) if many else 1)

    def test_answers_in_a_crowd_as_alone(self):
        fields = {"max_tokens": 24, "ignore_eos": True, "logprobs": True, "top_logprobs": 5}
        alone = self.chat(**fields)["choices"]
        crowd = [threading.Thread(target=self.chat, args=(f"What is {i} + {i}?",),
                                  kwargs={"max_tokens": 40, "ignore_eos": True}) for i in range(7)]
        for thread in crowd:
            thread.start()
        together = self.chat(**fields)["choices"]
        for thread in crowd:
            thread.join()
        self.assertEqual(together, alone)

    def test_gets_as_many_right_as_eval(self):
        count = 6
        with open(PROBLEMS) as file:
            problems = [json.loads(line) for line, _ in zip(file, range(count))]
        right = [0] * count

        def answer(i):
            text = self.chat(problems[i]["question"], max_tokens=128)["choices"][0]["message"]["content"]
            right[i] = int(text.rpartition("####")[2].strip() == str(problems[i]["answer"]))

        threads = [threading.Thread(target=answer, args=(i,)) for i in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        report = subprocess.run([COMMAND, "eval", MODEL, "--problems", PROBLEMS, "--limit", str(count), "--json"],
                                check=True, capture_output=True, text=True).stdout
        self.assertAlmostEqual(sum(right) / count, json.loads(report)["accuracy"])

    def test_stays_alive_between_requests_of_a_connection(self):
        connection = self.server.connect()
        for stream in (False, True, False):
            connection.request("POST", "/v1/chat/completions", json.dumps(chat_body("Hi", max_tokens=2, stream=stream)),
                               {"Content-Type": "application/json"})
            socket_before = connection.sock
            response = connection.getresponse()
            self.assertEqual(response.status, 200)
            response.read()
            self.assertIs(connection.sock, socket_before)
        connection.close()

    def test_answers_requests_that_are_sent_ahead(self):
        request = b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n"
        chat = json.dumps(chat_body("Hi", max_tokens=3)).encode()
        post = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n" % len(chat)) + chat
        raw = self.server.send_raw(post + post + request)
        data = b""
        while b'"version"' not in data:
            piece = raw.recv(65536)
            self.assertTrue(piece, data)
            data += piece
        self.assertEqual(data.count(b"HTTP/1.1 200"), 3)
        raw.close()

    def test_streams_to_http_1_0_without_chunks(self):
        chat = json.dumps(chat_body("Hi", max_tokens=3, stream=True)).encode()
        raw = self.server.send_raw(
            b"POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(chat) + chat)
        data = b""
        while piece := raw.recv(65536):
            data += piece
        self.assertEqual(len(events(data.partition(b"\r\n\r\n")[2])), 5)
        raw.close()

    def test_answers_head_as_get_without_the_body(self):
        for path in ("/health", "/v1/models", "/metrics"):
            status, headers, data = self.server.request("HEAD", path)
            self.assertEqual((status, data), (200, b""), path)
            self.assertGreater(int(headers["Content-Length"]), 0, path)
        self.assertEqual(self.server.request("HEAD", "/v1/chat/completions")[0], 405)
        self.assertEqual(self.server.request("HEAD", "/flush_cache")[0], 405)

    def test_answers_expect_100_continue(self):
        chat = json.dumps(chat_body("Hi", max_tokens=1)).encode()
        raw = self.server.send_raw(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(chat))
        self.assertTrue(raw.recv(100).startswith(b"HTTP/1.1 100"))
        raw.sendall(chat)
        self.assertTrue(raw.recv(100).startswith(b"HTTP/1.1 200"))
        raw.close()

    def test_refuses_with_openais_error_body(self):
        chat = "/v1/chat/completions"
        cases = [
            ("GET", chat, None, {}, 405),
            ("GET", "/nothing", None, {}, 404),
            ("POST", chat, b"{", {}, 400),
            ("POST", chat, b'{"a": "\xff"}', {}, 400),
            ("POST", chat, b"{}", {"Content-Type": "text/plain"}, 415),
            ("POST", chat, chat_body("Hi", model="other"), {}, 404),
            ("POST", chat, chat_body("Hi", min_p=1.5), {}, 400),
            ("POST", chat, chat_body("word " * 2000), {}, 400),
            ("POST", "/v1/completions", {"prompt": ""}, {}, 400),
            ("POST", "/v1/completions", {"prompt": [2048]}, {}, 400),
        ]
        for method, path, body, headers, want in cases:
            status, got_headers, data = self.server.request(method, path, body, headers)
            self.assertEqual(status, want, data)
            self.assertEqual(set(json.loads(data)["error"]), {"message", "type", "param", "code"})
            if want == 405:
                self.assertEqual(got_headers["Allow"], "POST")
            self.assertEqual(len(self.chat("Hi", max_tokens=1)["choices"]), 1)

    def test_refuses_a_body_that_is_too_large_before_it_is_sent(self):
        raw = self.server.send_raw(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 33554433\r\n"
                                   b"Content-Type: application/json\r\n\r\n")
        data = b""
        while piece := raw.recv(65536):
            data += piece
        self.assertTrue(data.startswith(b"HTTP/1.1 413"), data)
        self.assertIn(b"33554432 bytes", data)
        raw.close()

    def test_counts_what_http_itself_refuses(self):
        self.server.send_raw(b"hello\r\n\r\n").recv(65536)
        self.server.send_raw(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 33554433\r\n\r\n").recv(65536)
        self.server.send_raw(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * (70 << 10) + b"\r\n\r\n").recv(65536)
        text = self.server.request("GET", "/metrics")[2].decode()
        for status in (400, 413, 431):
            self.assertRegex(text, rf'(?m)^halfbyte:num_rejected_requests_total{{[^}}]*status="{status}"[^}}]*}} [1-9]')

    def test_refuses_what_is_no_http(self):
        raw = self.server.send_raw(b"hello\r\n\r\n")
        self.assertTrue(raw.recv(65536).startswith(b"HTTP/1.1 400"))
        raw.close()

    def test_says_that_the_context_is_exceeded(self):
        status, answer = self.server.post("/v1/chat/completions", chat_body("word " * 2000))
        self.assertEqual(status, 400)
        self.assertEqual(answer["error"]["code"], "context_length_exceeded")
        self.assertEqual(answer["error"]["param"], "messages")

    def test_cancels_for_clients_that_leave(self):
        aborted = self.server.metric("halfbyte:num_aborted_requests_total")
        for i in range(10):
            chat = json.dumps(chat_body(QUESTION, ignore_eos=True, stream=i % 2 == 0)).encode()
            raw = self.server.send_raw(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n" % len(chat) + chat)
            raw.close()
        name = "halfbyte:num_aborted_requests_total"
        self.assertEqual(self.server.wait_for_metrics({name: aborted + 10})[name], aborted + 10)
        self.assertEqual(self.server.wait_until_idle()["halfbyte:num_used_tokens"], 0.0)

    def test_gives_logprobs_of_each_token_in_stream_and_whole(self):
        fields = {"logprobs": True, "top_logprobs": 3, "stop": ["####"]}
        whole = self.chat(**fields)
        want = whole["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(want), whole["usage"]["completion_tokens"])
        for entry in want:
            self.assertEqual(len(entry["top_logprobs"]), 3)
            self.assertEqual(entry["logprob"], entry["top_logprobs"][0]["logprob"], "greedy takes the likeliest")
            self.assertEqual(bytes(entry["bytes"]).decode(errors="replace"), entry["token"])
        _, _, data = self.server.request("POST", "/v1/chat/completions", chat_body(QUESTION, stream=True, **fields))
        got = [c["choices"][0]["logprobs"] for c in events(data)]
        self.assertEqual([entry for part in got if part for entry in part["content"]], want)

    def test_obeys_what_changes_the_next_token(self):
        ids = {"return_token_ids": True, "max_tokens": 4}
        biased = self.chat(logit_bias={"40": 100}, **ids)["choices"][0]["token_ids"]
        self.assertEqual(biased, [40] * 4)
        varied = self.chat(logit_bias={"40": 50, "41": 49.5}, presence_penalty=1, **ids)["choices"][0]["token_ids"]
        self.assertEqual(set(varied), {40, 41})
        greedy = self.chat(**ids)["choices"][0]["token_ids"]
        self.assertEqual(self.chat(temperature=1.0, min_p=1.0, **ids)["choices"][0]["token_ids"], greedy)

    def test_answers_a_client_that_only_reads_from_now_on(self):
        for stream in (False, True):
            chat = json.dumps(chat_body(QUESTION, stream=stream)).encode()
            raw = self.server.send_raw(
                b"POST http://localhost/v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n" % len(chat) + chat)
            raw.shutdown(socket.SHUT_WR)
            data = b""
            while piece := raw.recv(65536):
                data += piece
            self.assertIn(b'"finish_reason":"stop"', data)
            raw.close()

    def test_controls_the_engine(self):
        self.assertEqual(json_get(self.server, "/health_generate"), (200, {"status": "ready"}))
        self.assertEqual(json_get(self.server, "/server_info")[1]["engine"]["vocab_size"], 2048)
        self.assertEqual(json_get(self.server, "/model_info")[1]["max_model_len"], 1024)
        self.assertEqual(json_get(self.server, "/get_load")[1][0]["num_reqs"], 0)
        self.chat()
        self.assertGreater(self.chat()["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertEqual(self.server.request("POST", "/flush_cache")[0], 200)
        self.assertEqual(self.chat()["usage"]["prompt_tokens_details"]["cached_tokens"], 0)

    def test_ends_a_request_by_its_id(self):
        answer = {}
        body = chat_body(QUESTION, ignore_eos=True, rid="mine")
        thread = threading.Thread(target=lambda: answer.update(self.server.post("/v1/chat/completions", body)[1]))
        thread.start()
        while self.server.post("/abort_request", {"rid": "mine"})[1]["num_aborted"] == 0:
            self.assertTrue(thread.is_alive())
        thread.join()
        self.assertEqual((answer["id"], answer["choices"][0]["finish_reason"]), ("mine", "abort"))

    def test_lists_models_and_tells_its_version(self):
        status, answer = json_get(self.server, "/v1/models")
        self.assertEqual((status, answer["data"][0]["id"]), (200, MODEL_NAME))
        self.assertEqual(json_get(self.server, f"/v1/models/{MODEL_NAME}")[1]["max_model_len"], 1024)
        self.assertEqual(json_get(self.server, "/v1/models/other")[0], 404)
        self.assertIn("version", json_get(self.server, "/version")[1])
        self.assertEqual(json_get(self.server, "/health"), (200, {"status": "ready"}))

    def test_tokenizes_as_it_prompts(self):
        tokens = self.server.post("/tokenize", {"messages": chat_body("Hi")["messages"]})[1]
        self.assertEqual(tokens["count"], self.chat("Hi", max_tokens=1)["usage"]["prompt_tokens"])
        text = self.server.post("/detokenize", {"tokens": tokens["tokens"]})[1]["prompt"]
        self.assertIn("Hi", text)
        self.assertTrue(text.endswith("assistant\n"), text)

    def test_counts_requests_and_tokens(self):
        before = self.server.metric("halfbyte:generation_tokens_total")
        tokens = self.chat("Hi", max_tokens=5)["usage"]["completion_tokens"]
        self.assertEqual(self.server.metric("halfbyte:generation_tokens_total"), before + tokens)


def json_get(server, path):
    status, _, data = server.request("GET", path)
    return status, json.loads(data)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
