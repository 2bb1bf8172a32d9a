# SPDX-License-Identifier: Apache-2.0
"""Problems over HTTP, up to 64 at a time, on 1 and on 4 ranks, against `halfbyte eval`.

accuracy_test.py COMMAND MODEL PROBLEMS [COUNT]: the first COUNT, or all.
"""

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
    with open(PROBLEMS, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()][:COUNT]


def answer_of(server, problem):
    status, answer = server.post("/v1/chat/completions", chat_body(problem["question"], max_tokens=MAX_TOKENS))
    assert status == 200, answer
    return answer["choices"][0]["message"]["content"]


def is_right(text, problem):
    return "####" in text and text.rpartition("####")[2].strip() == str(problem["answer"])


def answers_over_http(problems, *options):
    server = Server(COMMAND, MODEL, *options).ready()
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(CONCURRENCY) as pool:
        texts = list(pool.map(lambda problem: answer_of(server, problem), problems))
    print(f"{len(problems)} over HTTP {' '.join(options)} in {time.monotonic() - start:.1f} s", file=sys.stderr)
    assert server.wait_until_idle()["halfbyte:num_running_reqs"] == 0.0
    assert server.stop() == 0
    return texts


class Accuracy(unittest.TestCase):
    # All are greedy, and a request's bits depend neither on its neighbours nor on the number of ranks.
    def test_is_that_of_eval_on_1_and_on_4_ranks(self):
        problems = read_problems()
        alone = answers_over_http(problems)
        self.assertEqual(answers_over_http(problems, "--ep-size", "4"), alone)
        report = json.loads(subprocess.run(
            [COMMAND, "eval", MODEL, "--problems", PROBLEMS, "--limit", str(len(problems)), "--json"],
            check=True, capture_output=True, text=True).stdout)
        right = sum(map(is_right, alone, problems))
        print(f"{right} of {len(problems)} right; eval: {report['accuracy']}", file=sys.stderr)
        self.assertAlmostEqual(right / len(problems), report["accuracy"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
