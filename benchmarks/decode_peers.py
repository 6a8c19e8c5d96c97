"""The other engines of `benchmarks/decode.py`: how each gets our weights, how each writes tokens, and its process.

Nothing heavy is imported before it is needed: every engine lives in a process of its own, where a second thread pool
or the memory of another library would be counted as its own.
"""

import contextlib
import importlib.util
import json
import logging
import multiprocessing
import signal
import time
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

EOS, UNKNOWN = 0, 1
WEIGHTS = "hf"
"""The directory with the model in the Hugging Face layout, which all engines start from."""


class Contestant:
    """One engine at one precision. What is heavy is made by `prepare`, in the engine's own process."""

    modules: tuple[str, ...] = ()
    install = ""
    families: tuple[str, ...] = ("gpt", "transformer")

    def __init__(self, name: str, precision: str) -> None:
        self.name, self.precision = name, precision

    def missing(self) -> str | None:
        """The reason why it cannot take part, with the cure."""
        absent = [module for module in self.modules if importlib.util.find_spec(module) is None]
        return f"{', '.join(absent)} not installed; {self.install}" if absent else None

    def convert(self, home: Path) -> None:
        """Writes the engine's own files, once, in a process that is gone before the race."""

    def prepare(self, home: Path, threads: int) -> None:
        raise NotImplementedError

    def write(self, rows: list[list[int]], new: int, beams: int) -> list[list[int]]:
        """Exactly `new` tokens for every row: a prompt of a decoder, the source of an encoder–decoder."""
        raise NotImplementedError

    def run(self, rows: list[list[int]], new: int, beams: int) -> tuple[float, list[list[int]]]:
        started = time.perf_counter()
        ids = self.write(rows, new, beams)
        seconds = time.perf_counter() - started
        if [len(row) for row in ids] != [new] * len(rows):
            raise ValueError(f"{new} tokens were to be written, got {sorted({len(row) for row in ids})}")
        return seconds, ids

    def resident(self) -> float:
        """Resident memory in megabytes; 0 where the system does not report it."""
        status = Path("/proc/self/status")
        lines = status.read_text().splitlines() if status.exists() else []
        return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), 0.0)


class Failed(Exception):  # noqa: N818  it is a result, not a mistake
    """Raised where an engine cannot take part; the message is the reason."""


class Child:
    """A contestant in its own process: asked over a pipe, asleep otherwise."""

    def __init__(self, contestant: Contestant) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=serve, args=(contestant, other), daemon=True)
        self.process.start()
        other.close()

    def ask(self, method: str, *arguments: Any) -> Any:
        try:
            self.pipe.send((method, arguments))
            fine, answer = self.pipe.recv()
        except (EOFError, BrokenPipeError):
            self.process.join()
            raise Failed(f"its process died with code {self.process.exitcode}") from None
        if not fine:
            raise Failed(answer)
        return answer

    def end(self) -> None:
        self.pipe.close()
        self.process.join()


def serve(contestant: Contestant, pipe: Connection) -> None:
    """Serves the parent's requests in the child until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable(logging.WARNING)
    with contextlib.suppress(EOFError):
        while True:
            method, arguments = pipe.recv()
            try:
                answer = (True, getattr(contestant, method)(*arguments))
            except Exception as error:
                answer = (False, f"{type(error).__name__}: {error}")
            pipe.send(answer)


def once(contestant: Contestant, method: str, *arguments: Any) -> None:
    child = Child(contestant)
    try:
        child.ask(method, *arguments)
    finally:
        child.end()


def read_config(home: Path) -> dict[str, Any]:
    return json.loads((home / WEIGHTS / "config.json").read_text())


def is_decoder(home: Path) -> bool:
    return not read_config(home).get("is_encoder_decoder")


class HuggingFace(Contestant):
    """`generate` with its defaults and fused attention; int8 is PyTorch's dynamic quantisation of the linear layers."""

    modules, install = ("transformers",), "pip install 'transformers>=5'"

    def prepare(self, home: Path, threads: int) -> None:
        import torch
        from transformers import GPT2LMHeadModel, MarianMTModel
        from transformers.utils import logging

        torch.set_num_threads(threads)
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.decoder = is_decoder(home)
        kind: Any = GPT2LMHeadModel if self.decoder else MarianMTModel
        self.model = kind.from_pretrained(home / WEIGHTS, attn_implementation="sdpa").eval()
        self.model.generation_config.max_length = None
        if self.decoder:
            self.model.generation_config.eos_token_id = None
        if self.precision == "int8":
            warnings.simplefilter("ignore")  # deprecated since long, and still what people use
            lay_down(self.model)
            self.model = torch.ao.quantization.quantize_dynamic(self.model, {torch.nn.Linear}, dtype=torch.qint8)

    def write(self, rows: list[list[int]], new: int, beams: int) -> list[list[int]]:
        import torch

        ids = torch.tensor(rows)
        ends = {} if self.decoder else {"min_new_tokens": new}
        with torch.inference_mode():
            found = self.model.generate(
                ids, attention_mask=torch.ones_like(ids), num_beams=beams, do_sample=False, max_new_tokens=new, **ends
            )
        return found[:, len(rows[0]) if self.decoder else 1 :].tolist()


def lay_down(model: Any) -> None:
    """GPT-2's own kind of linear layer, with the matrix on its side, as the usual kind, which can be quantised."""
    import torch
    from transformers.pytorch_utils import Conv1D

    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Conv1D):
                linear = torch.nn.Linear(*child.weight.shape)
                linear.weight, linear.bias = torch.nn.Parameter(child.weight.t().contiguous()), child.bias
                setattr(parent, name, linear)


class CTranslate2(Contestant):
    """Its converter, its `generate_batch` and `translate_batch`; `workers` share a batch."""

    modules, install = ("ctranslate2", "transformers"), "pip install ctranslate2 'transformers>=5'"

    def __init__(self, name: str, precision: str, *, workers: int = 1) -> None:
        super().__init__(name, precision)
        self.workers = workers
        if workers > 1:
            self.families = ("transformer",)

    def convert(self, home: Path) -> None:
        from ctranslate2.converters import TransformersConverter
        from transformers.utils import logging

        logging.disable_progress_bar()

        class Words:
            """What the converter asks of a tokenizer: a made-up vocabulary, with the padding last as in Marian."""

            bos_token = eos_token = "</s>"
            unk_token = "<unk>"

            def get_vocab(self) -> dict[str, int]:
                size = read_config(home)["vocab_size"]
                special = {"</s>": EOS, "<unk>": UNKNOWN} | ({} if is_decoder(home) else {"<pad>": size - 1})
                return {word(id): id for id in range(size) if id not in special.values()} | special

        class Converter(TransformersConverter):
            def load_tokenizer(self, *_: Any, **__: Any) -> Words:
                return Words()

        Converter(str(home / WEIGHTS)).convert(str(home / self.name), quantization=self.precision, force=True)

    def prepare(self, home: Path, threads: int) -> None:
        import ctranslate2

        self.decoder = is_decoder(home)
        kind = ctranslate2.Generator if self.decoder else ctranslate2.Translator
        pool = dict(inter_threads=self.workers, intra_threads=max(1, threads // self.workers))
        self.engine = kind(str(home / self.name), device="cpu", compute_type=self.precision, **pool)

    def write(self, rows: list[list[int]], new: int, beams: int) -> list[list[int]]:
        words = [[word(id) for id in row] for row in rows]
        if self.decoder:
            found = self.engine.generate_batch(
                words, beam_size=beams, max_length=new, min_length=new, include_prompt_in_result=False
            )
            return [one.sequences_ids[0] for one in found]
        share = len(rows) // self.workers if self.workers > 1 else 0
        found = self.engine.translate_batch(
            words, beam_size=beams, max_decoding_length=new, min_decoding_length=new, max_batch_size=share
        )
        return [[EOS if w == "</s>" else UNKNOWN if w == "<unk>" else int(w[1:]) for w in one.hypotheses[0]]
                for one in found]  # fmt: skip


def word(id: int) -> str:
    return f"w{id}"


class OnnxRuntime(Contestant):
    """A step as a graph of its fused operations, keys and values written in place; int8 is `quantize_dynamic`."""

    modules, install = ("onnxruntime", "onnx"), "pip install onnx onnxruntime"
    families = ("gpt",)

    def convert(self, home: Path) -> None:
        import onnx
        from decode_gpt2 import gpt2_graph

        path = home / f"{self.name}.onnx"
        onnx.save(gpt2_graph(home), path)
        if self.precision == "int8":
            from onnxruntime.quantization import QuantType, quantize_dynamic

            unknown = {"DefaultTensorType": onnx.TensorProto.FLOAT}  # what the fused operations give
            quantize_dynamic(
                path, path, op_types_to_quantize=["MatMul"], weight_type=QuantType.QInt8, extra_options=unknown
            )

    def prepare(self, home: Path, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
        self.session = onnxruntime.InferenceSession(home / f"{self.name}.onnx", options, ["CPUExecutionProvider"])
        self.sizes = read_config(home)

    def write(self, rows: list[list[int]], new: int, beams: int) -> list[list[int]]:
        from onnxruntime import OrtValue

        B, T, heads = len(rows), len(rows[0]), self.sizes["n_head"]
        binding = self.session.io_binding()
        for name in (f"{part}_{i}" for i in range(self.sizes["n_layer"]) for part in ("keys", "values")):
            room = np.zeros((B, heads, T + new, self.sizes["n_embd"] // heads), np.float32)
            shared = OrtValue.ortvalue_from_numpy(room)
            binding.bind_ortvalue_input(name, shared)
            binding.bind_ortvalue_output(f"new_{name}", shared)
        chosen = np.zeros((B, 1), np.int64)
        binding.bind_ortvalue_output("chosen", best := OrtValue.ortvalue_from_numpy(chosen))
        ids, length, written = np.array(rows), 0, []
        for _ in range(new):
            places = np.broadcast_to(np.arange(length, length + ids.shape[1]), ids.shape)
            length += ids.shape[1]
            binding.bind_cpu_input("ids", ids)
            binding.bind_cpu_input("places", np.ascontiguousarray(places))
            binding.bind_cpu_input("last", np.full((B, 1), length - 1, np.int32))
            binding.bind_cpu_input("length", np.array(length, np.int32))
            self.session.run_with_iobinding(binding)
            ids = best.numpy().copy()
            written.append(ids[:, 0])
        return np.stack(written, axis=1).tolist()


class LlamaCpp(Contestant):
    """llama.cpp through its C interface, one sequence a row in one batch; the weights in a GGUF file."""

    modules, install = ("llama_cpp", "gguf"), "pip install gguf llama-cpp-python"
    families = ("gpt",)

    def convert(self, home: Path) -> None:
        from decode_gpt2 import write_gguf

        write_gguf(home, home / f"{self.name}.gguf", quantized=self.precision == "int8")

    def prepare(self, home: Path, threads: int) -> None:
        import llama_cpp as llama

        llama.llama_backend_init()
        self.quiet = llama.llama_log_callback(lambda *_: None)
        llama.llama_log_set(self.quiet, None)
        path = str(home / f"{self.name}.gguf").encode()
        self.model = llama.llama_model_load_from_file(path, llama.llama_model_default_params())
        if not self.model:
            raise ValueError(f"llama.cpp cannot read {path.decode()}")
        self.threads, self.vocab, self.contexts = threads, read_config(home)["vocab_size"], {}

    def context(self, rows: int, room: int) -> Any:
        """Room for as many sequences; kept for the next round."""
        import llama_cpp as llama

        if rows not in self.contexts:
            how = llama.llama_context_default_params()
            how.n_ctx, how.n_seq_max, how.n_batch = rows * room, rows, max(512, rows * room)
            how.n_threads = how.n_threads_batch = self.threads
            self.contexts[rows] = llama.llama_init_from_model(self.model, how)
        llama.llama_memory_clear(llama.llama_get_memory(self.contexts[rows]), True)
        return self.contexts[rows]

    def write(self, rows: list[list[int]], new: int, beams: int) -> list[list[int]]:
        import llama_cpp as llama

        context = self.context(len(rows), 256)
        batch = llama.llama_batch_init(sum(map(len, rows)), 0, 1)
        pending, starts, written = rows, [0] * len(rows), [[] for _ in rows]
        for _ in range(new):
            lasts, count = [], 0
            for row, ids in enumerate(pending):
                for place, id in enumerate(ids, starts[row]):
                    batch.token[count], batch.pos[count], batch.n_seq_id[count] = id, place, 1
                    batch.seq_id[count][0], batch.logits[count] = row, place == starts[row] + len(ids) - 1
                    count += 1
                starts[row] += len(ids)
                lasts.append(count - 1)
            batch.n_tokens = count
            if llama.llama_decode(context, batch):
                raise ValueError("llama.cpp could not decode the batch")
            scores = (llama.llama_get_logits_ith(context, last) for last in lasts)
            pending = [[int(np.ctypeslib.as_array(row, (self.vocab,)).argmax())] for row in scores]
            for row, ids in zip(written, pending, strict=True):
                row += ids
        llama.llama_batch_free(batch)
        return written


PEERS: list[Contestant] = [
    HuggingFace("huggingface-float32", "float32"),
    HuggingFace("huggingface-int8", "int8"),
    CTranslate2("ctranslate2-float32", "float32"),
    CTranslate2("ctranslate2-int8", "int8"),
    CTranslate2("ctranslate2-int8-2x1", "int8", workers=2),
    OnnxRuntime("onnxruntime-float32", "float32"),
    OnnxRuntime("onnxruntime-int8", "int8"),
    LlamaCpp("llama.cpp-float32", "float32"),
    LlamaCpp("llama.cpp-q8_0", "int8"),
]
