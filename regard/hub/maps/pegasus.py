"""PEGASUS (Zhang et al., 2020) as Hugging Face stores it; also the layout of the translators that are trained here.

Unlike marian.py: norms first, and one more after each stack.
"""

from typing import Any

from regard.hub.mapping import Field, Map, Pair
from regard.hub.maps import marian

PAIRS = (*marian.PAIRS, Pair("{}.norm.{}", "model.{}.layer_norm.{}"))

FIELDS = marian.FIELDS | {"vocab_size": Field("vocab_size", 50265)}

FIXED = marian.FIXED | dict(norm_place="pre", final_norm=True)


def write(ours: Any) -> dict[str, Any]:
    return {"architectures": ["PegasusForConditionalGeneration"], **marian.write_stacks(ours)}


PEGASUS = Map(
    kind="pegasus", family="transformer", prefix="model.", pairs=PAIRS, copies=marian.COPIES,
    ignored=("*.embed_positions.weight",), fields=FIELDS, fixed=FIXED, read=marian.read, write=write,
    only=dict(tie_word_embeddings=True), reword=marian.reword,
)  # fmt: skip
