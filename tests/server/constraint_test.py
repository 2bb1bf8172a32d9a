# SPDX-License-Identifier: Apache-2.0
"""Constrained answers of the shipped model over HTTP, stream and whole: constraint_test.py COMMAND MODEL."""

import json
import re
import sys
import unittest

from serving import Server, chat_body, events

COMMAND, MODEL = sys.argv[1:3]
QUESTION = "Tom has 3 apples and buys 4 more. How many apples does he have?"
# Every value ends by itself: a small model may go on in a string or a number for ever.
SCHEMA = {
    "type": "object",
    "properties": {
        "answer": {"type": "integer", "minimum": 0, "maximum": 99},
        "unit": {"enum": ["apples", "pears"]},
        "steps": {"type": "array", "items": {"$ref": "#/$defs/step"}, "minItems": 1, "maxItems": 2},
        "note": {"type": "string", "maxLength": 12},
    },
    "required": ["answer", "unit", "steps", "note"],
    "$defs": {"step": {"anyOf": [{"type": "boolean"}, {"const": "add"}]}},
}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {
    "type": "object", "properties": {"x": {"enum": [3, 4]}}, "required": ["x"]}}}


class Constraint(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(COMMAND, MODEL, "--tool-call-parser", "qwen3").ready()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def ask(self, **fields):
        status, answer = self.server.post("/v1/chat/completions", chat_body(QUESTION, max_tokens=300, **fields))
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]

    def ask_both(self, **fields):
        """The content, which is the same in a stream."""
        whole = self.ask(**fields)
        self.assertEqual(whole["finish_reason"], "stop", whole)
        body = chat_body(QUESTION, max_tokens=300, stream=True, **fields)
        chunks = events(self.server.request("POST", "/v1/chat/completions", body)[2])
        text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)
        self.assertEqual(text, whole["message"]["content"])
        return text

    def check_order(self, text):
        value = json.loads(text)
        self.assertEqual(list(value), ["answer", "unit", "steps", "note"])
        self.assertIn(value["answer"], range(100))
        self.assertIn(value["unit"], ["apples", "pears"])
        self.assertIn(len(value["steps"]), (1, 2))
        self.assertLessEqual({str(step) for step in value["steps"]}, {"True", "False", "add"})
        self.assertLessEqual(len(value["note"]), 12)

    def test_a_schema_makes_json(self):
        schema = {"type": "json_schema", "json_schema": {"name": "apples", "schema": SCHEMA}}
        self.check_order(self.ask_both(response_format=schema))
        for seed in range(4):
            self.check_order(self.ask(response_format=schema, temperature=1.5, seed=seed)["message"]["content"])

    def test_a_regex_is_matched(self):
        pattern = r"#### [0-9]{1,3}( apples)?"
        self.assertRegex(self.ask_both(regex=pattern), f"^{pattern}$")

    def test_a_choice_is_made(self):
        choices = ["seven", "seventeen", "\u4e03"]
        self.assertIn(self.ask_both(structured_outputs={"choice": choices}), choices)
        text = self.ask_both(structured_outputs={"choice": ["\u4e03\u500b"]})
        self.assertEqual(text, "\u4e03\u500b")

    def test_a_grammar_is_followed(self):
        text = self.ask_both(ebnf='root ::= sum " = " num\nsum ::= num " + " num\nnum ::= [0-9] [0-9]?\n')
        self.assertTrue(re.fullmatch(r"\d\d? \+ \d\d? = \d\d?", text), text)

    def test_a_demanded_call_is_made(self):
        for choice in ("required", {"type": "function", "function": {"name": "add"}}):
            answer = self.ask(tools=[TOOL], tool_choice=choice, parallel_tool_calls=False)
            self.assertEqual(answer["finish_reason"], "tool_calls", answer)
            (call,) = answer["message"]["tool_calls"]
            self.assertEqual(call["function"]["name"], "add")
            self.assertIn(json.loads(call["function"]["arguments"]), [{"x": 3}, {"x": 4}])

    def test_completions_take_constraints_too(self):
        body = {"prompt": "3 + 4 =", "regex": " [0-9]", "max_tokens": 9}
        status, answer = self.server.post("/v1/completions", body)
        self.assertEqual(status, 200, answer)
        self.assertRegex(answer["choices"][0]["text"], "^ [0-9]$")

    def test_a_bad_schema_is_refused_by_name_and_place(self):
        schema = {"type": "object", "properties": {"a": {"not": {}}}}
        body = chat_body(QUESTION, response_format={"type": "json_schema", "json_schema": {"schema": schema}})
        status, answer = self.server.post("/v1/chat/completions", body)
        self.assertEqual(status, 400)
        self.assertEqual(answer["error"]["param"], "response_format.json_schema.schema")
        self.assertEqual(answer["error"]["code"], "unsupported_value")
        self.assertIn('"not"', answer["error"]["message"])
        self.assertIn("/properties/a", answer["error"]["message"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
