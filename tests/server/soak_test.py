# SPDX-License-Identifier: Apache-2.0
"""Thousands of mixed requests, most of them wrong or cut off: soak_test.py COMMAND MODEL [REQUESTS] [SEED].

After them the server holds what it held before: memory, descriptors, threads, blocks of the cache. Then it is killed
under load and started again on the same port. Prints how many of each kind were sent, and what they got.
"""

import collections
import http.client
import json
import os
import random
import re
import signal
import socket
import struct
import sys
import threading
import time
import unittest

from serving import MODEL_NAME, Server, chat_body, events, typed_events

COMMAND, MODEL = sys.argv[1:3]
NUM_REQUESTS = int(sys.argv[3]) if len(sys.argv) > 3 else 300
SEED = int(sys.argv[4]) if len(sys.argv) > 4 else 1
NUM_CLIENTS = 16
NUM_KILLS = 1 + NUM_REQUESTS // 2500
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES, GENERATE = "/v1/responses", "/v1/messages", "/generate"
MAX_BODY_BYTES = 32 << 20
# Beyond this, what the allocator keeps after a warm-up of the same mix would be a leak: 10,000 requests that lost 1 KiB
# each are above it.
SLACK_KIB = 8 << 10
ENDLESS = {"max_tokens": 500, "ignore_eos": True}
SIDES = {"enum": ["left", "right"]}
SCHEMA = {"type": "object", "properties": {"side": SIDES, "far": {"type": "boolean"}}, "required": ["side", "far"]}
TOOL = {"type": "function", "function": {"name": "go", "parameters": SCHEMA}}
# Fields, and what the answer must match.
CONSTRAINTS = (
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "go", "schema": SCHEMA}}},
     r'\{\s*"side"\s*:\s*"(left|right)"\s*,\s*"far"\s*:\s*(true|false)\s*\}'),
    ({"regex": "[ab]{2,6}!"}, "[ab]{2,6}!"),
    ({"structured_outputs": {"choice": ["left", "right", "\u4e03"]}}, "left|right|\u4e03"),
    ({"ebnf": 'root ::= n "+" n\nn ::= [1-9] [0-9]?\n'}, r"[1-9]\d?\+[1-9]\d?"),
)
CLOSED = (ConnectionError, http.client.HTTPException, socket.timeout)


def http_bytes(path, body, *headers, method="POST"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: soak", "Content-Type: application/json",
             f"Content-Length: {len(data)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def read_all(raw):
    with raw:
        data = b""
        while piece := raw.recv(65536):
            data += piece
        return data


def status_of(data):
    """Of the first response that is not an interim one (1xx); None without one."""
    while data.startswith(b"HTTP/1.1 1"):
        data = data.partition(b"\r\n\r\n")[2]
    return int(data.split(b" ", 2)[1]) if data.startswith(b"HTTP/1.1 ") else None


def reset(raw):
    """Closes with a reset instead of a goodbye."""
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.close()


class Client:
    """One request of each kind; each returns what it got, and raises AssertionError when that is wrong."""

    def __init__(self, server, rng):
        self.server, self.rng = server, rng

    def question(self, **fields):
        a, b = self.rng.randrange(100), self.rng.randrange(100)
        return chat_body(f"What is {a} + {b}?", max_tokens=self.rng.randrange(1, 9), **fields)

    def expect(self, want, method, path, body=None, headers=None):
        status, _, data = self.server.request(method, path, body, headers)
        assert status == want, (status, data[:300])
        if status >= 400:
            members = set(json.loads(data)["error"])
            assert members >= {"message", "type"} if path.startswith(MESSAGES) else members == {
                "message", "type", "param", "code"}, data[:300]
        return status

    def ask(self, path, body):
        status, _, data = self.server.request("POST", path, body)
        assert status == 200, (status, data[:300])
        return data

    def other_format(self, endless=False, **fields):
        """A path of the other formats, and a body."""
        text = f"What is {self.rng.randrange(100)} + 7?"
        tokens = 500 if endless else self.rng.randrange(1, 9)
        own = {"ignore_eos": True} if endless else {}
        return self.rng.choice([
            (RESPONSES, {"input": text, "max_output_tokens": tokens, "store": False, **own, **fields}),
            (MESSAGES, {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, **own, **fields}),
            (GENERATE, {"text": text, "sampling_params": {"max_new_tokens": tokens, **own}, **fields})])

    # ---- good

    def whole(self):
        return self.expect(200, "POST", CHAT, self.question(temperature=self.rng.random()))

    def stream(self):
        status, _, data = self.server.request("POST", CHAT, self.question(stream=True, n=self.rng.randrange(1, 4)))
        assert status == 200, data[:300]
        assert all("error" not in event for event in events(data)), data[:300]
        return status

    def completion(self):
        ids = [self.rng.randrange(1, 1000) for _ in range(self.rng.randrange(1, 60))]
        return self.expect(200, "POST", COMPLETIONS, {"prompt": ids, "max_tokens": 4, "stop": ["ab"]})

    def other_whole(self):
        answer = json.loads(self.ask(*self.other_format()))
        assert "output" in answer or "content" in answer or "output_ids" in answer, answer
        return 200

    def other_stream(self):
        path, body = self.other_format(stream=True)
        data = self.ask(path, body)
        last = (events if path == GENERATE else typed_events)(data)[-1]
        assert path == GENERATE or last["type"] in ("response.completed", "response.incomplete", "message_stop"), last
        return 200

    def stored_response(self):
        """Asked for again, gone on from, and forgotten: else the store would fill."""
        first = json.loads(self.ask(RESPONSES, {"input": "Count.", "max_output_tokens": 4}))
        path = f"{RESPONSES}/{first['id']}"
        assert json.loads(self.server.request("GET", path)[2]) == first
        self.ask(RESPONSES, {"input": "Go on.", "previous_response_id": first["id"], "max_output_tokens": 4,
                             "store": False})
        self.expect(200, "DELETE", path)
        return self.expect(404, "GET", path)

    def counted_tokens(self):
        return self.expect(200, "POST", MESSAGES + "/count_tokens", {"messages": [{"role": "user", "content": "Hi"}]})

    def prompt_logprobs(self):
        ids = [self.rng.randrange(1, 1000) for _ in range(self.rng.randrange(1, 60))]
        new = self.rng.randrange(3)
        body = {"prompt": ids, "max_tokens": new, "echo": True, "logprobs": 2, "ignore_eos": True}
        logprobs = json.loads(self.ask(COMPLETIONS, body))["choices"][0]["logprobs"]
        assert len(logprobs["token_logprobs"]) == len(ids) + new, logprobs
        return 200

    def constrained(self):
        fields, pattern = self.rng.choice(CONSTRAINTS)
        body = chat_body("Which side?", max_tokens=200, **{**fields, "temperature": self.rng.random()})
        choice = json.loads(self.ask(CHAT, body))["choices"][0]
        assert choice["finish_reason"] == "stop" and re.fullmatch(pattern, choice["message"]["content"]), choice
        return 200

    def constrained_stream(self):
        fields, pattern = self.rng.choice(CONSTRAINTS)
        chunks = events(self.ask(CHAT, chat_body("Which side?", max_tokens=200, stream=True, **fields)))
        text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
        assert re.fullmatch(pattern, text), text
        return 200

    def tool_call(self):
        body = self.question(tools=[TOOL], tool_choice="required", parallel_tool_calls=False) | {"max_tokens": 200}
        choice = json.loads(self.ask(CHAT, body))["choices"][0]
        assert choice["finish_reason"] == "tool_calls", choice
        assert set(json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])) == {"side", "far"}, choice
        return 200

    def unknown_fields(self):
        """Ignored; the first thousand names are told once each."""
        name = self.rng.choice(["x_" + str(self.rng.randrange(10**6)), "\u4e03\n\x00", "", "a" * 3000])
        value = self.rng.choice([None, -1, "a", [[1]], {"a": {"b": []}}])
        if self.rng.random() < 0.5:
            return self.expect(200, "POST", CHAT, self.question(**{name: value}))
        return self.expect(200, "POST", *self.other_format(**{name: value}))

    def look(self):
        return self.expect(200, "GET", self.rng.choice(["/health", "/metrics", "/v1/models", "/version"]))

    def slow_writer(self):
        data = http_bytes(CHAT, self.question(), "Connection: close")
        raw = self.server.send_raw(b"")
        for begin in range(0, len(data), 100):
            raw.sendall(data[begin:begin + 100])
            time.sleep(0.005)
        status = status_of(read_all(raw))
        assert status == 200, status
        return status

    def slow_reader(self):
        with socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            raw.settimeout(60)
            raw.connect(("127.0.0.1", self.server.port))
            raw.sendall(http_bytes(CHAT, self.question(stream=True, n=2), "Connection: close"))
            data = b""
            while piece := raw.recv(512):
                data += piece
                time.sleep(0.005)
        assert b"data: [DONE]" in data, data[-200:]
        return status_of(data)

    # ---- wrong

    def bad_body(self):
        body = self.rng.choice([b"", b"{", b"[]", b"null", b'{"a": "\xff"}', b"[" * 100, b'{"messages": 1e999}'])
        return self.expect(400, "POST", self.rng.choice([CHAT, COMPLETIONS]), body)

    def bad_field(self):
        wrong = self.rng.choice([{"temperature": -1}, {"top_p": 0}, {"max_tokens": 0}, {"n": 1000}, {"stop": [""]},
                                 {"messages": []}, {"messages": [{"role": "nobody", "content": "a"}]},
                                 {"messages": "hello"}, {"stream": "yes"}, {"seed": 1.5}, {"logit_bias": {"x": 1}},
                                 {"tools": [{"type": "function"}]}, {"stop_token_ids": [10**9]}])
        return self.expect(400, "POST", CHAT, {**self.question(), **wrong})

    def bad_ids(self):
        prompt = self.rng.choice([[], "", [-1], [10**12], [[]], [1, "a"], {"a": 1}])
        return self.expect(400, "POST", COMPLETIONS, {"prompt": prompt})

    def bad_format(self):
        path, body = self.rng.choice([
            (RESPONSES, {}), (RESPONSES, {"input": [1]}), (RESPONSES, {"input": "a", "previous_response_id": "none"}),
            (MESSAGES, {"messages": []}), (MESSAGES, {"messages": [{"role": "user", "content": "a"}]}),
            (MESSAGES + "/count_tokens", {"messages": "a"}), (GENERATE, {"text": ["a", 1]}),
            (GENERATE, {"text": "a", "sampling_params": {"n": 0}}), (GENERATE, b"{"), (RESPONSES, b"[]")])
        return self.expect(400, "POST", path, body)

    def bad_constraint(self):
        wrong = self.rng.choice([{"regex": "(a"}, {"ebnf": "root ::= other"}, {"regex": "a", "ebnf": "root ::= \"a\""},
                                 {"structured_outputs": {"choice": []}}, {"structural_tag": {"triggers": ["<"]}},
                                 {"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}}])
        return self.expect(400, "POST", CHAT, {**self.question(), **wrong})

    def bad_place(self):
        method, path, want = self.rng.choice([("GET", CHAT, 405), ("DELETE", "/health", 405), ("GET", "/nothing", 404),
                                              ("POST", "/v1/nothing", 404), ("GET", "/v1/models/none", 404)])
        return self.expect(want, method, path)

    def bad_model(self):
        return self.expect(404, "POST", CHAT, self.question() | {"model": "none"})

    def bad_type(self):
        return self.expect(415, "POST", CHAT, b"{}", {"Content-Type": "text/plain"})

    def too_long(self):
        return self.expect(400, "POST", CHAT, chat_body("word " * 1500))

    def no_http(self):
        raw = self.server.send_raw(self.rng.choice([b"hello\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n"]))
        raw.shutdown(socket.SHUT_WR)
        data = read_all(raw)
        assert data == b"" or status_of(data) == 400, data[:200]
        return 400

    def large_header(self):
        raw = self.server.send_raw(b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"x" * (70 << 10) + b"\r\n\r\n")
        status = status_of(raw.recv(65536))
        raw.close()
        assert status == 431, status
        return status

    def too_large(self):
        """Says so before the body, or sends one of no announced length until it is refused."""
        if self.rng.random() < 0.9:
            raw = self.server.send_raw(http_bytes(CHAT, b"").replace(b"Content-Length: 0",
                                                                     b"Content-Length: %d" % (MAX_BODY_BYTES + 1)))
        else:
            raw = self.server.send_raw(b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: a\r\nContent-Type: "
                                       b"application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
            piece = b"%x\r\n" % (1 << 20) + b" " * (1 << 20) + b"\r\n"
            try:
                for _ in range(MAX_BODY_BYTES // (1 << 20) + 1):
                    raw.sendall(piece)
            except ConnectionError:
                pass  # refused before we were done
        try:
            status = status_of(raw.recv(65536))
        except ConnectionError:
            status = 413
        raw.close()
        assert status == 413, status
        return status

    # ---- cut off

    def leave(self, raw):
        (reset if self.rng.random() < 0.5 else socket.socket.close)(raw)
        return "left"

    def leave_early(self):
        data = http_bytes(CHAT, self.question())
        return self.leave(self.server.send_raw(data[:self.rng.randrange(len(data))]))

    def leave_at_once(self):
        fields = {"stream": self.rng.random() < 0.5, "n": self.rng.randrange(1, 4), **ENDLESS}
        return self.leave(self.server.send_raw(http_bytes(CHAT, {**self.question(), **fields})))

    def leave_in_a_stream(self):
        raw = self.server.send_raw(http_bytes(CHAT, {**self.question(stream=True), **ENDLESS}))
        for _ in range(self.rng.randrange(1, 5)):
            raw.recv(self.rng.randrange(1, 400))
        return self.leave(raw)

    def leave_other_stream(self):
        raw = self.server.send_raw(http_bytes(*self.other_format(endless=True, stream=True)))
        raw.recv(self.rng.randrange(1, 400))
        return self.leave(raw)

    def leave_constrained(self):
        fields, _ = self.rng.choice(CONSTRAINTS)
        raw = self.server.send_raw(http_bytes(CHAT, {**self.question(stream=True), **fields}))
        raw.recv(self.rng.randrange(1, 400))
        return self.leave(raw)

    def half_open(self):
        """Nothing more comes from this client; it may get its answer, or a closed connection."""
        raw = self.server.send_raw(http_bytes(CHAT, self.question(), "Connection: close"))
        raw.shutdown(socket.SHUT_WR)
        status = status_of(read_all(raw))
        assert status in (200, None), status
        return status or "closed"

    def say_nothing(self):
        raw = self.server.send_raw(b"")
        time.sleep(0.05)
        return self.leave(raw)

    def ahead(self):
        raw = self.server.send_raw(http_bytes(CHAT, self.question()) + http_bytes("/nothing", b"") +
                                   http_bytes("/version", b"", "Connection: close", method="GET"))
        data = read_all(raw)
        assert data.count(b"HTTP/1.1 200") == 2 and data.count(b"HTTP/1.1 404") == 1, data[:500]
        return 200


WEIGHTS = {"whole": 12, "stream": 12, "completion": 8, "look": 6, "slow_writer": 2, "slow_reader": 3, "bad_body": 8,
           "bad_field": 8, "bad_ids": 5, "bad_place": 4, "bad_model": 2, "bad_type": 2, "too_long": 1, "no_http": 3,
           "large_header": 1, "too_large": 1, "leave_early": 6, "leave_at_once": 6, "leave_in_a_stream": 6,
           "half_open": 3, "say_nothing": 2, "ahead": 2, "other_whole": 8, "other_stream": 8, "stored_response": 4,
           "counted_tokens": 2, "prompt_logprobs": 4, "unknown_fields": 5, "bad_format": 5, "bad_constraint": 4,
           "leave_other_stream": 6}
# Where the build has grammars.
CONSTRAINED_WEIGHTS = {"constrained": 6, "constrained_stream": 4, "tool_call": 4, "leave_constrained": 4}


class Held:
    """What the process holds, and what its engine does."""

    def __init__(self, server):
        folder = f"/proc/{server.process.pid}"
        with open(f"{folder}/status", encoding="utf-8") as file:
            fields = dict(line.split(":", 1) for line in file)
        self.rss_kib = int(fields["VmRSS"].split()[0])
        self.threads = int(fields["Threads"])
        self.files = len(os.listdir(f"{folder}/fd"))
        metrics = server.metrics()  # of one moment: between two a request may go from the queue to those that run
        self.free_blocks = metrics["halfbyte:num_free_blocks"]
        self.running = metrics["halfbyte:num_running_reqs"]
        self.queued = metrics["halfbyte:num_queue_reqs"]


def settled(server, files):
    """Held once nothing is under way and connections of clients that left are closed; at the latest after a while."""
    deadline = time.monotonic() + 20
    while True:
        held = Held(server)
        if (held.running, held.queued) == (0, 0) and held.files <= files or time.monotonic() > deadline:
            return held
        time.sleep(0.05)


def weights_for(server):
    status, answer = server.post(CHAT, chat_body("a", regex="a"))
    if status == 400 and answer["error"]["code"] == "unsupported_value":
        print("  without constrained answers: this build has no grammars")
        return WEIGHTS
    return WEIGHTS | CONSTRAINED_WEIGHTS


def send_mix(server, num_requests, seed):
    """Counts of (kind, what it got), and what went wrong."""
    weights = weights_for(server)
    kinds = random.Random(seed).choices(list(weights), list(weights.values()), k=num_requests)
    counts, wrong, lock, places = collections.Counter(), [], threading.Lock(), iter(enumerate(kinds))

    def work():
        while True:
            with lock:
                place, kind = next(places, (None, None))
            if kind is None:
                return
            try:
                got = getattr(Client(server, random.Random(f"{seed} {place}")), kind)()
            except Exception as error:  # whatever it is, the others go on and it is reported
                got = "wrong"
                with lock:
                    wrong.append((place, kind, repr(error)[:400]))
            with lock:
                counts[kind, got] += 1

    threads = [threading.Thread(target=work) for _ in range(NUM_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts, wrong


class Soak(unittest.TestCase):
    def test_holds_after_it_what_it_held_before(self):
        # A small cache: the warm-up touches all of it, and prefixes are evicted and requests preempted.
        server = Server(COMMAND, MODEL, "--max-total-tokens", "8192", "--tool-call-parser", "qwen3").ready()
        self.addCleanup(server.process.kill)  # no effect on one that has ended
        files = Held(server).files
        _, wrong = send_mix(server, max(150, NUM_REQUESTS // 10), SEED + 1)  # what is allocated once
        self.assertEqual(wrong, [])
        before = settled(server, files)
        begin = time.monotonic()
        counts, wrong = send_mix(server, NUM_REQUESTS, SEED)
        seconds = time.monotonic() - begin
        after = settled(server, files)
        for (kind, got), count in sorted(counts.items(), key=str):
            print(f"  {kind:18} {got!s:7} {count}")
        print(f"  {NUM_REQUESTS} requests in {seconds:.1f} s; resident memory {before.rss_kib} -> {after.rss_kib} KiB")
        self.assertEqual(wrong, [])
        self.assertEqual((after.running, after.queued), (0, 0))
        self.assertEqual(after.free_blocks, before.free_blocks)
        self.assertLessEqual(after.files, files)  # at first, that of the last question whether it is ready
        self.assertEqual(after.threads, before.threads)
        self.assertLess(after.rss_kib - before.rss_kib, SLACK_KIB)
        self.assertEqual(server.request("POST", CHAT, chat_body("What is 1 + 1?"))[0], 200)
        self.assertEqual(server.stop(), 0)

    def test_starts_again_after_it_was_killed_under_load(self):
        server = Server(COMMAND, MODEL).ready()
        self.addCleanup(lambda: server.process.kill())  # the last one
        blocks = Held(server).free_blocks
        for i in range(NUM_KILLS):
            gone, threads = [], []
            for _ in range(8):
                threads.append(threading.Thread(target=self.read_until_gone, args=(server, gone)))
                threads[-1].start()
            server.wait_for_metrics({"halfbyte:num_running_reqs": 8.0})
            server.stop(signal.SIGKILL)
            for thread in threads:
                thread.join(30)
            self.assertEqual(gone, [True] * 8)  # every client was told at once, none waits
            server = Server(COMMAND, MODEL, port=server.port).ready()
            self.assertEqual(Held(server).free_blocks, blocks)
            self.assertEqual(server.request("POST", CHAT, chat_body("What is 1 + 1?"))[0], 200, i)
        self.assertEqual(server.stop(), 0)

    def read_until_gone(self, server, gone):
        body = chat_body("Count.", ignore_eos=True, stream=True)
        try:
            gone.append(b"[DONE]" not in server.request("POST", CHAT, body)[2])
        except CLOSED:
            gone.append(True)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
