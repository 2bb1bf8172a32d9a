#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tiny random models of tests/golden/tiny with transformers, and their fp32 logits.

Each model covers options of its family that the real model beside it does not. Weights are random
(norms and biases too) and exact in bf16, so the files are what the logits were computed from.

    pip install torch transformers   (made with transformers 5.24.0, torch 2.15.0)
    tests/golden/make_tiny_models.py tests/golden/tiny
"""

import json
import pathlib
import shutil
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, DeepseekV3Config, Qwen3MoeConfig

VOCAB, TOKENS = 96, 40

COMMON = dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=64, moe_intermediate_size=16,
              num_hidden_layers=3, max_position_embeddings=64, num_experts_per_tok=3)
QWEN = dict(COMMON, num_attention_heads=4, num_key_value_heads=2, num_experts=8)
DEEPSEEK = dict(COMMON, num_attention_heads=4, num_key_value_heads=4, n_routed_experts=8,
                kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=24,
                first_k_dense_replace=1, routed_scaling_factor=2.5, num_nextn_predict_layers=0)


def yarn(**more):
    return dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
                original_max_position_embeddings=16, **more)


# name -> (config class, config, keys of config.json to replace afterwards)
MODELS = {
    # YaRN with its defaults, head_dim that is not hidden / heads, every second layer dense, one
    # matrix for embedding and head, router weights not renormalised.
    "qwen_yarn_tied": (Qwen3MoeConfig, dict(
        QWEN, head_dim=16, rope_parameters=yarn(), decoder_sparse_step=2, tie_word_embeddings=True,
        norm_topk_prob=False), {}),
    # The old spelling of the rotary settings, other betas without truncation, no head_dim, a dense
    # layer by number, another epsilon.
    "qwen_old_rope": (Qwen3MoeConfig, dict(
        QWEN, head_dim=12, rope_parameters=yarn(beta_fast=8.0, beta_slow=2.0, truncate=False),
        mlp_only_layers=[1], norm_topk_prob=True, rms_norm_eps=1e-5),
        {"rope_parameters": None, "head_dim": None, "rope_theta": 10000.0,
         "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
                          "beta_fast": 8.0, "beta_slow": 2.0, "truncate": False}}),
    # Biases on the attention's linears, linear rotary scaling.
    "qwen_bias_linear": (Qwen3MoeConfig, dict(
        QWEN, head_dim=16, attention_bias=True, norm_topk_prob=True,
        rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0)), {}),
    # No q_lora, groups off, mscale that differs from mscale_all_dim, two shared experts, an epsilon
    # that the norms inside the projections do not follow.
    "deepseek_mscale": (DeepseekV3Config, dict(
        DEEPSEEK, q_lora_rank=None, n_group=1, topk_group=1, n_shared_experts=2, rms_norm_eps=1e-4,
        rope_parameters=yarn(mscale=0.707, mscale_all_dim=1.0), norm_topk_prob=True), {}),
    # Groups, a bias that makes every selection score negative, rotation by halves, weights not
    # renormalised.
    "deepseek_groups": (DeepseekV3Config, dict(
        DEEPSEEK, q_lora_rank=32, n_group=4, topk_group=2, n_shared_experts=1, norm_topk_prob=False,
        rope_interleave=False, rope_parameters=dict(rope_type="default", rope_theta=10000.0)), {}),
}


def randomize(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in list(model.named_parameters()) + list(model.named_buffers()):
        if "inv_freq" in name:
            continue
        value = torch.randn(tensor.shape, generator=generator)
        if "norm" in name:
            value = 1.0 + 0.2 * value
        elif "e_score_correction_bias" in name:
            value = -2.0 + 0.3 * value  # scores are below 1: every sum is negative
        elif name.endswith("bias"):
            value = 0.1 * value
        else:
            value = value / tensor.shape[-1] ** 0.5
        with torch.no_grad():
            tensor.copy_(value.to(torch.bfloat16))


def write(folder, config_class, settings, replaced, seed):
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config_class(**settings), attn_implementation="eager",
                                             dtype=torch.float32)
    randomize(model, seed)
    model.to(torch.bfloat16).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager",
                                                 dtype=torch.float32).eval()
    tokens = torch.randint(0, VOCAB, (1, TOKENS), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        logits = model(tokens).logits[0]
    golden = folder / "golden"
    golden.mkdir()
    save_file({"tokens": tokens[0].to(torch.int32), "logits": logits.contiguous()},
              golden / "golden.safetensors")
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for key, value in replaced.items():
        config.pop(key, None)
        if value is not None:
            config[key] = value
    path.write_text(json.dumps(config, indent=1) + "\n")
    (folder / "generation_config.json").unlink(missing_ok=True)


def main():
    out = pathlib.Path(sys.argv[1])
    for seed, (name, model) in enumerate(MODELS.items(), start=1):
        shutil.rmtree(out / name, ignore_errors=True)
        write(out / name, *model, seed)


if __name__ == "__main__":
    main()
