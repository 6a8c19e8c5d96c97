"""Speech recognition: a Conformer with CTC on spoken phrases, the embedded ones or yours.

regard train speech
regard train speech --data.audio train.tsv --data.test test.tsv
    your own recordings: a table of path and text, Common Voice's or LibriSpeech's folder
regard train speech --model.decoder-depth 2
    a decoder beside CTC, for data on which CTC alone stays at blank
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.config import override
from regard.data.notices import track
from regard.data.sets.transcribed_speech import SpeechConfig, Spoken, SpokenFrames, SpokenIds
from regard.models import preset
from regard.objectives.ctc import ctc, fewest_frames
from regard.registry import register_recipe
from regard.runs.fit import Job, get_tokenizer, prepare, special_ids, with_vocabulary
from regard.runs.recipe import Recipe, from_scratch
from regard.tokens.mel import LogMel
from regard.train.progress import Line

FRAMES = 8000
"""Frames of a batch, of ten milliseconds each."""
FEATURES: dict[str, Any] = dict(style="nemo", fft=512, preemphasis=0.97)
"""The settings of frames that each recording's own loudness and channel do not change."""


@register_recipe("speech", verb="transcribe", bases=("transcribe-ctc",))
def speech(data: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a small Conformer: without dropout for the embedded speech, with dropout for recordings."""
    if not override(SpeechConfig(), data, under="data.").embedded:
        train = from_scratch(steps=10_000, batch_tokens=FRAMES, lr=2e-3, every=250)
        return Recipe(
            name="speech", family="conformer", model=preset("conformer", "tiny"), data=SpeechConfig(), train=train
        )
    return Recipe(  # parts of words, for German writes numbers as one word
        name="speech",
        family="conformer",
        model=preset("conformer", "tiny", dropout=0.0, subsampling=8, channels=16),
        data=SpeechConfig(kind="bpe", vocab_size=512),
        train=from_scratch(steps=2500, batch_tokens=FRAMES, lr=2e-3, every=250),
    )


@prepare.register
def prepare_speech(data: SpeechConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Recordings as frames and ids; those that CTC cannot spell are left out, each is named."""
    train, valid = data.split()
    tokenizer = get_tokenizer(data, lambda: (each.text for each in train), out, resume)
    recipe = with_vocabulary(recipe, tokenizer, blank=special_ids(tokenizer, "pad")[0])
    features = LogMel(**FEATURES, bands=recipe.model.bands)
    config = recipe.model

    def encode(part: Sequence[Spoken], name: str) -> list[SpokenIds]:
        ids = tokenizer.encode_batch([each.text for each in part])
        kept, short, long = [], [], []
        for each, tokens in track(list(zip(part, ids, strict=True)), f"{name} recordings:", len(part)):
            recording = each.open()
            frames = features.frames(recording.length_at(features.rate))
            if recording.seconds > data.longest:
                long.append(f"{each.place} ({recording.seconds:.0f} s)")
            elif (vectors := -(-frames // config.subsampling)) < (least := fewest_frames(tokens)):
                short.append(f"{each.place} ({vectors} vectors for {least} tokens)")
            else:
                kept.append(SpokenIds(each, tokens, frames))
        report(line, name, len(part), short, long, data.longest)
        return kept

    first, held = encode(train, "training"), encode(valid, "validation")
    if not first or not held:
        raise ValueError("no recording is left to train or to validate on; lower --model.subsampling, or cut the files")
    frames = SpokenFrames(features, data.noise, data.masks, recipe.train.seed)
    stream = frames.stream(first, recipe.train.batch_tokens)
    seconds = sum(example.frames for example in first) * features.hop / features.rate
    return Job(
        recipe=recipe, readers={"text": tokenizer, "audio": features}, stream=stream,
        valid=lambda: stream.once(held), objective=ctc,
        about=f"{len(first):,} recordings, {seconds / 3600:.1f} hours",
    )  # fmt: skip


def report(line: Line, part: str, count: int, short: Sequence[str], long: Sequence[str], longest: float) -> None:
    """Say which recordings are left out: CTC cannot spell them, or they are too long."""
    if short:
        line.say(
            f"left out {len(short):,} of {count:,} {part} recordings with fewer vectors than tokens, whose CTC loss "
            f"would be infinite: {short[0]}{', …' * (len(short) > 1)};"
            " is the transcript theirs? --model.subsampling 2 helps"
        )
    if long:
        line.say(
            f"left out {len(long):,} of {count:,} {part} recordings longer than {longest:g} seconds: {long[0]}"
            f"{', …' * (len(long) > 1)}; cut them, or raise --data.longest"
        )
