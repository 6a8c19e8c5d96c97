"""BART (Lewis et al., 2020) as Hugging Face stores it.

Unlike marian.py: learned positions, which begin at row 2 of their table, and a norm on the embeddings.
"""

from typing import Any

from regard.hub.mapping import Field, Map, Pair
from regard.hub.maps import marian

PAIRS = (
    *marian.PAIRS,
    Pair("source_embedding.norm.{}", "model.encoder.layernorm_embedding.{}"),
    Pair("target_embedding.norm.{}", "model.decoder.layernorm_embedding.{}"),
    Pair("{}.position.table", "model.{}.embed_positions.weight", "behind-two"),
)

FIELDS = marian.FIELDS | {"vocab_size": Field("vocab_size", 50265)}

FIXED = marian.FIXED | dict(position="learned", embedding_norm=True)


def write(ours: Any) -> dict[str, Any]:
    return {"architectures": ["BartForConditionalGeneration"], **marian.write_stacks(ours)}


BART = Map(
    kind="bart", family="transformer", prefix="model.", pairs=PAIRS, copies=marian.COPIES,
    ignored=("*.version",), fields=FIELDS, fixed=FIXED, read=marian.read, write=write,
    only=dict(tie_word_embeddings=True),
)  # fmt: skip
