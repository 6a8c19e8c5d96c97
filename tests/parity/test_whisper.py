"""Against Hugging Face's Whisper: hidden states, logits, greedy tokens and beams, rules of timestamps, the way back."""

import json

import pytest
import torch

from regard.decode import Engine, beam_search, generate
from regard.decode.timestamps import TimestampRules
from regard.hub import export_model, load_model
from regard.models import Whisper, WhisperConfig
from tests.parity.peers import CLOSE, EOS, change_config, change_tensors, far, saved, whisper

transformers = pytest.importorskip("transformers")
START = EOS + 1

CASES = [
    {},
    dict(decoder_layers=1, activation_function="relu", num_mel_bins=5, d_model=24),
]


def sound(theirs, rows=3):
    config = theirs.config
    return torch.randn(rows, config.num_mel_bins, 2 * config.max_source_positions)


@pytest.mark.parametrize("changes", CASES)
def test_hidden_states_and_logits(tmp_path, changes):
    theirs = whisper(**changes)
    ours = saved(theirs, tmp_path)
    frames, ids = sound(theirs), torch.randint(3, 97, (3, 11))
    with torch.no_grad():
        wanted = theirs(input_features=frames, decoder_input_ids=ids, output_hidden_states=True)
        assert far(ours.encode(frames.mT)[0], wanted.encoder_last_hidden_state) <= CLOSE
        assert far(ours(frames.mT, None, ids), wanted.logits) <= CLOSE


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("fast", [None, False])
def test_tokens_are_identical(tmp_path, beams, fast):
    theirs = whisper().double()
    ours = saved(theirs.float(), tmp_path)
    frames, prefix = sound(theirs, 4), torch.full((4, 1), START)
    # Beneath the rules of their own `generate`, which other tests are about.
    plain = transformers.GenerationMixin.generate
    with torch.no_grad():
        wanted = plain(
            theirs, frames, decoder_input_ids=prefix, num_beams=beams, do_sample=False, max_new_tokens=20
        )[:, 1:].tolist()  # fmt: skip
    if beams == 1:
        got = [best.ids for best in generate(ours, prefix, eos=EOS, max_len=20, frames=frames.mT)]
    else:
        several = beam_search(ours, prefix, eos=EOS, max_len=20, beams=beams, frames=frames.mT)
        got = [best[0].ids for best in several]
    assert got == [ids[: ids.index(EOS)] if EOS in ids else ids for ids in wanted]
    assert Engine(ours, fast=fast).runner.paged


def test_pages_and_caches_agree(tmp_path):
    """The engine's pages, compiled or not, give what `prefill` and `step` do."""
    ours = saved(whisper(), tmp_path).double()
    frames, prefix = torch.randn(3, 30, 8).double(), torch.tensor([[START, 5], [START, 9], [START, 7]])
    cache = ours.new_cache(12)
    with torch.no_grad():
        logits, wanted = ours.prefill(prefix, cache, frames=frames), []
        for _ in range(9):
            wanted.append(logits.argmax(-1))
            logits = ours.step(wanted[-1], cache)
    got = [best.ids for best in generate(ours, prefix, eos=None, max_len=9, frames=frames)]
    assert got == torch.stack(wanted, dim=1).tolist()


@pytest.mark.parametrize("latest", [None, 4])
def test_rules_of_timestamps(latest):
    """Whatever was written, the same tokens stay possible as with their processor of logits."""
    first, end, vocab = 70, 60, 97
    config = transformers.GenerationConfig(
        no_timestamps_token_id=first - 1, eos_token_id=end, bos_token_id=end, max_initial_timestamp_index=latest
    )
    theirs = transformers.WhisperTimeStampLogitsProcessor(config, begin_index=2)
    rules = TimestampRules(first=first, end=end, suppressed=(first - 1,), latest_start=latest)
    generator = torch.Generator().manual_seed(1)
    seen = set()
    for trial in range(300):
        ids: list[int] = []
        scale = 1.0 + trial % 4
        for _ in range(12):
            logits = scale * torch.randn(vocab, generator=generator)
            wanted = theirs(torch.tensor([[1, 2, *ids]]), logits[None].clone())[0]
            got = logits.clone()
            rules(ids, got)
            assert torch.equal(got == -torch.inf, wanted == -torch.inf), ids
            if not (got > -torch.inf).any():
                break
            ids.append(int(got.argmax()))
            seen.add(ids[-1] >= first)
            if ids[-1] == end:
                break
    assert seen == {True, False}


def test_the_way_back(tmp_path):
    torch.manual_seed(5)
    sizes = dict(vocab_size=91, dim=24, heads=4, ffn_dim=37, depth=2, decoder_depth=3, mels=8, frames=30, max_len=31)
    ours = Whisper(WhisperConfig(**sizes)).eval()
    for parameter in ours.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    export_model(ours, tmp_path, bos=3, eos=2, pad=2)
    theirs = transformers.WhisperForConditionalGeneration.from_pretrained(tmp_path).eval()
    frames, ids = sound(theirs), torch.randint(3, 91, (3, 11))
    with torch.no_grad():
        wanted = theirs(input_features=frames, decoder_input_ids=ids).logits
        assert far(ours(frames.mT, None, ids), wanted) <= CLOSE
        assert far(load_model(tmp_path)(frames.mT, None, ids), wanted) <= CLOSE


def test_what_differs_is_refused(tmp_path):
    theirs = whisper()
    saved(theirs, tmp_path)
    for changes, words in [
        (dict(scale_embedding=True), "scale_embedding=True cannot be read here"),
        (dict(decoder_attention_heads=2), "encoder_attention_heads=4 and decoder_attention_heads=2 differ"),
        (dict(activation_function="mish"), "activation_function='mish' is not known"),
        (dict(encoder_layers=3), "no tensor 'model.encoder.layers.2"),
    ]:
        before = json.loads((tmp_path / "config.json").read_text())
        change_config(tmp_path, **changes)
        with pytest.raises(ValueError, match=words):
            load_model(tmp_path)
        (tmp_path / "config.json").write_text(json.dumps(before))
    change_tensors(tmp_path, lambda tensors: tensors | {"model.encoder.extra": torch.zeros(2)})
    with pytest.raises(ValueError, match=r"unexpected tensors: model\.encoder\.extra"):
        load_model(tmp_path)
