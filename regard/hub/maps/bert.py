"""BERT (Devlin et al., 2019) as Hugging Face stores it, with its heads; its relatives say only what differs."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import ACTIVATIONS, Field, Map, Pair


def body(root: str, rows: str) -> tuple[Pair, ...]:
    """The pairs that BERT and RoBERTa share, under their prefix; `rows` transforms the table of positions."""
    ours, theirs, embeddings = "encoder.blocks.{}.", root + ".encoder.layer.{}.", root + ".embeddings."
    return (
        Pair(ours + "attention.query.{}", theirs + "attention.self.query.{}"),
        Pair(ours + "attention.key_value.{}",
             (theirs + "attention.self.key.{}", theirs + "attention.self.value.{}"), "stack"),
        Pair(ours + "attention.out.{}", theirs + "attention.output.dense.{}"),
        Pair(ours + "feedforward.up.{}", theirs + "intermediate.dense.{}"),
        Pair(ours + "feedforward.down.{}", theirs + "output.dense.{}"),
        Pair(ours + "norms.attention.{}", theirs + "attention.output.LayerNorm.{}"),
        Pair(ours + "norms.feedforward.{}", theirs + "output.LayerNorm.{}"),
        Pair("embedding.weight", embeddings + "word_embeddings.weight"),
        Pair("embedding.types", embeddings + "token_type_embeddings.weight"),
        Pair("embedding.norm.{}", embeddings + "LayerNorm.{}"),
        Pair("encoder.position.table", embeddings + "position_embeddings.weight", rows),
    )  # fmt: skip


CLASSIFY, ANSWER = dict(task=("classify",)), dict(task=("answer",))
UNPOOLED = dict(task=("mask", "tag", "answer"))
"""Tasks whose classes have no pooler; old checkpoints may hold one all the same."""

PAIRS = (
    *body("bert", "same"),
    Pair("pooler.dense.{}", "bert.pooler.dense.{}", when=UNPOOLED, written=False),
    Pair("pooler.dense.{}", "bert.pooler.dense.{}"),
    Pair("pair_head.out.{}", "cls.seq_relationship.{}"),
    Pair("head.dense.{}", "cls.predictions.transform.dense.{}"),
    Pair("head.norm.{}", "cls.predictions.transform.LayerNorm.{}"),
    Pair("head.bias", "cls.predictions.bias"),
    Pair("head.out.{}", "qa_outputs.{}", when=ANSWER),
    Pair("head.out.{}", "classifier.{}"),
)
COPIES = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}

FIELDS = {
    "dim": Field("hidden_size", 768),
    "heads": Field("num_attention_heads", 12),
    "depth": Field("num_hidden_layers", 12),
    "ffn_dim": Field("intermediate_size", 3072),
    "vocab_size": Field("vocab_size", 30522),
    "types": Field("type_vocab_size", 2),
    "max_len": Field("max_position_embeddings", 512),
    "activation": Field("hidden_act", "gelu", ACTIVATIONS),
    "dropout": Field("hidden_dropout_prob", 0.1),
    "attention_dropout": Field("attention_probs_dropout_prob", 0.1),
    "norm_eps": Field("layer_norm_eps", 1e-12),
}

FIXED: dict[str, Any] = dict(
    position="learned", norm="layer", norm_place="post", bias=True, kernel="full", kv_heads=None, head_dim=None,
    embedding_dim=None, shared=False,
)  # fmt: skip

COMMON: dict[str, Any] = dict(
    family="bert", ignored=("*.position_ids",), beside=("1_Pooling/config.json",),  # of sentence-transformers
    only=dict(is_decoder=False, add_cross_attention=False, position_embedding_type="absolute"),
)  # fmt: skip

TASKS = {
    "none": "Model", "mask": "ForMaskedLM", "pretrain": "ForPreTraining", "classify": "ForSequenceClassification",
    "tag": "ForTokenClassification", "answer": "ForQuestionAnswering",
}  # fmt: skip


def read_task(theirs: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The task that the class `name…` in `architectures` has, its labels, and how a text becomes one vector."""
    built = (theirs.get("architectures") or [f"{name}Model"])[0]
    known = {name + ending: task for task, ending in TASKS.items()}
    if built not in known:
        raise ValueError(f"architectures={built!r} is not known; known: {', '.join(known)}")
    id2label = theirs.get("id2label") or {i: f"LABEL_{i}" for i in range(theirs.get("num_labels", 2))}
    labels = tuple(label for _, label in sorted(id2label.items(), key=lambda item: int(item[0])))
    first = theirs.get("pooling_mode_cls_token") or theirs.get("pooling_mode") == "cls"
    return {
        "task": known[built],
        "labels": labels if known[built] in ("classify", "tag") else (),
        "pooling": "first" if first else "mean",
    }


def write_task(ours: Any, name: str) -> dict[str, Any]:
    numbered = dict(enumerate(ours.labels))
    labels = {"id2label": numbered, "label2id": {label: i for i, label in numbered.items()}} if numbered else {}
    return {"architectures": [name + TASKS[ours.task]], **labels}


def has_pooler(task: str, tensors: Mapping[str, Tensor], name: str) -> bool:
    """Whether a checkpoint has a pooler; some have one that their task does not need, others lack one."""
    return task in ("pretrain", "classify") or name in tensors


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    fields = read_task(theirs, "Bert")
    if fields["task"] == "mask" and "cls.seq_relationship.weight" in tensors:
        fields["task"] = "pretrain"  # the first BERTs hold more than they say
    return fields | {"pooler": has_pooler(fields["task"], tensors, "bert.pooler.dense.weight")}


def check(ours: Any) -> list[str]:
    problems = [] if ours.types else ["types=0 would have to be 1 or more"]
    if ours.pooler and ours.task not in UNPOOLED["task"] and ours.pooler_activation != "tanh":
        problems.append(f"pooler_activation={ours.pooler_activation!r} would have to be 'tanh'")
    return problems


BERT = Map(
    kind="bert", prefix="bert.", pairs=PAIRS, copies=COPIES, fields=FIELDS, fixed=FIXED,
    read=read, write=lambda ours: write_task(ours, "Bert"), check=check, **COMMON,
)  # fmt: skip
