# SPDX-License-Identifier: Apache-2.0
"""The programs of the official client's README, unchanged, against `halfbyte serve`.

openai_examples_test.py COMMAND MODEL. They find the server as they would find any: through OPENAI_BASE_URL and
OPENAI_API_KEY, under the model's name that they ask for. Exits with 77 (skipped) without the client.
"""

import importlib.metadata
import os
import re
import subprocess
import sys
import unittest

from serving import Server

try:
    README = importlib.metadata.metadata("openai").get_payload()
except importlib.metadata.PackageNotFoundError:
    print("skipped: the Python package openai is not installed")
    sys.exit(77)

COMMAND, MODEL = sys.argv[1:3]
# Of other services, of pictures and sound, and of packages that are not installed.
ELSEWHERE = re.compile(r"workload_identity|image|realtime|Azure|bedrock|Aiohttp|fine_tuning|webhook", re.I)


def programs():
    """Blocks that are whole programs, and ask a model for an answer."""
    for block in re.findall(r"^```(?:py|python)\n(.*?)^```", README, re.M | re.S):
        asks = re.search(r"\b(responses|chat\.completions)\.(with_raw_response\.)?create\(", block)
        is_whole = re.search(r"^(import|from) ", block) and re.search(r"\b(Async)?OpenAI\(", block)
        if asks and is_whole and not ELSEWHERE.search(block):
            yield block


class Examples(unittest.TestCase):
    def test_run_unchanged(self):
        found = list(programs())
        self.assertGreaterEqual(len(found), 8)  # of the README of openai 3.57
        models = sorted({name for program in found for name in re.findall(r'model="([^"]+)"', program)})
        names = [word for name in models for word in ("--served-model-name", name)]
        server = Server(COMMAND, MODEL, "--api-key", "secret", "--random-seed", "1", *names).ready()
        self.addCleanup(server.stop)
        url = f"http://127.0.0.1:{server.port}/v1"
        environment = {**os.environ, "OPENAI_API_KEY": "secret", "OPENAI_BASE_URL": url}
        for program in found:
            done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True,
                                  timeout=60, check=False)
            self.assertEqual(done.returncode, 0, program + done.stderr)
            if "print(" in program:
                self.assertNotEqual(done.stdout.strip(), "", program)
        print(f"{len(found)} programs", file=sys.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
