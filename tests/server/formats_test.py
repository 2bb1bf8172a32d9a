# SPDX-License-Identifier: Apache-2.0
"""Black-box tests of /generate, /v1/responses and /v1/messages: formats_test.py COMMAND MODEL."""

import json
import sys
import unittest

from serving import MODEL_NAME, Server, chat_body, events, typed_events

COMMAND, MODEL = sys.argv[1:3]
QUESTION = "What is 12 / 4?"


class Formats(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(COMMAND, MODEL, "--api-key", "secret").ready()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def post(self, path, body, status=200):
        got, answer = self.server.post(path, body, **{"X-Api-Key": "secret"})
        self.assertEqual(got, status, answer)
        return answer

    def stream(self, path, body):
        status, _, data = self.server.request("POST", path, {**body, "stream": True}, {"X-Api-Key": "secret"})
        self.assertEqual(status, 200, data)
        return data

    def chat_text(self):
        return self.post("/v1/chat/completions", chat_body(QUESTION))["choices"][0]["message"]["content"]

    def test_generates_the_text_so_far(self):
        body = {"text": "12 / 4 =", "sampling_params": {"temperature": 0, "max_new_tokens": 8}}
        whole = self.post("/generate", body)
        chunks = events(self.stream("/generate", body))
        for before, after in zip(chunks, chunks[1:]):
            self.assertTrue(after["text"].startswith(before["text"]))
        self.assertEqual(chunks[-1]["text"], whole["text"])
        self.assertEqual(chunks[-1]["output_ids"], whole["output_ids"])
        completion = self.post("/v1/completions", {"prompt": "12 / 4 =", "temperature": 0, "max_tokens": 8})
        self.assertEqual(whole["text"], completion["choices"][0]["text"])

    def test_answers_a_message_as_a_chat(self):
        body = {"model": MODEL_NAME, "max_tokens": 256, "temperature": 0,
                "messages": [{"role": "user", "content": QUESTION}]}
        whole = self.post("/v1/messages", body)
        self.assertEqual(whole["content"], [{"type": "text", "text": self.chat_text()}])
        self.assertEqual(whole["stop_reason"], "end_turn")
        deltas = [e["delta"]["text"] for e in typed_events(self.stream("/v1/messages", body))
                  if e["type"] == "content_block_delta"]
        self.assertEqual("".join(deltas), whole["content"][0]["text"])
        count = self.post("/v1/messages/count_tokens", {"messages": body["messages"]})["input_tokens"]
        usage = whole["usage"]
        self.assertEqual(count, usage["input_tokens"] + usage["cache_read_input_tokens"])

    def test_answers_a_response_as_a_chat(self):
        body = {"model": MODEL_NAME, "input": QUESTION, "temperature": 0}
        whole = self.post("/v1/responses", body)
        self.assertEqual(whole["status"], "completed")
        self.assertEqual(whole["output"][0]["content"][0]["text"], self.chat_text())
        stream = typed_events(self.stream("/v1/responses", body))
        self.assertEqual(stream[-1]["type"], "response.completed")
        self.assertEqual([e["sequence_number"] for e in stream], list(range(len(stream))))
        text = "".join(e["delta"] for e in stream if e["type"] == "response.output_text.delta")
        self.assertEqual(text, whole["output"][0]["content"][0]["text"])

    def test_keeps_responses(self):
        first = self.post("/v1/responses", {"input": QUESTION, "temperature": 0, "max_output_tokens": 4})
        path = "/v1/responses/" + first["id"]
        status, _, data = self.server.request("GET", path, headers={"X-Api-Key": "secret"})
        self.assertEqual((status, json.loads(data)), (200, first))
        after = self.post("/v1/responses", {"input": "Why?", "previous_response_id": first["id"], "temperature": 0,
                                            "max_output_tokens": 4})
        self.assertGreater(after["usage"]["input_tokens"], first["usage"]["input_tokens"])
        self.assertEqual(self.server.request("DELETE", path, headers={"X-Api-Key": "secret"})[0], 200)
        self.assertEqual(self.server.request("GET", path, headers={"X-Api-Key": "secret"})[0], 404)

    def test_holds_answers_to_constraints(self):
        body = {"text": "12", "sampling_params": {"regex": "[ab]{3}", "max_new_tokens": 8}}
        status, answer = self.server.post("/generate", body, **{"X-Api-Key": "secret"})
        if status == 400 and answer["error"]["code"] == "unsupported_value":
            self.skipTest(answer["error"]["message"])
        self.assertRegex(answer["text"], "^[ab]{3}$")
        schema = {"enum": ["left", "right"]}
        text = {"format": {"type": "json_schema", "name": "side", "schema": schema}}
        output = self.post("/v1/responses", {"input": QUESTION, "text": text})["output"]
        self.assertIn(json.loads(output[0]["content"][0]["text"]), schema["enum"])
        config = {"format": {"type": "json_schema", "schema": schema}}
        message = self.post("/v1/messages", {"max_tokens": 20, "output_config": config,
                                             "messages": [{"role": "user", "content": QUESTION}]})
        self.assertIn(json.loads(message["content"][0]["text"]), schema["enum"])

    def test_refuses_in_the_form_of_the_path(self):
        self.assertEqual(self.post("/v1/messages", {}, 400)["type"], "error")
        self.assertEqual(self.post("/v1/responses", {"input": QUESTION, "background": True}, 400)["error"]["param"],
                         "background")
        refusal = self.post("/generate", {"text": "a", "sampling_params": {"temperature": -1}}, 400)
        self.assertEqual(refusal["error"]["param"], "sampling_params.temperature")
        status, refusal = self.server.post("/v1/messages", {})
        self.assertEqual((status, refusal["error"]["type"]), (401, "authentication_error"))

    def test_frees_what_a_client_leaves(self):
        for path, body in (("/v1/messages", {"max_tokens": 200, "messages": [{"role": "user", "content": QUESTION}]}),
                           ("/v1/responses", {"input": QUESTION}), ("/generate", {"text": QUESTION})):
            body = {**body, "ignore_eos": True, "stream": True}
            if path == "/generate":
                body["sampling_params"] = {"ignore_eos": True}
            connection = self.server.connect()
            connection.request("POST", path, json.dumps(body),
                               {"Content-Type": "application/json", "X-Api-Key": "secret"})
            connection.getresponse().read(1)
            connection.close()
        self.assertEqual(self.server.wait_until_idle()["halfbyte:num_running_reqs"], 0.0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
