# SPDX-License-Identifier: Apache-2.0
"""From the start of `halfbyte serve` to its first token, as a client sees it: start_time.py COMMAND MODEL [RUNS].

Prints the median and the range of RUNS (5) starts, in ms after the process was started.
"""

import json
import statistics
import sys
import time

from serving import Server, chat_body

COMMAND, MODEL = sys.argv[1:3]
RUNS = int(sys.argv[3]) if len(sys.argv) > 3 else 5
STEPS = ("listening", "ready", "first token")


def wait_for_token(server):
    connection = server.connect()
    body = chat_body("What is 12 / 4?", max_tokens=1, stream=True)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    while not json.loads(response.readline()[len(b"data: "):])["choices"][0]["delta"].get("content"):
        assert response.readline() == b"\n"
    connection.close()


def times_of_a_start():
    start = time.monotonic()
    server = Server(COMMAND, MODEL)
    times = [time.monotonic() - start]
    for wait in (lambda: server.ready(0.002), lambda: wait_for_token(server)):
        wait()
        times.append(time.monotonic() - start)
    assert server.stop() == 0
    return times


def main():
    runs = [times_of_a_start() for _ in range(RUNS)]
    for step, seconds in zip(STEPS, zip(*runs)):
        low, middle, high = (1000 * f(seconds) for f in (min, statistics.median, max))
        print(f"{step}: {middle:.0f} ms ({low:.0f} to {high:.0f})")


if __name__ == "__main__":
    main()
