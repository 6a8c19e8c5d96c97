"""BERT (Devlin et al., 2019) as Hugging Face stores it, with its heads; its relatives say only what differs."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import ACTIVATIONS, Field, Map, Pair, block, built_as, read_labels, write_labels
from regard.hub.sentence_transformers import POOLING

CLASSIFY, ANSWER = dict(task=("classify",)), dict(task=("answer",))
UNPOOLED = dict(task=("mask", "tag", "answer"))
"""Tasks whose classes have no pooler; old checkpoints may hold one all the same."""


def blocks(root: str) -> tuple[Pair, ...]:
    """Return the pairs of the blocks of BERT and RoBERTa."""
    return block(
        "encoder.blocks.{}.", root + ".encoder.layer.{}.", hidden="intermediate.dense output.dense",
        layers="attention.self.query attention.self.key attention.self.value attention.output.dense",
        norms="attention.output.LayerNorm output.LayerNorm",
    )  # fmt: skip


def embeddings(root: str, rows: str = "same") -> tuple[Pair, ...]:
    """Return the pairs of the embeddings; `rows` transforms the table of positions."""
    return (
        Pair("embedding.weight", root + ".embeddings.word_embeddings.weight"),
        Pair("embedding.types", root + ".embeddings.token_type_embeddings.weight"),
        Pair("embedding.norm.{}", root + ".embeddings.LayerNorm.{}"),
        Pair("encoder.position.table", root + ".embeddings.position_embeddings.weight", rows),
    )


def heads(dense: str, norm: str, bias: str) -> tuple[Pair, ...]:
    """Return the pairs of the heads, those for masked tokens from their names."""
    return (
        Pair("head.dense.{}", dense + ".{}"),
        Pair("head.norm.{}", norm + ".{}"),
        Pair("head.bias", bias),
        Pair("head.out.{}", "qa_outputs.{}", when=ANSWER),
        Pair("head.out.{}", "classifier.{}"),
    )


PAIRS = (
    *blocks("bert"),
    *embeddings("bert"),
    Pair("pooler.dense.{}", "bert.pooler.dense.{}", unwritten=UNPOOLED),
    Pair("pair_head.out.{}", "cls.seq_relationship.{}"),
    *heads("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"),
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
    embedding_dim=None, shared=False, embedding_norm=True, mask_id=None,
)  # fmt: skip

COMMON: dict[str, Any] = dict(
    family="bert", ignored=("*.position_ids",), beside=(POOLING,),
    only=dict(is_decoder=False, add_cross_attention=False, position_embedding_type="absolute"),
)  # fmt: skip

TASKS = {
    "none": "Model", "mask": "ForMaskedLM", "pretrain": "ForPreTraining", "classify": "ForSequenceClassification",
    "tag": "ForTokenClassification", "answer": "ForQuestionAnswering",
}  # fmt: skip


def read_task(theirs: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The task that the class `name…` in `architectures` has, its labels, and how a text becomes one vector."""
    known = {name + ending: task for task, ending in TASKS.items()}
    task = known[built_as(theirs, known)]
    first = theirs.get("pooling_mode_cls_token") or theirs.get("pooling_mode") == "cls"
    return {
        "task": task,
        "labels": read_labels(theirs) if task in ("classify", "tag") else (),
        "pooling": "first" if first else "mean",
    }


def write_task(ours: Any, name: str) -> dict[str, Any]:
    return write_labels(ours, name + TASKS[ours.task])


def has_pooler(task: str, tensors: Mapping[str, Tensor], name: str) -> bool:
    """Whether a checkpoint has a pooler; some have one that their task does not need, others lack one."""
    return task in ("pretrain", "classify") or name in tensors


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    fields = read_task(theirs, "Bert")
    if fields["task"] == "mask" and "cls.seq_relationship.weight" in tensors:
        fields["task"] = "pretrain"  # the first BERTs hold more than they say
    return fields | {"pooler": has_pooler(fields["task"], tensors, "bert.pooler.dense.weight")}


def unpooled(ours: Any) -> list[str]:
    """The misfit of a classifier, such as a linear probe, that reads the mean of its tokens' vectors."""
    return (
        ["pooler=False would have to be True (train with --data.probe 0)"]
        if ours.task == "classify" and not ours.pooler
        else []
    )


def check(ours: Any) -> list[str]:
    problems = [] if ours.types else ["types=0 would have to be 1 or more"]
    problems += unpooled(ours)
    if ours.pooler and ours.task not in UNPOOLED["task"] and ours.pooler_activation != "tanh":
        problems.append(f"pooler_activation={ours.pooler_activation!r} would have to be 'tanh'")
    return problems


BERT = Map(
    kind="bert", prefix="bert.", pairs=PAIRS, copies=COPIES, fields=FIELDS, fixed=FIXED,
    read=read, write=lambda ours: write_task(ours, "Bert"), check=check, **COMMON,
)  # fmt: skip
