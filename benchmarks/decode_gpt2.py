"""GPT-2's weights, from the Hugging Face layout into the files of other engines: ONNX and GGUF."""

from pathlib import Path
from typing import Any

import numpy as np
from decode_peers import WEIGHTS, read_config


def gpt2_graph(home: Path) -> Any:
    """One step of GPT-2, for a prompt or for the next token: ids B T → the best next id B 1."""
    from onnx import TensorProto, helper, numpy_helper
    from safetensors.numpy import load_file

    sizes, tensors = read_config(home), load_file(home / WEIGHTS / "model.safetensors")
    depth, heads, eps = sizes["n_layer"], sizes["n_head"], sizes["layer_norm_epsilon"]
    nodes: list[Any] = []
    tensors["head"] = np.ascontiguousarray(tensors["transformer.wte.weight"].T)
    tensors["final"] = np.array(-1)
    tensors.pop("lm_head.weight", None)

    def node(kind: str, inputs: list[str], outputs: list[str], **fields: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, outputs, name=f"{kind}_{len(nodes)}", **fields))
        return outputs[0]

    def added(x: str, branch: str, bias: str, norm: str, place: str) -> tuple[str, str]:
        """The residual stream after a branch, and the norm of it."""
        inputs = [x, branch, f"{norm}.weight", f"{norm}.bias", bias]
        outputs = [f"normed_{place}", "", "", f"stream_{place}"]
        node("SkipLayerNormalization", inputs, outputs, domain="com.microsoft", epsilon=eps)
        return outputs[3], outputs[0]

    x = node("Add", [node("Gather", ["transformer.wte.weight", "ids"], ["words"]),
                     node("Gather", ["transformer.wpe.weight", "places"], ["order"])], ["stream"])  # fmt: skip
    norms = [f"transformer.h.{i}.ln_1" for i in range(depth)] + ["transformer.ln_f"]
    first = [x, f"{norms[0]}.weight", f"{norms[0]}.bias"]
    normed = node("LayerNormalization", first, ["normed"], axis=-1, epsilon=eps)
    for i in range(depth):
        own, caches = f"transformer.h.{i}.", [f"keys_{i}", f"values_{i}"]
        qkv = node("MatMul", [normed, own + "attn.c_attn.weight"], [f"qkv_{i}"])
        qkv = node("Add", [qkv, own + "attn.c_attn.bias"], [f"qkv_biased_{i}"])
        mixed = node(
            "GroupQueryAttention", [qkv, "", "", *caches, "last", "length"],
            [f"mixed_{i}", *(f"new_{name}" for name in caches)],
            domain="com.microsoft", num_heads=heads, kv_num_heads=heads,
        )  # fmt: skip
        branch = node("MatMul", [mixed, own + "attn.c_proj.weight"], [f"attended_{i}"])
        x, normed = added(x, branch, own + "attn.c_proj.bias", own + "ln_2", f"{i}_middle")
        hidden = node("MatMul", [normed, own + "mlp.c_fc.weight"], [f"up_{i}"])
        hidden = node("FastGelu", [hidden, own + "mlp.c_fc.bias"], [f"hidden_{i}"], domain="com.microsoft")
        branch = node("MatMul", [hidden, own + "mlp.c_proj.weight"], [f"down_{i}"])
        x, normed = added(x, branch, own + "mlp.c_proj.bias", norms[i + 1], f"{i}_end")
    newest = node("Gather", [normed, "final"], ["newest"], axis=1)
    node("ArgMax", [node("MatMul", [newest, "head"], ["scores"])], ["chosen"], axis=-1, keepdims=1)

    def value(name: str, kind: int, *shape: int | str) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    whole, room = TensorProto.INT64, ("B", heads, "room", sizes["n_embd"] // heads)
    caches = [f"{part}_{i}" for i in range(depth) for part in ("keys", "values")]
    given = [value("ids", whole, "B", "T"), value("places", whole, "B", "T"),
             value("last", TensorProto.INT32, "B", 1), value("length", TensorProto.INT32)]  # fmt: skip
    graph = helper.make_graph(
        nodes, "step", given + [value(name, TensorProto.FLOAT, *room) for name in caches],
        [value("chosen", whole, "B", 1)] + [value(f"new_{name}", TensorProto.FLOAT, *room) for name in caches],
        [numpy_helper.from_array(tensor, name) for name, tensor in tensors.items()],
    )  # fmt: skip
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=9)


def write_gguf(home: Path, path: Path, *, quantized: bool) -> None:
    """The file of llama.cpp; quantised: the matrices in q8_0, groups of 32 with a scale each."""
    import gguf
    from safetensors.numpy import load_file

    sizes, tensors = read_config(home), load_file(home / WEIGHTS / "model.safetensors")
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(sizes["n_positions"])
    writer.add_embedding_length(sizes["n_embd"])
    writer.add_block_count(sizes["n_layer"])
    writer.add_feed_forward_length(sizes["n_inner"])
    writer.add_head_count(sizes["n_head"])
    writer.add_layer_norm_eps(sizes["layer_norm_epsilon"])
    writer.add_vocab_size(sizes["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    parts = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "ln_1": "attn_norm",
             "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up",
             "mlp.c_proj": "ffn_down"}  # fmt: skip
    q8 = gguf.GGMLQuantizationType.Q8_0
    for name, tensor in tensors.items():
        if name == "lm_head.weight":
            continue  # the embedding again
        part, _, kind = name.removeprefix("transformer.").rpartition(".")
        place = ""
        if part.startswith("h."):
            _, number, part = part.split(".", 2)
            place = f"blk.{number}."
        if ".c_" in name and tensor.ndim == 2:
            tensor = np.ascontiguousarray(tensor.T)
        whole = not quantized or tensor.ndim == 1 or part == "wpe"
        stored = tensor if whole else gguf.quants.quantize(tensor, q8)
        writer.add_tensor(f"{place}{parts[part]}.{kind}", stored, raw_dtype=None if whole else q8)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
