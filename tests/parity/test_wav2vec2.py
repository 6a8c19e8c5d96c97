"""Against Hugging Face's wav2vec 2.0 with CTC: logits with and without padding, letters, samples, and the way back."""

import json
import re

import numpy as np
import pytest
import torch

import regard
from regard.data.readers.audio_files import wav_bytes
from regard.hub import export_model, load_model
from regard.hub.feature_extractor import load_features, save_features
from regard.recipes import recipe
from regard.tokens.published import read_files
from tests.parity.peers import CLOSE, change_config, change_tensors, far, random_model, saved

transformers = pytest.importorskip("transformers")
LENGTHS = (830, 470, 642)
LETTERS = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ETAONIHS"]


def wav2vec2(**changes):
    sizes = dict(
        vocab_size=13, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37,
        conv_dim=(6, 8, 7), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 2), num_conv_pos_embeddings=6,
        num_conv_pos_embedding_groups=3,
    )  # fmt: skip
    return random_model(transformers.Wav2Vec2ForCTC, transformers.Wav2Vec2Config(**sizes | changes))


CASES = [
    {},
    dict(feat_extract_norm="layer", do_stable_layer_norm=True, conv_bias=True),
    dict(feat_extract_norm="layer", num_conv_pos_embeddings=5, num_conv_pos_embedding_groups=1, hidden_act="relu"),
]


@pytest.mark.parametrize("changes", CASES)
def test_logits_and_the_way_back(tmp_path, changes):
    theirs = wav2vec2(**changes)
    ours = saved(theirs, tmp_path / "theirs")
    audio, lengths = torch.randn(3, max(LENGTHS)), torch.tensor(LENGTHS)
    counts = theirs._get_feat_extract_output_lengths(lengths).tolist()
    assert ours.out_lengths(lengths).tolist() == counts
    with torch.no_grad():
        got = ours(audio, lengths)
        for row, (length, count) in enumerate(zip(LENGTHS, counts, strict=True)):  # their first norm reads padding
            assert far(got[row, :count], theirs(audio[row : row + 1, :length]).logits[0]) <= CLOSE
        if changes:
            mask = torch.arange(max(LENGTHS)) < lengths[:, None]
            together = theirs(audio * mask, attention_mask=mask).logits
            assert all((got[i, :n] - together[i, :n]).abs().max() <= CLOSE for i, n in enumerate(counts))
    export_model(ours, tmp_path / "ours")
    again = transformers.Wav2Vec2ForCTC.from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        assert far(again(audio).logits, theirs(audio).logits) <= CLOSE


def test_names_of_earlier_releases(tmp_path):
    theirs = wav2vec2()
    ours = saved(theirs, tmp_path)
    parts = {f"parametrizations.weight.original{i}": f"weight_{part}" for i, part in enumerate("gv")}

    def old(name):
        return next((name.replace(new, earlier) for new, earlier in parts.items() if new in name), name)

    change_tensors(tmp_path, lambda tensors: {old(name): tensor for name, tensor in tensors.items()})
    again = load_model(tmp_path)
    assert torch.equal(again.positions.conv.weight, ours.positions.conv.weight)


def test_what_differs_is_refused(tmp_path):
    saved(wav2vec2(), tmp_path)
    change_config(tmp_path, add_adapter=True)
    with pytest.raises(ValueError, match="add_adapter=True cannot be read here"):
        load_model(tmp_path)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A checkpoint as it is published: weights, a vocabulary of letters, and its feature extractor."""
    path = tmp_path_factory.mktemp("wav2vec2")
    theirs = wav2vec2(**CASES[1])
    theirs.save_pretrained(path)
    (path / "vocab.json").write_text(json.dumps({letter: id for id, letter in enumerate(LETTERS)}))
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "Wav2Vec2CTCTokenizer"}))
    transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True).save_pretrained(path)
    return path


def test_transcripts_are_theirs(directory, tmp_path):
    """Samples, greedy tokens and their text, by their own processor; then those of what is written back."""
    tokenizer = transformers.Wav2Vec2CTCTokenizer(str(directory / "vocab.json"))
    extractor = transformers.Wav2Vec2FeatureExtractor.from_pretrained(directory)
    theirs = transformers.Wav2Vec2ForCTC.from_pretrained(directory).eval()
    ours = regard.load(directory)
    rng = np.random.default_rng(3)
    waves = [rng.standard_normal(size).astype(np.float32) for size in (3000, 5200, 4100)]
    wanted = []
    for wave in waves:
        values = extractor(wave, sampling_rate=16_000, return_tensors="pt").input_values
        with torch.no_grad():
            text = tokenizer.batch_decode(theirs(values).logits.argmax(-1))[0]
        wanted.append(re.sub("<unk>|</?s>", "", text))  # told to leave them out, it forgets blanks, too
    got = [transcript.text for transcript in ours.transcribe(waves)]
    assert [text.split() for text in got] == [text.split() for text in wanted]
    assert len({*wanted}) == 3
    ours.export(tmp_path)
    assert [transcript.text for transcript in regard.load(tmp_path).transcribe(waves)] == got


@pytest.mark.parametrize("normalize", [True, False])
def test_samples_are_those_of_their_feature_extractor(tmp_path, normalize):
    theirs = transformers.Wav2Vec2FeatureExtractor(do_normalize=normalize)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_features(tmp_path / "theirs")
    samples = np.random.default_rng(0).standard_normal(4000).astype(np.float32) + 0.3
    wanted = theirs(samples, sampling_rate=16_000).input_values[0]
    assert np.abs(ours(samples).numpy() - wanted).max() <= 1e-5
    save_features(tmp_path, ours)
    assert load_features(tmp_path) == ours


@pytest.mark.parametrize("letters, wanted", [("ABN", "NAB|A"), ("abn", "nab|a"), ("ABNabn", "Nab|a")])
def test_texts_get_the_case_of_the_letters(tmp_path, letters, wanted):
    """Special tokens in brackets are no capital letters; where there are both cases, texts stay as they are."""
    names = ["[PAD]", "[UNK]", "|", *letters]
    (tmp_path / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "wav2vec2"}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "Wav2Vec2CTCTokenizer", "unk_token": "[UNK]", "pad_token": "[PAD]"}))  # fmt: skip
    ids = read_files(tmp_path)[0].encode("Nab a").ids
    assert [names[id] for id in ids] == list(wanted)


def test_a_checkpoint_is_fine_tuned(directory, tmp_path):
    """Its samples and letters stay as they are; texts are written in the case that the letters have."""
    rng, rows = np.random.default_rng(5), ["path\ttext"]
    for index in range(6):
        (tmp_path / f"{index}.wav").write_bytes(wav_bytes(rng.normal(size=2000) / 10, 16_000))
        rows.append(f"{index}.wav\tno shoe")
    (tmp_path / "train.tsv").write_text("\n".join(rows) + "\n")
    plan = recipe("speech", {"data.base": str(directory), "data.audio": str(tmp_path / "train.tsv"), "train.steps": 2})
    regard.fit(plan, tmp_path / "run", quiet=True)
    tuned, before = regard.load(tmp_path / "run"), regard.load(directory)
    assert tuned.features == before.features and tuned.model.config == before.model.config
    ids = tuned.tokenizer.encode("no shoe")
    assert [LETTERS[id] for id in ids] == ["N", "O", "|", "S", "H", "O", "E"]
    assert not torch.equal(tuned.model.head.weight, before.model.head.weight)
