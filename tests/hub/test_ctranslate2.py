"""CTranslate2's Whisper directories: what its converter wrote is read, what is damaged is named."""

import struct

import pytest
import torch

from regard.hub import load_model
from regard.hub.ctranslate2 import read_ctranslate2
from regard.models import Whisper, WhisperConfig
from tests.hub import ct2_files

SIZES = dict(vocab_size=91, dim=24, heads=4, ffn_dim=37, depth=2, decoder_depth=3, mels=8, frames=30, max_len=31)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    made = Whisper(WhisperConfig(**SIZES)).eval()
    for name, parameter in made.named_parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
        if name.endswith("key_value.bias"):
            parameter.data[: SIZES["dim"]] = 0  # keys have none there
    return made


@torch.no_grad()
def logits(model):
    generator = torch.Generator().manual_seed(2)
    frames = torch.randn(2, 30, 8, generator=generator)
    return model(frames, None, torch.randint(91, (2, 7), generator=generator))


def test_a_converted_model_is_the_same(tmp_path, model):
    read = load_model(ct2_files.write(tmp_path, ct2_files.variables(model)))
    assert read.config.depth == 2 and read.config.decoder_depth == 3 and read.config.mels == 8
    assert torch.equal(logits(read), logits(model))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_halves(tmp_path, model, kind):
    halves = {name: tensor.to(kind) if tensor.dim() else tensor for name, tensor in ct2_files.variables(model).items()}
    read = load_model(ct2_files.write(tmp_path, halves))
    assert next(read.parameters()).dtype == torch.float32
    assert (logits(read) - logits(model)).abs().max() < (0.01 if kind == torch.float16 else 0.1)


def test_integers(tmp_path, model):
    found = ct2_files.variables(model)
    read = load_model(ct2_files.write(tmp_path, ct2_files.quantized(found)))
    difference = (read.embedding.weight - model.embedding.weight).abs().amax(1)
    assert (difference <= model.embedding.weight.abs().amax(1) / 254 * 1.001).all()
    assert (logits(read) - logits(model)).abs().max() < 0.2


def test_a_variable_under_many_names_is_kept_once(tmp_path, model):
    """Each name of a matrix of integers would take four times its bytes, and a name takes twenty."""
    found = ct2_files.quantized(ct2_files.variables(model))
    names = {f"more/x{i}/weight": "decoder/embeddings/weight" for i in range(50)}
    tensors = read_ctranslate2(ct2_files.write(tmp_path, found, aliases=names) / "model.bin").tensors
    kept = [tensors[f"model.more.x{i}.weight"] for i in range(50)]
    assert len({tensor.data_ptr() for tensor in kept}) == 1
    assert torch.equal(kept[0], tensors["model.decoder.embed_tokens.weight"])


def test_what_their_own_converter_writes(tmp_path, model):
    """Theirs and ours compute the same from the directory that their converter made."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    from regard.hub import export_model

    export_model(model, tmp_path / "hf", bos=3, eos=2, pad=2)
    transformers = pytest.importorskip("transformers")
    spec = ctranslate2.specs.WhisperSpec(2, 4, 3, 4)
    loader = ctranslate2.converters.transformers.WhisperLoader()
    theirs = transformers.WhisperForConditionalGeneration.from_pretrained(tmp_path / "hf")
    loader.set_encoder(spec.encoder, theirs.model.encoder)
    loader.set_decoder(spec.decoder, theirs.model.decoder)
    loader.set_linear(spec.decoder.projection, theirs.proj_out)
    spec.register_vocabulary([f"token{id}" for id in range(91)])
    spec.validate()
    spec.optimize(quantization=None)
    (tmp_path / "ct2").mkdir()
    spec.save(str(tmp_path / "ct2"))
    assert torch.equal(logits(load_model(tmp_path / "ct2")), logits(model))


def test_damaged_files_are_named(tmp_path, model):
    found = ct2_files.variables(model)
    whole = ct2_files.content(found)
    path = tmp_path / "model.bin"
    cases = [
        (whole[: len(whole) // 2], "is cut short"),
        (whole[:40], "is cut short"),
        (ct2_files.content(found, version=3), "has version 3 of its format, 6 is read"),
        (ct2_files.content(found, spec="TransformerSpec"), "holds a TransformerSpec, only a WhisperSpec"),
        (whole.replace(b"encoder/conv1/weight", b"encoder/convX/weight"), "is no Whisper: 'encoder/conv1/weight'"),
        (whole[:22] + struct.pack("<I", 2**31) + whole[26:], "would have 2,147,483,648 variables"),
        (ct2_files.content({"x": torch.zeros(2, 2)}).replace(struct.pack("<II", 2, 2), struct.pack("<II", 2, 3)),
         r"x of shape \[2, 3\] in 16 bytes"),
        (ct2_files.content(found | {"encoder/num_heads": torch.tensor(torch.inf)}), "is no Whisper: cannot convert"),
        (ct2_files.content(found | {"encoder/num_heads": torch.tensor(torch.nan)}), "is no Whisper: cannot convert"),
        (ct2_files.content(found | {"encoder": torch.zeros(2)}), "is no Whisper: not enough values"),
        (ct2_files.content(found | {"encoder/layer_0/ffn/linear_x/weight": torch.zeros(2)}), "is no Whisper: invalid"),
    ]  # fmt: skip
    for data, words in cases:
        path.write_bytes(data)
        with pytest.raises(ValueError, match=words) as error:
            load_model(tmp_path)
        assert "model.bin" in str(error.value) and "\n" not in str(error.value)
    fewer = {name: tensor for name, tensor in found.items() if "decoder/layer_1/ffn/linear_1" not in name}
    with pytest.raises(ValueError, match=r"no tensor 'model.decoder.layers.1.fc2.weight'"):
        load_model(ct2_files.write(tmp_path, fewer))


def test_scales_that_would_multiply_a_matrix_are_refused(tmp_path, model):
    """A row of 20,000 numbers divided by each of 20,000 scales: 100 kB would take 1.6 GB."""
    name = "encoder/layer_0/ffn/linear_0/weight"
    wide = {name: torch.ones(1, 20_000, dtype=torch.int8), f"{name}_scale": torch.ones(20_000)}
    found = {key: tensor for key, tensor in ct2_files.variables(model).items() if key not in wide}
    with pytest.raises(ValueError, match=f"model.bin is no Whisper: {name} has 1 rows and 20,000 scales"):
        read_ctranslate2(ct2_files.write(tmp_path, found | wide) / "model.bin")


def test_a_pickle_of_that_name_is_still_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "model.bin").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(ValueError, match=r"holds model.bin, a pickle"):
        load_model(tmp_path)
