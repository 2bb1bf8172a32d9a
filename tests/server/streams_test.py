# SPDX-License-Identifier: Apache-2.0
"""Random requests, whole and streamed, must have the same answer.

streams_test.py COMMAND MODEL [PROBLEMS [REQUESTS [SEED]]]: REQUESTS (100) of them. Each has its seed, so both are the
same draw; the pieces of the stream, put together, are compared with what came whole.
"""

import json
import random
import sys
import unittest

from serving import Server, chat_body, events

COMMAND, MODEL = sys.argv[1:3]
NUM_REQUESTS = int(sys.argv[4]) if len(sys.argv) > 4 else 100
SEED = int(sys.argv[5]) if len(sys.argv) > 5 else 1
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TOOL = {"type": "function", "function": {"name": "go", "parameters": {
    "type": "object", "properties": {"side": {"enum": ["left", "right"]}}, "required": ["side"]}}}
STOPS = [" ", "\n", "e", "1", "has", "so", "s m", "\u00e9", "How many", "=", " =", "= ", "."]


def shared_fields(rng):
    tokens = rng.choice([1, 2, 5, 20, 60])
    optional = {
        "stop": rng.sample(STOPS, rng.randrange(1, 4)), "include_stop_str_in_output": True, "n": rng.randrange(2, 5),
        "stop_token_ids": rng.sample(range(2048), 50), "ignore_eos": True, "min_tokens": rng.randrange(tokens + 1),
        "skip_special_tokens": False, "frequency_penalty": rng.choice([-2, 2]),
        "logit_bias": {str(rng.randrange(2048)): rng.choice([5, 20, -100]) for _ in range(20)}}
    chosen = {name: value for name, value in optional.items() if rng.random() < 0.3}
    return {"seed": rng.randrange(1000), "temperature": rng.choice([0, 0.7, 2, 5]), "max_tokens": tokens,
            "return_token_ids": True, **chosen}


def chat_request(rng):
    body = chat_body(rng.choice(["What is 12 / 4?", "Caf\u00e9 \U0001f600", "x"]), **shared_fields(rng))
    if rng.random() < 0.4:
        body |= {"logprobs": True, "top_logprobs": rng.choice([0, 1, 5])}
    if rng.random() < 0.2:
        body |= {"tools": [TOOL], "parallel_tool_calls": rng.random() < 0.5}
    return CHAT, body


def completion_request(rng):
    prompt = rng.choice(["12 / 4 =", ["a", "b \u00e9"], [5, 6, 7], "<|im_start|>x"])
    body = {"prompt": prompt, "echo": rng.random() < 0.3, **shared_fields(rng)}
    if rng.random() < 0.4:
        body["logprobs"] = rng.choice([0, 1, 5])
    return COMPLETIONS, body


def put_together(deltas):
    """The choice that its deltas make, without what differs by design: ids of calls, and null for no text."""
    end = deltas[-1]
    calls, logprobs = {}, {}
    for choice in deltas:
        for call in choice.get("delta", {}).get("tool_calls", []):
            known = calls.setdefault(call["index"], {"name": "", "arguments": ""})
            for key, piece in call["function"].items():
                known[key] += piece
        for key, entries in (choice["logprobs"] or {}).items():
            logprobs.setdefault(key, []).extend(entries or [])
    text = "".join(c.get("text", "") + (c.get("delta", {}).get("content") or "") for c in deltas)
    return {"text": text, "calls": [calls[index] for index in sorted(calls)], "logprobs": logprobs,
            "token_ids": [i for c in deltas for i in c.get("token_ids", [])],
            "ends": [c["finish_reason"] for c in deltas if c["finish_reason"]], "stop_reason": end.get("stop_reason")}


def as_whole(choice):
    message = choice.get("message", {})
    return {"text": choice.get("text") or message.get("content") or "",
            "calls": [call["function"] for call in message.get("tool_calls", [])],
            "logprobs": {key: entries or [] for key, entries in (choice["logprobs"] or {}).items()},
            "token_ids": choice["token_ids"], "ends": [choice["finish_reason"]], "stop_reason": choice["stop_reason"]}


class Streams(unittest.TestCase):
    maxDiff = 2000

    def test_put_together_are_the_whole_answer(self):
        # A small cache: sequences are sent back, and prefixes evicted.
        server = Server(COMMAND, MODEL, "--tool-call-parser", "qwen3", "--max-total-tokens", "2048").ready()
        self.addCleanup(server.stop)
        for place in range(NUM_REQUESTS):
            rng = random.Random(f"{SEED} {place}")
            path, body = rng.choice([chat_request, completion_request])(rng)
            status, whole = server.post(path, body)
            self.assertEqual(status, 200, (whole, body))
            streamed = events(server.request("POST", path, body | {"stream": True, "stream_options": {
                "include_usage": True}})[2])
            usage = streamed.pop()["usage"]
            for side in (usage, whole["usage"]):
                del side["prompt_tokens_details"]  # the second finds the first's prefix
            self.assertEqual(usage, whole["usage"], body)
            for choice in whole["choices"]:
                deltas = [event["choices"][0] for event in streamed
                          if event["choices"][0]["index"] == choice["index"]]
                self.assertEqual(put_together(deltas), as_whole(choice), json.dumps(body))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
