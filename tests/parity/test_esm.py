"""Against Hugging Face's ESM, for proteins and for DNA: logits with masks and padding, the way back, and tokens."""

from itertools import product

import pytest
import torch

import regard
from regard.hub import export_model, load_model
from regard.models import Bert, BertConfig
from regard.tokens import Tokenizer
from tests.parity.peers import CLOSE, PAD, VOCAB, batch, change_config, far, random_model, saved

transformers = pytest.importorskip("transformers")
SIZES = dict(
    vocab_size=VOCAB, pad_token_id=PAD, mask_token_id=32, hidden_size=24, num_attention_heads=3, num_hidden_layers=2,
    intermediate_size=37, max_position_embeddings=40, token_dropout=True, position_embedding_type="rotary",
    layer_norm_eps=1e-5,
)  # fmt: skip
PROTEIN = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO", ".", "-", "<null_1>", "<mask>"]
DNA = ["<unk>", "<pad>", "<mask>", "<cls>", "<eos>", "<bos>", *map("".join, product("ATCG", repeat=3)), *"ATCGN"]


def esm(head="ForMaskedLM", contacts=True, **changes):
    model = random_model(getattr(transformers, f"Esm{head}"), transformers.EsmConfig(**SIZES | changes))
    if not contacts:  # a head that is not read
        model.esm.contact_head = torch.nn.Identity()
    return model


@pytest.mark.parametrize(
    "changes",
    [
        {}, dict(token_dropout=False), dict(position_embedding_type="absolute", emb_layer_norm_before=True),
        dict(position_embedding_type="absolute", token_dropout=False, emb_layer_norm_before=False),
    ],
)  # fmt: skip
def test_logits_and_the_way_back(tmp_path, changes):
    theirs = esm(**changes)
    ours = saved(theirs, tmp_path / "theirs")
    ids, lengths, attention = batch()
    ids[0, 0] = ids[2, 3] = ids[2, 7] = 32  # masks, a different share in each row
    with torch.no_grad():
        wanted = theirs(input_ids=ids, attention_mask=attention).logits
        assert far(ours(ids, lengths), wanted, attention) <= CLOSE
    export_model(ours, tmp_path / "ours", pad=PAD)
    again = transformers.EsmForMaskedLM.from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        assert far(again(input_ids=ids, attention_mask=attention).logits, wanted, attention) <= 1e-6


@pytest.mark.parametrize(("head", "task"), [
    ("Model", "none"), ("ForSequenceClassification", "classify"), ("ForTokenClassification", "tag"),
])  # fmt: skip
def test_other_heads(tmp_path, head, task):
    theirs = esm(head, num_labels=4)
    ours = saved(theirs, tmp_path / "theirs")
    assert ours.config.task == task
    ids, lengths, attention = batch()
    with torch.no_grad():
        out = theirs(input_ids=ids, attention_mask=attention)
        wanted = out.last_hidden_state if task == "none" else out.logits
        got = ours(ids, lengths)
        assert far(got, wanted, attention if task != "classify" else None) <= CLOSE
    export_model(ours, tmp_path / "ours", pad=PAD)
    again = type(theirs).from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        out = again(input_ids=ids, attention_mask=attention)
        other = out.last_hidden_state if task == "none" else out.logits
        assert far(other, wanted, attention if task != "classify" else None) <= 1e-6


@pytest.mark.parametrize(("entries", "texts"), [
    (PROTEIN, ["MKTAYIAKQR", "MK TAY1 2LZ", "x", "M<mask>K"]), (DNA, ["ATTCCGATTNNACGTA", "AT", "ACGU ACG"]),
])  # fmt: skip
def test_tokens_are_theirs(tmp_path, entries, texts):
    (tmp_path / "vocab.txt").write_text("\n".join(entries))
    theirs = transformers.EsmTokenizer(tmp_path / "vocab.txt")
    esm(vocab_size=len(entries)).save_pretrained(tmp_path)
    ours = Tokenizer.load(tmp_path)
    for text, framed in zip(texts, ours.frame(texts, parse_special=True), strict=True):
        assert framed.ids == theirs(text)["input_ids"], text
    ours.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path).frame(texts[:1]) == ours.frame(texts[:1])


def test_masks_are_filled_and_sequences_embedded(tmp_path):
    theirs = esm(vocab_size=len(PROTEIN))
    theirs.save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(PROTEIN))
    task = regard.load(tmp_path)
    tokenizer = transformers.EsmTokenizer(tmp_path / "vocab.txt")
    inputs = tokenizer("MKT<mask>YIA", return_tensors="pt")
    with torch.no_grad():
        place = theirs(**inputs).logits[0, 4].softmax(-1)
    best = task.fill("MKT<mask>YIA")[0][0]
    assert best.probability == pytest.approx(float(place.max()), abs=1e-5)
    assert task.embed(["MKTAYIA", "MK"]).shape == (2, 24)


@pytest.mark.parametrize(("change", "error"), [
    (dict(is_folding_model=True), "is_folding_model=True cannot be read here"),
    (dict(position_embedding_type="relative_key"), "position_embedding_type='relative_key' is not known"),
    (dict(mask_token_id=None), "token_dropout=True needs mask_token_id"),
])  # fmt: skip
def test_what_differs_is_refused(tmp_path, change, error):
    saved(esm(), tmp_path)
    change_config(tmp_path, **change)
    with pytest.raises(ValueError, match=error):
        load_model(tmp_path)


def test_padding_and_only_masks_are_finite():
    config = BertConfig(**Bert.small | dict(vocab_size=40, mask_id=7, types=0, position="rotary", embedding_norm=False))
    model = Bert(config).eval()
    ids = torch.tensor([[7, 7, 7, 1], [5, 7, 6, 2]])
    short = model(ids[:1, :3], torch.tensor([3]))
    both = model(ids, torch.tensor([3, 4]))
    assert both.isfinite().all() and torch.allclose(both[0, :3], short[0], atol=1e-5)
