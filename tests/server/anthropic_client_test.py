# SPDX-License-Identifier: Apache-2.0
"""Anthropic's official client against /v1/messages: anthropic_client_test.py COMMAND MODEL. Exits with 77 (skipped) without
it."""

import sys
import unittest

from serving import MODEL_NAME, Server

try:
    import anthropic
except ImportError:
    print("skipped: the Python package anthropic is not installed")
    sys.exit(77)

COMMAND, MODEL = sys.argv[1:3]
MESSAGES = [{"role": "user", "content": "What is 12 / 4?"}]
GREEDY = {"temperature": 0}  # newer clients have no argument for it


class AnthropicClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(COMMAND, MODEL, "--api-key", "secret").ready()
        cls.client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{cls.server.port}", api_key="secret",
                                         max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def create(self, **fields):
        return self.client.messages.create(
            **{"model": MODEL_NAME, "messages": MESSAGES, "max_tokens": 256, "extra_body": GREEDY, **fields})

    def test_answers(self):
        message = self.create(system="Be brief.")
        self.assertEqual(message.stop_reason, "end_turn")
        self.assertEqual(message.content[0].type, "text")
        self.assertGreater(message.usage.output_tokens, 0)

    def test_streams(self):
        with self.client.messages.stream(
                model=MODEL_NAME, messages=MESSAGES, max_tokens=256, extra_body=GREEDY) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        whole = self.create()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(final.content[0].text, text)
        self.assertEqual(final.stop_reason, whole.stop_reason)
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)

    def test_stops(self):
        self.assertEqual(self.create(max_tokens=2).stop_reason, "max_tokens")
        stopped = self.create(stop_sequences=["####"])
        self.assertEqual((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", "####"))

    def test_counts_tokens(self):
        count = self.client.messages.count_tokens(model=MODEL_NAME, messages=MESSAGES).input_tokens
        usage = self.create(max_tokens=1).usage
        self.assertEqual(count, usage.input_tokens + usage.cache_read_input_tokens)

    def test_raises_the_error_that_fits(self):
        with self.assertRaises(anthropic.BadRequestError):
            self.create(extra_body={"temperature": -1})
        with self.assertRaises(anthropic.NotFoundError):
            self.create(model="other")
        with self.assertRaises(anthropic.AuthenticationError):
            anthropic.Anthropic(base_url=str(self.client.base_url), api_key="wrong", max_retries=0).messages.create(
                model=MODEL_NAME, messages=MESSAGES, max_tokens=1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
