# SPDX-License-Identifier: Apache-2.0
"""A `halfbyte serve` for a test, and a client of it on the standard library."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

MODEL_NAME = "gsm-mini"


class Server:
    """The command, on a free port unless one is given; `ready()` waits until it serves."""

    def __init__(self, command, model, *options, port=0):
        self.process = subprocess.Popen(
            [command, "serve", model, "--port", str(port), "--served-model-name", MODEL_NAME, *options],
            stderr=subprocess.PIPE, text=True)
        self.log = []
        self.port = None
        for line in self.process.stderr:
            self.log.append(line)
            match = re.match(r"listening on http://[^:]+:(\d+)", line)
            if match:
                self.port = int(match.group(1))
                break
        assert self.port, "".join(self.log)
        threading.Thread(target=self.drain_log, daemon=True).start()

    def drain_log(self):
        with self.process.stderr as lines:
            self.log.extend(lines)

    def ready(self):
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if self.request("GET", "/health")[0] == 200:
                return self
            assert self.process.poll() is None, "".join(self.log)
            time.sleep(0.1)
        raise AssertionError("not ready: " + "".join(self.log))

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def request(self, method, path, body=None, headers=None):
        """Status, headers and body; `body` is bytes, or what becomes JSON."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        given = {"Content-Type": "application/json"} if body is not None else {}
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, body, {**given, **(headers or {})})
            response = connection.getresponse()
            data = response.read()
            return response.status, dict(response.getheaders()), data

    def post(self, path, body, **headers):
        status, _, data = self.request("POST", path, body, headers)
        return status, json.loads(data)

    def metric(self, name):
        text = self.request("GET", "/metrics")[2].decode()
        match = re.search(rf"^{re.escape(name)}\{{[^}}]*\}} (\S+)$", text, re.M)
        return float(match.group(1)) if match else 0.0

    def wait_for_metric(self, name, value, seconds=10):
        deadline = time.monotonic() + seconds
        while self.metric(name) != value and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.metric(name)

    def send_raw(self, data):
        """An open socket after `data`."""
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        raw.sendall(data)
        return raw

    def stop(self, number=signal.SIGTERM, timeout=30):
        """The exit status."""
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        return self.process.wait(timeout)


def chat_body(content, **fields):
    return {"model": MODEL_NAME, "messages": [{"role": "user", "content": content}], "temperature": 0, **fields}


def events(data):
    """The JSON of each event of a stream; checks its form and that [DONE] is last."""
    parts = data.decode().split("\n\n")
    assert parts[-1] == "", data[-40:]
    assert parts[-2] == "data: [DONE]", data[-80:]
    parts = [part for part in parts[:-2] if not part.startswith(":")]
    assert all(part.startswith("data: ") for part in parts), parts
    return [json.loads(part[len("data: "):]) for part in parts]
