# SPDX-License-Identifier: Apache-2.0
"""Every problem over HTTP, 64 at a time, against `halfbyte eval`: accuracy_test.py COMMAND MODEL PROBLEMS [COUNT]."""

import concurrent.futures
import json
import subprocess
import sys
import time
import unittest

from serving import Server, chat_body

COMMAND, MODEL, PROBLEMS = sys.argv[1:4]
COUNT = int(sys.argv[4]) if len(sys.argv) > 4 else None
CONCURRENCY = 64
MAX_TOKENS = 128  # eval's


def read_problems():
    with open(PROBLEMS) as file:
        return [json.loads(line) for line in file if line.strip()][:COUNT]


def is_right(server, problem):
    status, answer = server.post("/v1/chat/completions", chat_body(problem["question"], max_tokens=MAX_TOKENS))
    assert status == 200, answer
    text = answer["choices"][0]["message"]["content"]
    return "####" in text and text.rpartition("####")[2].strip() == str(problem["answer"])


class Accuracy(unittest.TestCase):
    def test_is_that_of_eval(self):
        problems = read_problems()
        server = Server(COMMAND, MODEL).ready()
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(CONCURRENCY) as pool:
            right = sum(pool.map(lambda problem: is_right(server, problem), problems))
        seconds = time.monotonic() - start
        self.assertEqual(server.metric("halfbyte:num_running_reqs"), 0.0)
        self.assertEqual(server.stop(), 0)
        report = json.loads(subprocess.run(
            [COMMAND, "eval", MODEL, "--problems", PROBLEMS, "--limit", str(len(problems)), "--json"],
            check=True, capture_output=True, text=True).stdout)
        print(f"{right} of {len(problems)} over HTTP in {seconds:.1f} s; eval: {report['accuracy']}", file=sys.stderr)
        # Both are greedy, and a request's bits do not depend on its neighbours.
        self.assertAlmostEqual(right / len(problems), report["accuracy"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
