# SPDX-License-Identifier: Apache-2.0
"""The official client against `halfbyte serve`: openai_client_test.py COMMAND MODEL. Exits with 77 (skipped) without it."""

import sys
import unittest

from serving import MODEL_NAME, Server

try:
    import openai
except ImportError:
    print("skipped: the Python package openai is not installed")
    sys.exit(77)

COMMAND, MODEL = sys.argv[1:3]
MESSAGES = [{"role": "user", "content": "What is 12 / 4?"}]


class OfficialClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(COMMAND, MODEL, "--api-key", "secret").ready()
        cls.client = openai.OpenAI(base_url=f"http://127.0.0.1:{cls.server.port}/v1", api_key="secret", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def create(self, **fields):
        return self.client.chat.completions.create(model=MODEL_NAME, messages=MESSAGES, temperature=0, **fields)

    def test_chats(self):
        answer = self.create()
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertIn("####", answer.choices[0].message.content)
        self.assertGreater(answer.usage.completion_tokens, 0)

    def test_streams(self):
        chunks = list(self.create(stream=True, stream_options={"include_usage": True}))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        whole = self.create()
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)

    def test_completes(self):
        answer = self.client.completions.create(model=MODEL_NAME, prompt="12 / 4 =", max_tokens=4, temperature=0)
        self.assertEqual(answer.choices[0].finish_reason, "length")

    def test_gives_logprobs(self):
        chat = self.create(logprobs=True, top_logprobs=2)
        self.assertEqual(len(chat.choices[0].logprobs.content), chat.usage.completion_tokens)
        self.assertEqual(len(chat.choices[0].logprobs.content[0].top_logprobs), 2)
        text = self.client.completions.create(model=MODEL_NAME, prompt="12 / 4 =", max_tokens=4, logprobs=2)
        self.assertEqual(len(text.choices[0].logprobs.token_logprobs), 4)

    def test_leaves_a_stream_early(self):
        stream = self.create(stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        self.assertEqual(self.server.wait_until_idle()["halfbyte:num_running_reqs"], 0.0)

    def test_raises_the_error_that_fits(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.create(presence_penalty=3.0)
        self.assertEqual(caught.exception.param, "presence_penalty")
        with self.assertRaises(openai.NotFoundError):
            self.client.chat.completions.create(model="other", messages=MESSAGES)
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(base_url=self.client.base_url, api_key="wrong", max_retries=0).models.list()

    def test_lists_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], [MODEL_NAME])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
