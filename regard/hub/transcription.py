"""The special tokens of Whisper and the rules of its transcripts: `generation_config.json` or CTranslate2's own."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.config import parse, read_json, reading
from regard.hub.files import CONFIG, GENERATION, write_json
from regard.tokens import Tokenizer

Ids = tuple[int, ...] | None
KINDS: dict[str, Any] = {
    "suppress_tokens": Ids, "begin_suppress_tokens": Ids, "suppress_ids": Ids, "suppress_ids_begin": Ids,
    "max_initial_timestamp_index": int | None, "no_timestamps_token_id": int | None,
    "is_multilingual": bool | None,
}  # fmt: skip
LATEST_START = 50
"""Transcripts begin within the first second of a window."""
STEP = 0.02
"""Seconds from one timestamp to the next."""
TASKS = ("transcribe", "translate")
ENGLISH = 51_864
"""The vocabulary of the models for English alone, which has the names of languages without a use for them."""


MARKERS = ("<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>")
"""The special tokens that a model of one language, or of one without a name, needs; timestamps follow the last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Transcription:
    """The special tokens of a Whisper model."""

    start: int
    end: int
    languages: dict[str, int] = field(default_factory=dict)
    """The token of each language, by its code; empty for a model of one language."""
    tasks: dict[str, int] = field(default_factory=dict)
    """The tokens of `transcribe` and `translate`."""
    previous: int | None = None
    """The token before the text of the window before."""
    no_speech: int | None = None
    no_timestamps: int | None = None
    first_time: int | None = None
    """The timestamp 0.00, which all others follow; None: the model writes none."""
    suppressed: tuple[int, ...] = ()
    suppressed_first: tuple[int, ...] = ()
    latest_start: int | None = LATEST_START

    def prompt(self, language: str | None, task: str) -> list[int]:
        """The tokens that a transcript begins with."""
        return [self.start, self.languages[language or "en"], self.tasks[task]] if self.languages else [self.start]


def spoken_tokens(tokenizer: Tokenizer, latest_start: int) -> Transcription:
    """The special tokens of a new model whose tokenizer ends in `MARKERS`; a transcript begins at most so many
    timestamps into a window."""
    ids = [id for name in MARKERS if (id := tokenizer.inner.token_to_id(name)) is not None]
    if len(ids) < len(MARKERS) or ids[-1] != len(tokenizer) - 1:
        raise ValueError(f"the tokenizer must end in {' '.join(MARKERS)}; leave out --data.tokenizer")
    return Transcription(
        start=ids[1], end=ids[0], no_timestamps=ids[2], first_time=len(tokenizer), suppressed=tuple(ids[1:]),
        latest_start=latest_start,
    )  # fmt: skip


def load_transcription(directory: str | Path, tokenizer: Tokenizer, vocab_size: int) -> Transcription:
    """The special tokens and rules of a directory: names are those of its vocabulary, numbers those of its configs."""
    directory, fields = Path(directory), dict[str, Any]()
    for path in (directory / CONFIG, directory / GENERATION):  # older checkpoints have them in the first
        if path.is_file():
            with reading(path, "correct it"):
                known = {name: value for name, value in read_json(path).items() if name in KINDS}
                fields |= {name: parse(value, KINDS[name], name) for name, value in known.items()}
    added = {token.content: id for id, token in tokenizer.inner.get_added_tokens_decoder().items()}
    named = {name[2:-2]: id for name, id in added.items() if name.startswith("<|") and name.endswith("|>")}
    names = {name: id for name, id in named.items() if id < vocab_size}
    start, end = names.get("startoftranscript", tokenizer.bos), names.get("endoftext", tokenizer.eos)
    if start is None or end is None:
        raise ValueError(
            f"{directory}: the vocabulary has no tokens for start and end; give the model's tokenizer.json"
        )
    codes = {name: id for name, id in names.items() if name.isalpha() and 2 <= len(name) <= 3}
    several = fields.get("is_multilingual", vocab_size != ENGLISH) and "transcribe" in names and codes
    last, latest = fields.get("no_timestamps_token_id"), fields.get("max_initial_timestamp_index")
    if not 0 <= (last or 0) < vocab_size or (latest or 0) < 0:
        numbers = f"no_timestamps_token_id={last} or max_initial_timestamp_index={latest}"
        raise ValueError(f"{directory}: {numbers} is outside of a vocabulary of {vocab_size:,}; correct it")
    last = last or names.get("notimestamps")
    time = last + 1 if last is not None and last + 1 < vocab_size else None

    def listed(*keys: str) -> set[int]:
        return {id for key in keys for id in fields.get(key) or () if 0 <= id < vocab_size}

    never = {id for name, id in names.items() if id != end and not is_time(name)}
    never |= listed("suppress_tokens", "suppress_ids")
    begin = listed("begin_suppress_tokens", "suppress_ids_begin")
    text = set(range(vocab_size if time is None else time)) - never
    if not text or (text <= begin if time is None else time in never | begin):
        raise ValueError(f"{directory}: so many tokens are suppressed that none is left to write; suppress fewer")
    return Transcription(
        start=start, end=end, languages=codes if several else {}, no_timestamps=last,
        tasks={name: names[name] for name in TASKS if name in names},
        previous=names.get("startofprev"), no_speech=names.get("nospeech", names.get("nocaptions")),
        first_time=time, suppressed=tuple(sorted(never)), suppressed_first=tuple(sorted(begin)),
        latest_start=latest or LATEST_START,
    )  # fmt: skip


def is_time(name: str) -> bool:
    """Whether the name of a special token is a time, as 12.34."""
    return name.replace(".", "", 1).isdigit()


def save_transcription(directory: str | Path, tokens: Transcription, max_len: int) -> None:
    """Write the special tokens and rules so that other projects read them."""
    fields: dict[str, Any] = {
        "bos_token_id": tokens.end, "eos_token_id": tokens.end, "pad_token_id": tokens.end,
        "decoder_start_token_id": tokens.start, "max_length": max_len, "is_multilingual": bool(tokens.languages),
        "suppress_tokens": list(tokens.suppressed), "begin_suppress_tokens": list(tokens.suppressed_first),
        "max_initial_timestamp_index": tokens.latest_start, "no_timestamps_token_id": tokens.no_timestamps,
        "prev_sot_token_id": tokens.previous, "return_timestamps": False,
    }  # fmt: skip
    if tokens.languages:
        fields["lang_to_id"] = {f"<|{code}|>": id for code, id in tokens.languages.items()}
        fields["task_to_id"] = dict(tokens.tasks)
    write_json(Path(directory) / GENERATION, {name: value for name, value in fields.items() if value is not None})
