"""Against Hugging Face's BERT, RoBERTa, DistilBERT and ALBERT, with every head; and the way back."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from regard.hub import export_model, load_model
from regard.models import Bert, BertConfig
from tests.parity.peers import (
    CLOSE,
    ENCODERS,
    EOS,
    PAD,
    VOCAB,
    batch,
    change_config,
    change_tensors,
    encoder,
    far,
    saved,
)

transformers = pytest.importorskip("transformers")

LABELS = ("no", "perhaps", "yes", "never", "always")
HEADS = {
    "none": "Model", "mask": "ForMaskedLM", "pretrain": "ForPreTraining", "classify": "ForSequenceClassification",
    "tag": "ForTokenClassification", "answer": "ForQuestionAnswering",
}  # fmt: skip
CASES = [(kind, task) for kind in ENCODERS for task in HEADS if task != "pretrain" or kind in ("bert", "albert")]


def labelled(kind, task, **changes):
    """Their model, with named labels where its task has some."""
    if task in ("classify", "tag"):
        changes |= dict(id2label=dict(enumerate(LABELS)), label2id={label: i for i, label in enumerate(LABELS)})
    return encoder(kind, HEADS[task], **changes)


def inputs(kind):
    ids, lengths, attention = batch()
    types = torch.randint(0, {"bert": 3, "albert": 2}.get(kind, 1), ids.shape)
    theirs = dict(input_ids=ids, attention_mask=attention)
    return (ids, lengths, types), theirs if kind == "distilbert" else theirs | dict(token_type_ids=types), attention


def check_task(task, ours, theirs, given, told, attention):
    """Hidden states, what the heads say, and the loss over the same targets."""
    ids = given[0]
    with torch.no_grad():
        x = ours.features(*given)
        body = getattr(theirs, theirs.base_model_prefix, theirs)
        assert far(x, body(**told).last_hidden_state, attention) <= CLOSE
        got = ours(*given)
        words = ids.masked_fill((attention == 0) | (torch.rand(ids.shape) < 0.5), -100)
        if task == "none":
            wanted = theirs(**told)
            if ours.pooler is not None:
                assert far(ours.pooler(x), wanted.pooler_output) <= CLOSE
        elif task == "mask":
            wanted = theirs(**told, labels=words)
            assert far(got, wanted.logits, attention) <= CLOSE
            assert F.cross_entropy(got.transpose(1, 2), words).item() == pytest.approx(wanted.loss.item(), abs=CLOSE)
        elif task == "pretrain":
            pairs = torch.randint(0, 2, (len(ids),))
            name = "next_sentence_label" if "Bert" == type(theirs).__name__[:4] else "sentence_order_label"
            wanted = theirs(**told, labels=words, **{name: pairs})
            order = wanted.seq_relationship_logits if hasattr(wanted, "seq_relationship_logits") else wanted.sop_logits
            assert far(got, wanted.prediction_logits, attention) <= CLOSE
            assert far(ours.follows(x), order) <= CLOSE
            loss = F.cross_entropy(got.transpose(1, 2), words) + F.cross_entropy(ours.follows(x), pairs)
            assert loss.item() == pytest.approx(wanted.loss.item(), abs=CLOSE)
        elif task == "classify":
            labels = torch.randint(0, len(LABELS), (len(ids),))
            wanted = theirs(**told, labels=labels)
            assert far(got, wanted.logits) <= CLOSE
            assert F.cross_entropy(got, labels).item() == pytest.approx(wanted.loss.item(), abs=CLOSE)
        elif task == "tag":
            labels = torch.randint(0, len(LABELS), ids.shape).masked_fill(attention == 0, -100)
            wanted = theirs(**told, labels=labels)
            assert far(got, wanted.logits, attention) <= CLOSE
            assert F.cross_entropy(got.transpose(1, 2), labels).item() == pytest.approx(wanted.loss.item(), abs=CLOSE)
        else:
            wanted = theirs(**told)
            assert far(got, torch.stack([wanted.start_logits, wanted.end_logits], -1), attention) <= CLOSE
            whole = attention.bool().all(1)  # their loss counts padding, too: only rows without any
            start, end = torch.randint(0, ids.shape[1], (2, int(whole.sum())))
            full = {name: tensor[whole] for name, tensor in told.items()}
            wanted = theirs(**full, start_positions=start, end_positions=end)
            loss = (F.cross_entropy(got[whole][..., 0], start) + F.cross_entropy(got[whole][..., 1], end)) / 2
            assert loss.item() == pytest.approx(wanted.loss.item(), abs=CLOSE)


@pytest.mark.parametrize("kind, task", CASES)
def test_hidden_states_heads_and_loss_there_and_back(tmp_path, kind, task):
    theirs = labelled(kind, task)
    ours = saved(theirs, tmp_path / "theirs")
    assert ours.config.task == task and ours.config.labels == (LABELS if task in ("classify", "tag") else ())
    given, told, attention = inputs(kind)
    check_task(task, ours, theirs, given, told, attention)

    export_model(ours, tmp_path / "ours", kind=kind, bos=0, eos=EOS, pad=PAD)
    assert sorted(path.name for path in (tmp_path / "ours").iterdir()) == ["config.json", "model.safetensors"]
    again, info = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    assert again.config.id2label == theirs.config.id2label and again.config.pad_token_id == PAD
    assert type(again) is type(theirs) and again.config.architectures == [type(theirs).__name__]
    check_task(task, ours, again.eval(), given, told, attention)
    assert load_model(tmp_path / "ours").config == ours.config


SIZES = dict(vocab_size=VOCAB, dim=20, depth=2, heads=5, ffn_dim=29, max_len=31)
OURS = {
    "bert": BertConfig(**SIZES, activation="gelu-tanh", types=3, norm_eps=1e-5),
    "roberta": BertConfig(**SIZES),
    "distilbert": BertConfig(**SIZES, types=0, activation="relu", pooler_activation="relu"),
    "albert": BertConfig(**SIZES, shared=True, embedding_dim=7, activation="silu"),
}
AUTO = {
    "none": "AutoModel", "mask": "AutoModelForMaskedLM", "pretrain": "AutoModelForPreTraining",
    "classify": "AutoModelForSequenceClassification", "tag": "AutoModelForTokenClassification",
    "answer": "AutoModelForQuestionAnswering",
}  # fmt: skip


@pytest.mark.parametrize("kind, task", CASES)
def test_a_model_from_here_opens_there(tmp_path, kind, task):
    pooled = task != "none" or kind != "distilbert"  # a pooler that the task does not use is not written
    config = replace(OURS[kind], task=task, labels=LABELS if task in ("classify", "tag") else (), pooler=pooled)
    ours = Bert(config).eval()
    export_model(ours, tmp_path, kind="roberta" if kind == "roberta" else None, pad=PAD)
    theirs, info = getattr(transformers, AUTO[task]).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    assert theirs.config.model_type == kind
    if config.labels:
        assert theirs.config.id2label == dict(enumerate(LABELS))
    given, told, attention = inputs(kind)
    check_task(task, ours, theirs.eval(), given, told, attention)


@pytest.mark.parametrize("kind", ["bert", "roberta", "albert"])
def test_without_a_pooler(tmp_path, kind):
    name, _ = ENCODERS[kind]
    config = encoder(kind).config
    theirs = getattr(transformers, f"{name}Model")(config, add_pooling_layer=False).eval()
    ours = saved(theirs, tmp_path)
    assert ours.pooler is None
    given, told, attention = inputs(kind)
    with torch.no_grad():
        assert far(ours.features(*given), theirs(**told).last_hidden_state, attention) <= CLOSE


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_body_saved_with_its_prefix(tmp_path, kind):
    """As where somebody cut off the head and left the names."""
    theirs = encoder(kind)
    ours = saved(theirs, tmp_path)
    change_tensors(tmp_path, lambda tensors: {f"{kind}.{name}": tensor for name, tensor in tensors.items()})
    again = load_model(tmp_path)
    assert again.config == ours.config
    assert all(torch.equal(one, two) for one, two in zip(again.parameters(), ours.parameters(), strict=True))


def test_the_first_bert(tmp_path):
    """Published with the norms' old names, copies, ids of positions, and more heads than `architectures` tells of."""
    theirs = encoder("bert", "ForPreTraining")
    ours = saved(theirs, tmp_path)

    def age(tensors):
        tensors = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
            for name, tensor in tensors.items()
        }
        tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
        tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")
        return tensors | {"bert.embeddings.position_ids": torch.arange(23)[None]}

    change_tensors(tmp_path, age)
    change_config(tmp_path, architectures=["BertForMaskedLM"])
    again = load_model(tmp_path)
    assert again.config == ours.config and again.config.task == "pretrain"
    assert all(torch.equal(one, two) for one, two in zip(again.parameters(), ours.parameters(), strict=True))


def test_a_copy_that_differs_is_no_copy(tmp_path):
    encoder("bert", "ForMaskedLM").save_pretrained(tmp_path)
    odd = {"cls.predictions.decoder.weight": torch.zeros(VOCAB, 21)}
    change_tensors(tmp_path, lambda tensors: tensors | odd)
    with pytest.raises(ValueError, match="cls.predictions.decoder.weight differs from bert.embeddings.word_emb"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    "kind, changes, fragment",
    [
        ("bert", dict(architectures=["BertForMultipleChoice"]), "architectures='BertForMultipleChoice'"),
        ("bert", dict(is_decoder=True), "is_decoder=True"),
        ("bert", dict(position_embedding_type="relative_key"), "position_embedding_type='relative_key'"),
        ("roberta", dict(pad_token_id=0), "pad_token_id=0"),
        ("roberta", dict(hidden_act="relu"), "hidden_act='relu'"),
        ("albert", dict(num_hidden_groups=2), "num_hidden_groups=2"),
        ("albert", dict(inner_group_num=2), "inner_group_num=2"),
        ("distilbert", dict(activation="tanh"), "activation='tanh'"),
    ],
)
def test_settings_that_cannot_be_read(tmp_path, kind, changes, fragment):
    encoder(kind).save_pretrained(tmp_path)
    change_config(tmp_path, **changes)
    with pytest.raises(ValueError, match=f"config.json: .*{fragment}"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    "kind, changes, fragment",
    [
        ("bert", dict(types=0), "types=0 would have to be 1 or more"),
        ("bert", dict(kernel="normalized", norm_place="pre"), "norm_place='pre' .*kernel='normalized'"),
        ("roberta", dict(), "task='pretrain' would have to be 'mask'"),
        ("distilbert", dict(task="none"), "types=2 would have to be 0.*pooler=True would have to be False"),
        ("albert", dict(), "shared=False would have to be True.*embedding_dim=None"),
    ],
)
def test_what_they_cannot_express(tmp_path, kind, changes, fragment):
    model = Bert(replace(BertConfig(**SIZES), **changes))
    with pytest.raises(ValueError, match=f"{kind} cannot express this model: .*{fragment}"):
        export_model(model, tmp_path, kind=kind, pad=PAD)


def test_roberta_counts_positions_from_its_padding(tmp_path):
    model = Bert(replace(OURS["roberta"], task="mask"))
    with pytest.raises(ValueError, match="roberta cannot express this model: pad=0 would have to be 1"):
        export_model(model, tmp_path, kind="roberta", pad=0)
    export_model(model, tmp_path, kind="roberta")
    assert transformers.AutoModelForMaskedLM.from_pretrained(tmp_path).config.pad_token_id == 1


@pytest.mark.parametrize("told, pooling", [({"pooling_mode_cls_token": True}, "first"), ({}, "mean")])
def test_how_a_text_becomes_one_vector(tmp_path, told, pooling):
    encoder("bert").save_pretrained(tmp_path)
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text("{}")
    change_config(tmp_path / "1_Pooling", **told)
    assert load_model(tmp_path).config.pooling == pooling
