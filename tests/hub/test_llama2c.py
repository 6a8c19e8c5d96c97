"""llama2.c's files, written here as its export writes them; its arithmetic in plain numpy against `transformers`."""

import io
import struct

import numpy as np
import pytest
import torch

from regard.hub.llama2c import load_llama2c_tokenizer, read_llama2c, read_llama2c_tokenizer

transformers = pytest.importorskip("transformers")

KINDS = ["attention_norm", "wq", "wk", "wv", "wo", "ffn_norm", "w1", "w2", "w3"]


def write_model(path, *, dim=24, hidden=17, layers=3, heads=4, kv_heads=2, vocab=31, length=13, untied=False, seed=0):
    """A random model in the file's order; gives its weights under the names of llama2.c."""
    rng = np.random.default_rng(seed)
    size, narrow = dim // heads, kv_heads * dim // heads
    shapes = dict(
        attention_norm=(dim,), wq=(dim, dim), wk=(narrow, dim), wv=(narrow, dim), wo=(dim, dim),
        ffn_norm=(dim,), w1=(hidden, dim), w2=(dim, hidden), w3=(hidden, dim),
    )  # fmt: skip
    weights = {"tok_embeddings": rng.normal(size=(vocab, dim)), "norm": 1 + 0.3 * rng.normal(size=dim)}
    for kind in KINDS:
        scale = 1 + 0.3 * rng.normal(size=(layers, dim)) if "norm" in kind else None
        weights[kind] = rng.normal(size=(layers, *shapes[kind])) * 0.3 if scale is None else scale
    weights["output"] = rng.normal(size=(vocab, dim)) if untied else weights["tok_embeddings"]
    angles = np.outer(np.arange(length), 10000.0 ** (-np.arange(0, size, 2) / size))
    order = ["tok_embeddings", *KINDS, "norm"]
    blocks = [*(weights[name] for name in order), np.cos(angles), np.sin(angles), *([weights["output"]] * untied)]
    header = struct.pack("<7i", dim, hidden, layers, heads, kv_heads, -vocab if untied else vocab, length)
    path.write_bytes(header + b"".join(block.astype("<f4").tobytes() for block in blocks))
    return {name: weight.astype("<f4").astype(np.float64) for name, weight in weights.items()}


def rms(x, weight):
    return weight * x / np.sqrt((x * x).mean() + 1e-5)


def turn(x, position, size):
    """Neighbouring numbers of every head are a pair, turned by an angle that falls along the head."""
    out = x.copy()
    for i in range(0, len(x), 2):
        angle = position / 10000.0 ** ((i % size) / size)
        a, b = x[i], x[i + 1]
        out[i], out[i + 1] = a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)
    return out


def run(weights, ids, heads, kv_heads):
    """The logits after each id, one position at a time with a cache of keys and values, as llama2.c computes them."""
    size = weights["wq"].shape[2] // heads
    layers = len(weights["wq"])
    keys, values, logits = [[] for _ in range(layers)], [[] for _ in range(layers)], []
    for position, id in enumerate(ids):
        x = weights["tok_embeddings"][id].copy()
        for layer in range(layers):
            w = {kind: weights[kind][layer] for kind in KINDS}
            h = rms(x, w["attention_norm"])
            q = turn(w["wq"] @ h, position, size)
            keys[layer].append(turn(w["wk"] @ h, position, size))
            values[layer].append(w["wv"] @ h)
            out = np.zeros_like(x)
            for head in range(heads):
                group = slice(head // (heads // kv_heads) * size, (head // (heads // kv_heads) + 1) * size)
                own = slice(head * size, (head + 1) * size)
                scores = np.array([q[own] @ key[group] for key in keys[layer]]) / np.sqrt(size)
                share = np.exp(scores - scores.max())
                share /= share.sum()
                out[own] = sum(part * value[group] for part, value in zip(share, values[layer], strict=True))
            x = x + w["wo"] @ out
            h = rms(x, w["ffn_norm"])
            gate = w["w1"] @ h
            x = x + w["w2"] @ (gate / (1 + np.exp(-gate)) * (w["w3"] @ h))
        logits.append(weights["output"] @ rms(x, weights["norm"]))
    return np.stack(logits)


@pytest.mark.parametrize("untied", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (3, 3), (6, 1)])
def test_transformers_computes_what_llama2c_computes(tmp_path, untied, heads, kv_heads):
    path = tmp_path / "model.bin"
    weights = write_model(path, heads=heads, kv_heads=kv_heads, untied=untied)
    fields, tensors = read_llama2c(path)
    config = transformers.LlamaConfig(**{name: value for name, value in fields.items() if name != "model_type"})
    model = transformers.LlamaForCausalLM(config).eval()
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert unexpected == [] and missing == ([] if untied else ["lm_head.weight"])
    model.tie_weights()
    ids = np.random.default_rng(1).integers(0, 31, 13)
    with torch.no_grad():
        theirs = model.double()(torch.tensor(ids[None])).logits[0].numpy()
    ours = run(weights, ids, heads, kv_heads)
    assert np.abs(theirs - ours).max() < 1e-5
    assert (theirs.argmax(-1) == ours.argmax(-1)).all()


def test_fields_and_tensors(tmp_path):
    weights = write_model(tmp_path / "model.bin")
    fields, tensors = read_llama2c(str(tmp_path / "model.bin"))
    assert (fields["hidden_size"], fields["intermediate_size"], fields["num_hidden_layers"]) == (24, 17, 3)
    assert (fields["num_attention_heads"], fields["num_key_value_heads"], fields["head_dim"]) == (4, 2, 6)
    assert (fields["vocab_size"], fields["max_position_embeddings"], fields["tie_word_embeddings"]) == (31, 13, True)
    assert len(tensors) == 2 + 3 * 9 and all(tensor.dtype == torch.float32 for tensor in tensors.values())
    down = tensors["model.layers.2.mlp.down_proj.weight"].numpy()
    assert (down == weights["w2"][2].astype("f4")).all()
    key = tensors["model.layers.1.self_attn.k_proj.weight"].numpy()
    rows = weights["wk"][1].astype("f4")[[0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]]
    assert (key == rows).all()


def message(call, *arguments):
    with pytest.raises(ValueError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_damaged_models_are_named(tmp_path):
    path = tmp_path / "model.bin"
    assert message(read_llama2c, path).startswith(f"no such file: {path}")
    write_model(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])
    assert f"has {len(whole) - 4} bytes, its header asks for {len(whole)}" in message(read_llama2c, path)
    path.write_bytes(whole + b"more")
    assert "its header asks for" in message(read_llama2c, path)
    path.write_bytes(struct.pack("<7i", 24, 17, 3, 5, 2, 31, 13) + whole[28:])
    assert "its sizes would be (24, 17, 3, 5, 2, 31, 13)" in message(read_llama2c, path)
    for head in (b"", b"short", struct.pack("<i", 0x616B3432) + whole[4:]):
        path.write_bytes(head)
        assert "export the model with --version 0" in message(read_llama2c, path)


# --- the vocabulary

TEXTS = [
    "Once upon a time there was a little cat named Tim.",
    " a  cat\nand\n\n  a hat ",
    "",
    " ",
    "éà 😀 ж",
    "the the thethethe <s> </s> <0x41> <unk>",
    "aaaaaaa ......",
]


@pytest.fixture(scope="module")
def trained():
    """A SentencePiece model of the kind that llama2.c's vocabularies come from."""
    sentencepiece = pytest.importorskip("sentencepiece")
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS[:2] * 9),
        model_writer=file,
        vocab_size=300,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        split_digits=True,
        minloglevel=2,
        num_threads=1,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())


def write_vocabulary(path, trained):
    entries = []
    for id in range(len(trained)):
        text = trained.id_to_piece(id).replace("▁", " ")
        text = f"\n{text}\n" if id in (1, 2) else text
        entries.append((trained.get_score(id), text.encode()))
    longest = max(len(text) for _, text in entries)
    body = b"".join(struct.pack("<fi", score, len(text)) + text for score, text in entries)
    path.write_bytes(struct.pack("<i", longest) + body)


def test_the_vocabulary_gives_the_ids_of_sentencepiece(tmp_path, trained):
    write_vocabulary(tmp_path / "tokenizer.bin", trained)
    tokenizer = read_llama2c_tokenizer(tmp_path / "tokenizer.bin", len(trained))
    assert (tokenizer.unk, tokenizer.bos, tokenizer.eos, len(tokenizer)) == (0, 1, 2, len(trained))
    for text in TEXTS:
        assert tokenizer.encode(text) == trained.encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert tokenizer.frame([text])[0].ids == [1, *trained.encode(text)]


def test_the_vocabulary_beside_a_model(tmp_path, trained):
    path = tmp_path / "model.bin"
    write_model(path, vocab=len(trained))
    assert message(load_llama2c_tokenizer, path).startswith(f"no tok{len(trained)}.bin or tokenizer.bin beside")
    write_vocabulary(tmp_path / f"tok{len(trained)}.bin", trained)
    assert load_llama2c_tokenizer(path).encode("a cat") == trained.encode("a cat")
    for wrong in (len(trained) - 1, len(trained) + 1):
        text = message(read_llama2c_tokenizer, tmp_path / f"tok{len(trained)}.bin", wrong)
        assert f"is not a llama2.c vocabulary of {wrong} entries" in text
    assert message(read_llama2c_tokenizer, tmp_path / "none.bin", 5).startswith("no such file")
