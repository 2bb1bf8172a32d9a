# SPDX-License-Identifier: Apache-2.0
"""A `halfbyte serve` for a test, and a client of it on the standard library."""

import atexit
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
        atexit.register(self.process.kill)  # also after a test that fails: ctest waits for whoever holds its output
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

    def ready(self, pause=0.1):
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if self.request("GET", "/health")[0] == 200:
                return self
            assert self.process.poll() is None, "".join(self.log)
            time.sleep(pause)
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

    def metrics(self):
        """Of one moment: name -> value, of the first series of each name."""
        text = self.request("GET", "/metrics")[2].decode()
        return {name: float(value) for name, value in reversed(re.findall(r"^(\S+)\{[^}]*\} (\S+)$", text, re.M))}

    def metric(self, name):
        return self.metrics().get(name, 0.0)

    def wait_for_metrics(self, wanted, seconds=10):
        """Metrics in which those of `wanted` have its values at the same moment; at the latest after a while."""
        deadline = time.monotonic() + seconds
        while True:
            metrics = self.metrics()
            if wanted.items() <= metrics.items() or time.monotonic() > deadline:
                return metrics
            time.sleep(0.02)

    def wait_until_idle(self):
        """Metrics of a moment when nothing runs and nothing waits."""
        return self.wait_for_metrics({"halfbyte:num_running_reqs": 0.0, "halfbyte:num_queue_reqs": 0.0})

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


def typed_events(data):
    """The JSON of each event of a stream whose events have names; checks that the name is the type."""
    parts = [part for part in data.decode().split("\n\n") if part and not part.startswith(":")]
    found = []
    for part in parts:
        name, body = part.split("\n", 1)
        found.append(json.loads(body.removeprefix("data: ")))
        assert name == "event: " + found[-1]["type"], part
    return found
