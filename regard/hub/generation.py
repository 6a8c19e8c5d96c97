"""The decoding defaults of a model: `generation_config.json`, in the Hugging Face layout."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.config import MOST_SIZE, check_sizes, parse, read_json, reading
from regard.hub.files import CONFIG, GENERATION, write_json

LENGTHS = ("max_len", "max_position_embeddings", "n_positions")
"""Names of the field for the longest sequence, in our configs and in theirs."""

Id, Ids = int | None, int | tuple[int, ...] | None
KINDS: dict[str, Any] = {
    "bos_token_id": Id, "eos_token_id": Ids, "pad_token_id": Id, "decoder_start_token_id": Id,
    "forced_bos_token_id": Id, "forced_eos_token_id": Ids, "bad_words_ids": tuple[tuple[int, ...], ...] | None,
    "num_beams": Id, "length_penalty": float | None, "max_length": Id, "prompt_end": str | None,
    "is_encoder_decoder": bool | None, **dict.fromkeys((*LENGTHS, "vocab_size"), Id),
}  # fmt: skip
"""The types of the fields that are read."""
MOST_BEAMS = 1024


def save_generation(
    directory: str | Path,
    *,
    bos: int | None,
    eos: int | None,
    pad: int | None,
    forbidden: Sequence[int] | None = None,
    beams: int = 4,
    length_penalty: float = 1.0,
    max_len: int = 512,
    force_end: bool = True,
    prompt_end: str = "",
    forced_bos: int | None = None,
) -> dict[str, Any]:
    """Write the defaults for decoding, and return them; None is for tokens that the model does not have.

    A decoder begins with `bos`. `forbidden` None is the padding token alone. `prompt_end` stands between a prompt
    and its answer. `forced_bos` is written first in any case.
    """
    banned = [token for token in ([pad] if forbidden is None else forbidden) if token is not None]
    content = {
        "bos_token_id": bos,
        "eos_token_id": eos,
        "pad_token_id": pad,
        "decoder_start_token_id": bos,
        "forced_eos_token_id": eos if force_end else None,
        "bad_words_ids": [[token] for token in banned] or None,
        "num_beams": beams,
        "length_penalty": length_penalty,
        "max_length": max_len + 1,  # they count the token of the start
    } | ({"prompt_end": prompt_end} if prompt_end else {})
    content |= {} if forced_bos is None else {"forced_bos_token_id": forced_bos}
    write_json(Path(directory) / GENERATION, content)
    return content


def load_generation(directory: str | Path) -> dict[str, Any]:
    """The decoding defaults of a directory: the ids `bos`, `eos`, `pad` and `decoder_start` (None where it has none),
    all `ends` of a text, `forbidden` tokens, `num_beams`, `length_penalty`, `force_end`, and `max_length`, which counts
    the start too: `generate` takes `decoder_start` as the prefix, and `max_len=max_length - 1`. `forced_bos` is a token
    that some (BART) write first in any case: a second one of the prefix. `prompt_end` is put behind a prompt."""
    fields = _read(Path(directory) / CONFIG)
    longest = next((fields[name] for name in LENGTHS if fields.get(name)), 512)
    path = Path(directory) / GENERATION
    fields |= {name: value for name, value in _read(path).items() if value is not None} if path.exists() else {}
    banned, size = fields.get("bad_words_ids") or (), fields.get("vocab_size") or float("inf")
    if any(len(word) != 1 for word in banned):
        raise ValueError(f"{path}: bad_words_ids has a word of several tokens; only single tokens can be forbidden")
    names = ["decoder_start", "bos", *(["pad"] if fields.get("is_encoder_decoder") else [])]  # T5 says no more
    eos = fields.get("eos_token_id")
    ends = [] if eos is None else list(eos) if isinstance(eos, tuple) else [eos]
    starts = (fields.get(f"{name}_token_id") for name in names)
    start, forced = next((start for start in starts if start is not None), None), fields.get("forced_bos_token_id")
    for name, id in (("the first token of an answer", start), ("forced_bos_token_id", forced)):
        if fields.get("is_encoder_decoder") and id is not None and not 0 <= id < size:
            raise ValueError(f"{path.parent}: {name}, {id}, is not in the vocabulary of {size:,}; correct {path.name}")
    if start is not None and not 0 <= start < size:  # GPT-2's default, beside a smaller vocabulary: never used
        start = None
    return {
        "bos": fields.get("bos_token_id"),
        "eos": next(iter(ends), None),
        "ends": ends,
        "pad": fields.get("pad_token_id"),
        "decoder_start": start,
        "forced_bos": forced,
        "forbidden": [word[0] for word in banned if 0 <= word[0] < size],
        "num_beams": fields.get("num_beams") or 1,
        "length_penalty": 1.0 if fields.get("length_penalty") is None else fields["length_penalty"],
        "force_end": fields.get("forced_eos_token_id") is not None,
        "max_length": fields.get("max_length") or longest,
        "prompt_end": fields.get("prompt_end") or "",
    }


def _read(path: Path) -> dict[str, Any]:
    """The fields of a file that are about decoding, each of its type and within bounds."""
    with reading(path, "correct it"):
        fields = {name: parse(value, KINDS[name], name) for name, value in read_json(path).items() if name in KINDS}
        if (fields.get("max_length") or 0) > MOST_SIZE:  # "no limit"
            fields.pop("max_length")
        check_sizes(fields)
        for name, most in (("num_beams", MOST_BEAMS), ("max_length", None)):
            value = fields.get(name)
            if value is not None and (value < 0 or most is not None and value > most):
                raise ValueError(f"{name}={value} is no number of them; use 1 to {most or 'the context'}")
    return fields
