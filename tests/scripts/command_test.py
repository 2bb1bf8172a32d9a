# SPDX-License-Identifier: Apache-2.0
"""command_test.py HALFBYTE MODEL: what the command answers when it is misused or its files are damaged."""
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

HALFBYTE, MODEL = sys.argv[1:3]
PROMPT = ["--prompt", "Hi", "--max-new-tokens", "2"]


def halfbyte(*args, env=None, stdin=b"", stdout=subprocess.PIPE):
    return subprocess.run([HALFBYTE, *args], input=stdin, stdout=stdout, stderr=subprocess.PIPE, timeout=60,
                          env={**os.environ, **(env or {})})


def read_model():
    with open(os.path.join(MODEL, "model.safetensors"), "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(size)), bytearray(file.read())


def write_model(folder, header, data):
    """Packs the tensors of `header` anew."""
    packed, kept = bytearray(), {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            entry = {**entry, "data_offsets": [len(packed), len(packed) + end - begin]}
            packed += data[begin:end]
        kept[name] = entry
    text = json.dumps(kept).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + packed)


class CommandTest(unittest.TestCase):
    def assert_error(self, result, *wanted):
        """Status 1, nothing on stdout, and one line of error that holds every text of `wanted`."""
        lines = [line for line in result.stderr.decode(errors="replace").splitlines() if line.startswith("error: ")]
        self.assertEqual((result.returncode, result.stdout, len(lines)), (1, b"", 1), result.stderr)
        for text in wanted:
            self.assertIn(text, lines[0])

    def damaged(self, change):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        shutil.copytree(MODEL, folder, dirs_exist_ok=True)
        header, data = read_model()
        change(header, data)
        write_model(folder, header, data)
        return folder

    def test_a_misused_command_says_which_word_is_wrong(self):
        self.assert_error(halfbyte("foo"), '"foo"', "halfbyte --help")
        self.assert_error(halfbyte("run", "--nope"), '"--nope"', "halfbyte run --help")
        self.assert_error(halfbyte("run", MODEL, *PROMPT, "--dtype", "x"), "--dtype", '"x"', "float32")

    def test_numbers_that_do_not_fit_are_refused(self):
        for option, value in (("--seed", "-1"), ("--seed", str(2**64)), ("--max-new-tokens", "9" * 20)):
            self.assert_error(halfbyte("run", MODEL, "--prompt", "Hi", option, value), option, value)

    def test_a_variable_that_is_no_flag_is_refused(self):
        self.assert_error(halfbyte("run", MODEL, *PROMPT, env={"HALFBYTE_MOE_NVFP4_DISPATCH": "maybe"}), "maybe")
        self.assert_error(halfbyte("run", MODEL, *PROMPT, env={"HALFBYTE_MAX_DISPATCH_TOKENS_PER_RANK": "x"}),
                          "HALFBYTE_MAX_DISPATCH_TOKENS_PER_RANK=x")

    def test_every_instruction_set_can_be_asked_for(self):
        plain = halfbyte("run", MODEL, *PROMPT, "--cpu-isa", "portable")
        self.assertEqual((plain.returncode, plain.stdout), (0, halfbyte("run", MODEL, *PROMPT).stdout))
        self.assert_error(halfbyte("run", MODEL, *PROMPT, "--cpu-isa", "sse2"), '"sse2" is not one of auto, avx512')
        self.assert_error(halfbyte("run", MODEL, *PROMPT, env={"HALFBYTE_CPU_ISA": "sse2"}), "HALFBYTE_CPU_ISA=sse2")

    def test_a_prompt_that_is_not_utf8_or_not_there_is_refused(self):
        self.assert_error(halfbyte("run", MODEL, "--prompt", b"a\xff"), "byte 1 is 0xFF")
        self.assert_error(halfbyte("run", MODEL), "no prompt")
        self.assert_error(halfbyte("run"), "MODEL")

    def test_a_prompt_that_is_too_long_is_refused_before_loading(self):
        result = halfbyte("run", MODEL, "--prompt", "Hi " * 40, "--context-length", "32")
        self.assert_error(result, "want fewer than the context of 32")
        self.assertNotIn(b"loading", result.stderr)

    def test_a_folder_without_a_tokenizer_says_where_to_get_it(self):
        folder = self.damaged(lambda header, data: None)
        os.remove(os.path.join(folder, "tokenizer.json"))
        self.assert_error(halfbyte("run", folder, *PROMPT), "tokenizer.json", "No such file", "copy it")

    def test_a_folder_that_is_not_there_is_told_alike_by_every_command(self):
        for command in (["run"], ["serve"], ["bench", "engine"], ["inspect"], ["check"], ["plan"], ["tokenize"]):
            result = halfbyte(*command, "/no/such")
            self.assert_error(result, "error: not_found: /no/such: no such folder; want a")

    def test_a_line_of_eval_or_tokenize_that_is_bad_is_named(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write('{"question": "Hi", "answer": 1}\n\n{"question": "%s", "answer": 1}\n' % ("Hi " * 60))
            file.flush()
            result = halfbyte("eval", MODEL, "--problems", file.name, "--context-length", "48")
            self.assert_error(result, file.name + ": line 3: the prompt has", "want fewer than 48")
        result = halfbyte("tokenize", MODEL, stdin=b'{"text": "Hi"}\n{"text": "a\xff"}\n')
        self.assertEqual((result.returncode, result.stdout.count(b"\n")), (1, 1))
        self.assertIn(b"line 2: want a JSON object: ", result.stderr)
        self.assertIn(b"UTF-8", result.stderr)

    def test_a_bad_end_of_text_id_names_its_file(self):
        folder = self.damaged(lambda header, data: None)
        with open(os.path.join(folder, "generation_config.json"), "w") as file:
            file.write('{"eos_token_id": "stop"}')
        self.assert_error(halfbyte("run", folder, *PROMPT), 'generation_config.json: eos_token_id: want token ids, got "stop"')

    def test_logits_that_are_no_numbers_end_run_and_bench_with_one_code(self):
        def spoil(header, data):
            begin, end = header["model.norm.weight"]["data_offsets"]
            data[begin:end] = b"\xc0\x7f" * ((end - begin) // 2)  # bf16 NaN

        folder = self.damaged(spoil)
        self.assert_error(halfbyte("run", folder, *PROMPT, "--json"), "error: corrupt_data: logit of token 0 is nan")
        self.assert_error(halfbyte("bench", "engine", folder, "-p", "2", "-n", "2"), "error: corrupt_data: logit")

    def test_ranks_and_transports_that_cannot_be_are_refused(self):
        self.assert_error(halfbyte("run", MODEL, *PROMPT, "--ep-size", "65536"), "65536", "1024")
        self.assert_error(halfbyte("run", MODEL, *PROMPT, "--moe-transport", "in_process"), "in_process", "--tp-size")

    def test_a_request_that_does_not_fit_the_cache_names_the_option(self):
        self.assert_error(halfbyte("run", MODEL, "--prompt", "Hi", "--max-total-tokens", "16"), "--max-total-tokens")

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_an_answer_that_cannot_be_written_is_an_error(self):
        with open("/dev/full", "wb") as full:
            self.assertEqual(halfbyte("plan", MODEL, "--json", stdout=full).returncode, 1)

    def test_json_is_one_object_and_nothing_else(self):
        result = halfbyte("run", MODEL, *PROMPT, "--json")
        self.assertEqual(json.loads(result.stdout)["completion_tokens"], 2)
        self.assertEqual(result.stdout.count(b"\n"), 1)

    # The shipped model declares quantised activations.
    def test_plan_takes_the_kernels_of_a_gpu_that_is_not_there(self):
        for profile, backend in (("h200", "cuda_sm90 in w4a16"), ("b200", "cuda_sm100 in w4a4")):
            result = halfbyte("plan", MODEL, "--device-profile", profile, "--dtype", "bfloat16")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(f"backend: {backend}: ".encode(), result.stdout)

    def plan(self, *options):
        result = halfbyte("plan", MODEL, "--json", *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout), result.stderr.decode()

    def test_plan_takes_what_serve_takes_and_says_what_does_nothing(self):
        _, log = self.plan(
            "--host", "0.0.0.0", "--port", "8000", "--served-model-name", "m", "--api-key", "k", "--log-level", "error",
            "--kv-cache-dtype", "fp8_e4m3", "--quantization", "modelopt_fp4", "--load-format", "auto", "--page-size", "16",
            "--attention-backend", "auto", "--fp4-gemm-backend", "auto", "--nnodes", "1", "--node-rank", "0",
            "--ep-num-redundant-experts", "0", "--schedule-conservativeness", "0.5", "--dist-init-addr", "a:1",
            "--enable-trace", "--cuda-graph-max-bs", "8")
        for option in ("--schedule-conservativeness", "--dist-init-addr", "--enable-trace"):
            self.assertEqual(log.count(f"notice: {option} has no effect: "), 1)

    def test_an_option_of_other_servers_that_would_change_something_is_refused(self):
        for option, value in (("--load-format", "dummy"), ("--block-size", "32"), ("--attention-backend", "triton"),
                              ("--fp4-gemm-backend", "cutlass"), ("--nnodes", "2"), ("--node-rank", "1")):
            self.assert_error(halfbyte("plan", MODEL, option, value), option, f'"{value}" is not', "leave the option out")
        self.assert_error(halfbyte("plan", MODEL, "--kv-cache-dtype", "fp8_e5m2"), "fp8_e5m2", "fp8_e4m3")

    def test_a_quantization_that_is_not_the_checkpoints_is_refused(self):
        for command in (["plan", MODEL], ["run", MODEL, *PROMPT]):
            self.assert_error(halfbyte(*command, "--quantization", "compressed-tensors"),
                              "--quantization is compressed-tensors", "config says modelopt_fp4")

    def test_members_of_the_config_can_be_replaced(self):
        shorter = ["--json-model-override-args", '{"max_position_embeddings": 512}']
        _, log = self.plan(*shorter)
        self.assertIn("notice: config.json: max_position_embeddings is 512 instead of 1024 (--json-model-override-args)", log)
        self.assert_error(halfbyte("plan", MODEL, *shorter, "--context-length", "600"), "want 1 to 512")
        self.assert_error(halfbyte("run", MODEL, *PROMPT, *shorter, "--context-length", "600"), "want 1 to 512")
        self.assert_error(halfbyte("plan", MODEL, "--json-model-override-args", "3"), "--json-model-override-args: want a JSON object")

    def test_plan_sizes_the_cache_as_serve_does(self):
        memory = self.plan("--max-total-tokens", "100", "--ep-size", "2")[0]["memory"]
        self.assertEqual(memory["kv_cache_tokens_per_rank"], 112)
        self.assertEqual(memory["kv_cache_bytes"], 2 * 112 * memory["kv_cache_bytes_per_token"])
        memory = self.plan("--mem-fraction-static", "0.5")[0]["memory"]
        self.assertLess(memory["kv_cache_bytes"], 0.5 * memory["available_bytes"])
        self.assertGreater(memory["kv_cache_bytes"], 0.3 * memory["available_bytes"])
        memory = self.plan("--gpu-memory-utilization", "0.5", "--max-total-tokens", "100")[0]["memory"]
        self.assertEqual(memory["kv_cache_tokens_per_rank"], 112)
        self.assert_error(halfbyte("plan", MODEL, "--mem-fraction-static", "1.5"), "--mem-fraction-static", "1.5")

    def test_an_interrupted_answer_ends_with_130(self):
        slow = ["--moe-runner-backend", "reference", "--moe-activation-mode", "w4a16"]  # seconds, on any machine
        command = [HALFBYTE, "run", MODEL, "--prompt", "Hi", "--ignore-eos", "--max-new-tokens", "900", *slow]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        first = process.stdout.read(1)  # the answer is under way
        time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=60)
        self.assertEqual((len(first), process.returncode), (1, 130))
        self.assertIn(b"cancelled", log)

    def test_check_finds_what_a_run_would_find(self):
        lacking = self.damaged(lambda header, data: header.pop("model.norm.weight"))
        self.assert_error(halfbyte("check", lacking), "norm.weight")

        def damage_two_layers(header, data):
            header.pop("model.layers.0.input_layernorm.weight")
            header.pop("model.layers.1.self_attn.q_norm.weight")

        result = halfbyte("check", self.damaged(damage_two_layers))
        self.assertEqual(result.returncode, 1)
        for name in (b"layers.0.input_layernorm.weight", b"layers.1.self_attn.q_norm.weight", b"2 findings"):
            self.assertIn(name, result.stderr)
        spare = self.damaged(lambda header, data: header.update({"model.spare": header["model.norm.weight"]}))
        self.assert_error(halfbyte("check", spare), "model.spare")

    def test_a_bad_block_scale_is_named_once_with_its_place(self):
        name = "model.layers.1.mlp.experts.5.down_proj.weight_scale"

        def negate(header, data):
            data[header[name]["data_offsets"][0] + 3] = 0x80

        place = "layer 1: expert 5: down_proj.weight_scale: row 0, group 3: byte 0x80"
        self.assert_error(halfbyte("run", self.damaged(negate), *PROMPT), "corrupt_data: " + place)

    def test_a_bad_input_scale_is_a_notice_of_check_and_an_error_of_w4a4(self):
        name = "model.layers.1.mlp.experts.5.up_proj.input_scale"

        def negate(header, data):
            begin = header[name]["data_offsets"][0]
            data[begin:begin + 4] = struct.pack("<f", -1.0)

        folder = self.damaged(negate)
        result = halfbyte("check", folder)
        self.assertEqual(result.returncode, 0)
        self.assertIn(b"mode w4a4 will be refused: layer 1: expert 5: up_proj.input_scale: value -1", result.stderr)
        self.assert_error(halfbyte("run", folder, *PROMPT, "--moe-activation-mode", "w4a4"), "up_proj.input_scale")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
