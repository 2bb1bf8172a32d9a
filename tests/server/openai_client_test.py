# SPDX-License-Identifier: Apache-2.0
"""The official client against `halfbyte serve`: openai_client_test.py COMMAND MODEL. Exits with 77 (skipped) without it."""

import asyncio
import json
import sys
import typing
import unittest

from serving import MODEL_NAME, Server

try:
    import openai
    import pydantic
except ImportError:
    print("skipped: the Python package openai is not installed")
    sys.exit(77)

COMMAND, MODEL = sys.argv[1:3]
MESSAGES = [{"role": "user", "content": "What is 12 / 4?"}]
# JSON may have white space anywhere, and a small model goes on with it for ever unless that gets ever less likely.
TERSE = {"temperature": 0, "frequency_penalty": 1}


class Order(pydantic.BaseModel):
    """What answers and calls are to hold; every part of it ends, whatever a model says."""

    size: typing.Literal["small", "large"]
    express: bool


class OfficialClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(COMMAND, MODEL, "--api-key", "secret", "--tool-call-parser", "qwen3").ready()
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

    def test_asks_through_the_module(self):
        openai.base_url, openai.api_key = str(self.client.base_url), "secret"
        answer = openai.chat.completions.create(model=MODEL_NAME, messages=MESSAGES, max_completion_tokens=3)
        self.assertEqual(answer.usage.completion_tokens, 3)

    def test_answers_asynchronous_clients(self):
        async def ask():
            async with openai.AsyncOpenAI(base_url=self.client.base_url, api_key="secret") as client:
                request = {"model": MODEL_NAME, "messages": MESSAGES, "temperature": 0}
                many = [client.chat.completions.create(**request) for _ in range(4)]
                whole = [answer.choices[0].message.content for answer in await asyncio.gather(*many)]
                stream = await client.chat.completions.create(stream=True, **request)
                return whole, "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        whole, streamed = asyncio.run(ask())
        self.assertEqual(whole, [streamed] * 4)

    def test_collects_a_stream(self):
        with self.client.chat.completions.stream(model=MODEL_NAME, messages=MESSAGES, temperature=0) as stream:
            text = "".join(event.delta for event in stream if event.type == "content.delta")
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].message.content, text)
        self.assertEqual(text, self.create().choices[0].message.content)

    def test_shows_the_raw_response(self):
        raw = self.client.chat.completions.with_raw_response.create(model=MODEL_NAME, messages=MESSAGES, max_tokens=1)
        self.assertEqual(raw.headers["content-type"], "application/json")
        self.assertEqual(raw.parse().choices[0].finish_reason, "length")
        with self.client.chat.completions.with_streaming_response.create(
                model=MODEL_NAME, messages=MESSAGES, max_tokens=1, stream=True) as response:
            self.assertEqual(list(response.iter_lines())[-2:], ["data: [DONE]", ""])

    def test_parses_an_answer_that_has_a_form(self):
        answer = self.client.chat.completions.parse(
            model=MODEL_NAME, messages=MESSAGES, response_format=Order, **TERSE)
        self.assertIsInstance(answer.choices[0].message.parsed, Order)
        with self.client.chat.completions.stream(
                model=MODEL_NAME, messages=MESSAGES, response_format=Order, **TERSE) as stream:
            final = stream.get_final_completion()
        self.assertIsInstance(final.choices[0].message.parsed, Order)

    def test_calls_tools_in_stream_and_whole(self):
        tool = openai.pydantic_function_tool(Order, name="place_order")
        for choice in ("required", {"type": "function", "function": {"name": "place_order"}}):
            fields = {"tools": [tool], "tool_choice": choice, "parallel_tool_calls": False, "frequency_penalty": 1}
            whole = self.create(**fields).choices[0]
            self.assertEqual((whole.finish_reason, len(whole.message.tool_calls)), ("tool_calls", 1))
            function = whole.message.tool_calls[0].function
            Order.model_validate_json(function.arguments)
            deltas = [call for chunk in self.create(stream=True, **fields)
                      for call in chunk.choices[0].delta.tool_calls or []]
            self.assertEqual([bool(call.id) for call in deltas], [True] + [False] * (len(deltas) - 1))
            self.assertEqual(deltas[0].function.name, function.name)
            self.assertEqual("".join(call.function.arguments for call in deltas), function.arguments)
            self.assertGreater(len(deltas), 2)

    def test_takes_the_result_of_a_call(self):
        tool = openai.pydantic_function_tool(Order, name="place_order")
        call = {"id": "call_1", "type": "function",
                "function": {"name": "place_order", "arguments": json.dumps({"size": "small", "express": True})}}
        answer = self.client.chat.completions.create(
            model=MODEL_NAME, tools=[tool], max_tokens=3,
            messages=[*MESSAGES, {"role": "assistant", "content": None, "tool_calls": [call]},
                      {"role": "tool", "tool_call_id": "call_1", "content": "done"}])
        self.assertEqual(answer.usage.completion_tokens, 3)

    def test_lists_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], [MODEL_NAME])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
