# SPDX-License-Identifier: Apache-2.0
"""OpenAI's official client against /v1/responses: responses_client_test.py COMMAND MODEL. Exits with 77 (skipped) without
it."""

import sys
import unittest

from serving import MODEL_NAME, Server

try:
    import openai
except ImportError:
    print("skipped: the Python package openai is not installed")
    sys.exit(77)

COMMAND, MODEL = sys.argv[1:3]
QUESTION = "What is 12 / 4?"


class ResponsesClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(COMMAND, MODEL, "--api-key", "secret").ready()
        cls.client = openai.OpenAI(base_url=f"http://127.0.0.1:{cls.server.port}/v1", api_key="secret", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def create(self, **fields):
        return self.client.responses.create(**{"model": MODEL_NAME, "input": QUESTION, "temperature": 0, **fields})

    def test_answers(self):
        response = self.create(instructions="Be brief.", metadata={"a": "b"})
        self.assertEqual(response.status, "completed")
        self.assertEqual(response.metadata, {"a": "b"})
        self.assertTrue(response.output_text)
        self.assertEqual(response.usage.total_tokens, response.usage.input_tokens + response.usage.output_tokens)

    def test_streams(self):
        whole = self.create()
        events = list(self.create(stream=True))
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        self.assertEqual(text, whole.output_text)
        self.assertEqual(events[-1].response.output_text, text)

    def test_streams_with_the_helper(self):
        with self.client.responses.stream(model=MODEL_NAME, input=QUESTION, temperature=0) as stream:
            for _ in stream:
                pass
            self.assertEqual(stream.get_final_response().output_text, self.create().output_text)

    def test_keeps_and_deletes(self):
        first = self.create(max_output_tokens=4)
        self.assertEqual(first.status, "incomplete")
        self.assertEqual(first.incomplete_details.reason, "max_output_tokens")
        self.assertEqual(self.client.responses.retrieve(first.id).output_text, first.output_text)
        after = self.create(input="Why?", previous_response_id=first.id, max_output_tokens=4)
        self.assertGreater(after.usage.input_tokens, first.usage.input_tokens)
        with self.assertRaises(openai.BadRequestError):
            self.client.responses.cancel(first.id)
        self.client.responses.delete(first.id)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(first.id)

    def test_raises_the_error_that_fits(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.create(max_output_tokens=0)
        self.assertEqual(caught.exception.param, "max_output_tokens")
        with self.assertRaises(openai.BadRequestError):
            self.create(background=True)

    def test_gives_logprobs(self):
        response = self.create(include=["message.output_text.logprobs"], top_logprobs=2, max_output_tokens=3)
        logprobs = response.output[0].content[0].logprobs
        self.assertEqual(len(logprobs), response.usage.output_tokens)
        self.assertEqual(len(logprobs[0].top_logprobs), 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
