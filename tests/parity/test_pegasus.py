"""Against Hugging Face's PEGASUS, the layout of the translators that are trained here: the same logits both ways."""

import pytest
import torch

from regard.data.sets.text_pairs import PairsConfig
from regard.hub import export_model, load_model
from regard.models import Transformer, TransformerConfig
from regard.recipes import fit, recipe
from regard.tasks import load
from tests.cli.calling import call
from tests.parity.test_marian import VOCAB, marian, perturbed, sources

transformers = pytest.importorskip("transformers")


def reference(**changes):
    torch.manual_seed(3)
    config = transformers.PegasusConfig(
        **{k: v for k, v in marian().to_diff_dict().items() if k != "model_type"} | changes
    )
    return perturbed(transformers.PegasusForConditionalGeneration(config).eval())


def logits(theirs, ours):
    source, lengths, attention = sources(7)
    target = torch.randint(0, VOCAB, (7, 11), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = theirs(input_ids=source, attention_mask=attention, decoder_input_ids=target).logits
        return ours(source, lengths, target), wanted


@pytest.mark.parametrize("scaled", [True, False])
def test_logits(tmp_path, scaled):
    theirs = reference(scale_embedding=scaled)
    theirs.save_pretrained(tmp_path)
    got, wanted = logits(theirs, load_model(tmp_path))
    assert wanted.std() > 0.5 and (got - wanted).abs().max() <= 1e-5


@pytest.mark.parametrize("place", ["pre", "post"])
@pytest.mark.parametrize("position", ["sinusoidal", "sinusoidal-halves"])
def test_the_way_back_whatever_the_order_of_the_waves(tmp_path, place, position):
    """Interleaved sinusoids are the same model with the channels of the residual stream in another order."""
    torch.manual_seed(0)
    sizes = dict(dim=24, depth=2, decoder_depth=1, heads=3, ffn_dim=40, vocab_size=VOCAB, max_len=64)
    ours = Transformer(TransformerConfig(**sizes, norm_place=place, position=position, head_bias=True)).eval()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    export_model(ours, tmp_path, bos=1, eos=2, pad=0)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert theirs.config.model_type == {"pre": "pegasus", "post": "marian"}[place]
    got, wanted = logits(theirs, ours)
    assert wanted.std() > 0.5 and (got - wanted).abs().max() <= 2e-5


@pytest.mark.parametrize("own", [True])
def test_what_the_recipe_trains_is_converted_and_translates_alike(own, tmp_path):
    fields = {"train.steps": 3, "train.batch_tokens": 256, "train.warmup": 2, "model.dim": 16, "model.heads": 2}
    fields |= {"model.depth": 1, "model.ffn_dim": 24, "data.epoch_size": 50}
    if own:
        pairs = [f"{phrase}\t{answer}\n" for phrase, answer in PairsConfig().generated("train", 200)]
        (tmp_path / "pairs.tsv").write_text("".join(pairs), encoding="utf-8")
        fields |= {"data.pairs": str(tmp_path / "pairs.tsv"), "data.vocab_size": 300}
        fields.pop("data.epoch_size")
    run, out = tmp_path / "run", tmp_path / "theirs"
    fit(recipe("translate", fields), run, quiet=True)
    call("convert", run, out)
    ours, theirs = load(run), transformers.AutoModelForSeq2SeqLM.from_pretrained(out).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    source = tokenizer("two cats", return_tensors="pt").input_ids
    assert source[0].tolist() == ours.encode(["two cats"], 99)[0]
    target = torch.tensor([[ours.generation["decoder_start"], 5, 6]])
    with torch.no_grad():
        wanted = theirs(input_ids=source, decoder_input_ids=target).logits
        got = ours.model(source, torch.tensor([source.shape[1]]), target)
    assert (got - wanted).abs().max() <= 1e-4
    again = load(out)
    assert again.translate(["two cats"])[0][0].ids == ours.translate(["two cats"])[0][0].ids
