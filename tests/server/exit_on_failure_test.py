# SPDX-License-Identifier: Apache-2.0
"""`halfbyte serve --exit-on-failure` ends when the engine does not step any more: exit_on_failure_test.py COMMAND MODEL.

The whole process stands still for longer than twice its watchdog's limit, until that happens within a step.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import unittest

from serving import Server, chat_body

COMMAND, MODEL = sys.argv[1:3]
SLOW = ["--moe-runner-backend", "reference", "--moe-activation-mode", "w4a16"]  # one step follows the other


class ExitOnFailure(unittest.TestCase):
    def test_ends_with_1_and_says_why(self):
        server = Server(COMMAND, MODEL, "--exit-on-failure", "--watchdog-timeout", "1", *SLOW).ready()
        with contextlib.closing(server.connect()) as connection:
            body = chat_body("Count.", ignore_eos=True, stream=True, n=16)
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
            connection.getresponse().read(1)
            deadline = time.monotonic() + 60
            while server.process.poll() is None and time.monotonic() < deadline:
                os.kill(server.process.pid, signal.SIGSTOP)
                time.sleep(2.2)
                os.kill(server.process.pid, signal.SIGCONT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    server.process.wait(1.5)
        self.assertEqual(server.process.wait(1), 1)
        while "error: the engine has failed" not in "".join(server.log) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertIn("of the engine has not returned", "".join(server.log))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
