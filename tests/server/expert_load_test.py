# SPDX-License-Identifier: Apache-2.0
"""How `halfbyte serve` tells the use of experts: expert_load_test.py COMMAND MODEL."""

import json
import os
import sys
import unittest

from serving import Server, chat_body

COMMAND, MODEL = sys.argv[1:3]
with open(os.path.join(MODEL, "config.json"), encoding="utf-8") as config_file:
    CONFIG = json.load(config_file)


def layers_after_a_chat(*options):
    """The layers of /expert_load, the usage of the one chat before it, and the metrics as text."""
    server = Server(COMMAND, MODEL, *options).ready()
    answer = server.post("/v1/chat/completions", chat_body("What is 12 / 4?"))[1]
    layers = json.loads(server.request("GET", "/expert_load")[2])["layers"]
    metrics = server.request("GET", "/metrics")[2].decode()
    assert server.stop() == 0
    return layers, answer["usage"], metrics


class ExpertLoad(unittest.TestCase):
    def test_counts_every_token_once_for_each_of_its_experts(self):
        layers, usage, metrics = layers_after_a_chat("--enable-expert-metrics")
        self.assertEqual(len(layers), CONFIG["num_hidden_layers"])
        computed = usage["total_tokens"] - 1  # the last one is not computed
        for layer in layers:
            self.assertEqual(len(layer["tokens"]), CONFIG["num_local_experts"])
            self.assertEqual(sum(layer["tokens"]), computed * CONFIG["num_experts_per_tok"])
            mean = sum(layer["tokens"]) / len(layer["tokens"])
            self.assertAlmostEqual(layer["imbalance"], max(layer["tokens"]) / mean)
            self.assertGreaterEqual(layer["experts_touched"], layer["steps"] * CONFIG["num_experts_per_tok"])
            self.assertGreater(layer["expert_bytes_read"], 0)
        for expert, tokens in enumerate(layers[1]["tokens"]):
            labels = f'layer="1",expert="{expert}",model_name="gsm-mini"'
            self.assertIn(f"halfbyte:expert_tokens_total{{{labels}}} {tokens}\n", metrics)

    def test_is_the_same_however_experts_are_spread(self):
        alone = layers_after_a_chat()[0]
        for options in (["--ep-size", "2"], ["--tp-size", "2"], ["--ep-size", "2", "--moe-a2a-backend", "all_to_all"]):
            spread, _, metrics = layers_after_a_chat(*options)
            for key in ("layer", "tokens", "experts_touched", "dropped_routes"):
                self.assertEqual([layer[key] for layer in spread], [layer[key] for layer in alone], options)
            self.assertEqual(sum(layer["dispatch_bytes"] for layer in spread) > 0, "all_to_all" in options)
            self.assertNotIn("expert_tokens_total", metrics)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
