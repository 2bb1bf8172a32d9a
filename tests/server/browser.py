# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium for a test, driven through its DevTools socket by the standard library."""

import base64
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import urllib.request

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium():
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class WebSocket:
    """As much of RFC 6455 as DevTools needs: text frames without compression."""

    def __init__(self, url):
        host, port, path = re.match(r"ws://([^:/]+):(\d+)(/.*)", url).groups()
        self.raw = socket.create_connection((host, int(port)), timeout=60)
        key = base64.b64encode(os.urandom(16)).decode()
        self.raw.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                         f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        self.stream = self.raw.makefile("rb")
        status = self.stream.readline()
        assert b" 101 " in status, status
        while self.stream.readline().strip():
            pass

    def send(self, text):
        data = text.encode()
        size = len(data)
        length = (struct.pack("!B", 0x80 | size) if size < 126 else
                  struct.pack("!BH", 0x80 | 126, size) if size < 65536 else struct.pack("!BQ", 0x80 | 127, size))
        mask = os.urandom(4)
        self.raw.sendall(b"\x81" + length + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def receive(self):
        text = b""
        while True:
            first, second = self.stream.read(2)
            size = second & 0x7F
            if size == 126:
                size, = struct.unpack("!H", self.stream.read(2))
            elif size == 127:
                size, = struct.unpack("!Q", self.stream.read(8))
            text += self.stream.read(size)
            if first & 0x80:
                return text.decode()

    def close(self):
        self.stream.close()
        self.raw.close()


class Browser:
    """One tab. `requests` are the addresses that it asked for, `complaints` what it logged as errors."""

    def __init__(self, chromium):
        # Its helpers may write a moment longer than the browser itself lives.
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.process = subprocess.Popen(
            [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--window-size=1280,800",
             "--remote-debugging-port=0", f"--user-data-dir={self.folder.name}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        port = next(match.group(1) for line in self.process.stderr
                    if (match := re.search(r"DevTools listening on ws://[^:]+:(\d+)/", line)))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=60) as response:
            tab = next(target for target in json.load(response) if target["type"] == "page")
        self.socket = WebSocket(tab["webSocketDebuggerUrl"])
        self.requests, self.complaints, self.num_calls = [], [], 0
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        self.num_calls += 1
        self.socket.send(json.dumps({"id": self.num_calls, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.receive())
            if message.get("id") == self.num_calls:
                assert "error" not in message, message
                return message["result"]
            self.take_event(message)

    def take_event(self, message):
        params = message.get("params", {})
        if message["method"] == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif message["method"] == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"]["text"])
        elif message["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(params["entry"]["text"])

    def open(self, url):
        self.call("Page.navigate", url=url)

    def run(self, script):
        """The value of a script, awaited when it is a promise."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, condition, seconds=60):
        """Until a script's value is true; its value."""
        return self.run(f"""new Promise((resolve, reject) => {{
            const end = Date.now() + {seconds * 1000};
            const look = () => {{
                const value = {condition};
                if (value) resolve(value);
                else if (Date.now() > end) reject(new Error("not true in time"));
                else setTimeout(look, 20);
            }};
            look();
        }})""")

    def save_picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        self.socket.close()
        self.process.terminate()
        self.process.wait(30)
        self.process.stderr.close()
        self.folder.cleanup()
