"""Speech recognition: a Conformer with CTC on spoken phrases, the embedded ones or yours.

regard train speech
    numbers, dates, times, money in English and German: 2,500 steps, 19 minutes of one core, about 10 of two; of 1,000
    phrases by voices that it never heard 4.8 % of the words are wrong, 2.7 % of the characters
regard train speech --model whisper --train.steps 2450
    an encoder–decoder with timestamps: about 19 minutes of one core; 13.5 % of the words of 256 of these are wrong
regard train speech --data.audio train.tsv --data.test test.tsv
    your own recordings: a table of path and text, Common Voice's or LibriSpeech's folder
regard train speech --model.decoder-depth 2
    a decoder beside CTC, for data on which CTC alone stays at blank
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from regard.config import override
from regard.data.notices import track
from regard.data.sets.spoken_windows import STEP, SpokenWindows
from regard.data.sets.transcribed_speech import SpeechConfig, Spoken, SpokenFrames, SpokenIds
from regard.hub.checkpoint import save_model
from regard.hub.feature_extractor import load_features
from regard.hub.remote import find
from regard.hub.transcription import MARKERS, save_transcription, spoken_tokens
from regard.models import build, preset
from regard.objectives.ctc import ctc, fewest_frames
from regard.objectives.next_token import next_token
from regard.registry import models, register_recipe
from regard.runs.fit import Job, get_tokenizer, prepare, special_ids, with_vocabulary
from regard.runs.recipe import Recipe, from_scratch
from regard.tokens import Tokenizer
from regard.tokens.mel import LogMel, Waveform
from regard.train.progress import Line

FRAMES, FRAME = 8000, 0.01
"""Frames of a batch, and the seconds of each."""
FEATURES: dict[str, Any] = dict(style="nemo", fft=512, preemphasis=0.97)
"""The settings of frames that each recording's own loudness and channel do not change."""
DECODER, WINDOW, HOP = "whisper", 500, 320
"""The family that writes by a decoder, the frames of its window, and samples from one frame to the next."""


@register_recipe("speech", verb="transcribe", bases=("transcribe-ctc",))
def speech(data: Mapping[str, Any], family: str = "conformer") -> Recipe:
    """Return the recipe of a small model: without dropout for the embedded speech, with dropout for recordings."""
    embedded = override(SpeechConfig(), data, under="data.").embedded
    dropout = 0.0 if embedded else 0.1
    train = from_scratch(steps=2500 if embedded else 10_000, batch_tokens=FRAMES, lr=2e-3, every=250)
    parts = SpeechConfig(kind="bpe", vocab_size=512)  # of words: German writes a number as one, however long
    if family == DECODER:
        sizes: dict[str, Any] = dict(dim=144, depth=4, decoder_depth=2, heads=4, ffn_dim=576, max_len=192)
        model = preset(family, "toy", **sizes, dropout=dropout, frames=WINDOW if embedded else 3 * WINDOW)
        train = replace(train, batch_tokens=FRAMES // 2, smoothing=0.1)  # of frames twice as long
        return Recipe(name="speech", family=family, model=model, data=parts, train=train)
    coarse: dict[str, Any] = dict(subsampling=8, channels=16) if embedded else {}
    model = preset("conformer", "tiny", dropout=dropout, **coarse)
    own = parts if embedded else SpeechConfig()
    return Recipe(name="speech", family="conformer", model=model, data=own, train=train)


@prepare.register
def prepare_speech(data: SpeechConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Recordings as frames and ids, in the way of the model's task."""
    way = for_decoder if models[recipe.family].task == "transcribe" else for_ctc
    return way(data, recipe, out, resume, line)


def for_ctc(data: SpeechConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Whole recordings and their tokens; those that CTC cannot spell are left out, each is named."""
    train, valid = data.split()
    tokenizer = get_tokenizer(data, lambda: (f" {each.text}" for each in train), out, resume)
    recipe = with_vocabulary(recipe, tokenizer, blank=special_ids(tokenizer, "pad")[0])
    features, config = audio_settings(data, recipe.model), recipe.model
    size = round(recipe.train.batch_tokens * FRAME / features.seconds(1))  # in samples, of a model that reads those
    with torch.device("meta"):
        vectors: Any = build(recipe.family, config).out_lengths

    def encode(part: Sequence[Spoken], name: str) -> list[SpokenIds]:
        ids = tokenizer.encode_batch([f" {each.text}" if each.text else "" for each in part])
        kept, short, long = [], [], []
        for each, tokens in track(list(zip(part, ids, strict=True)), f"{name} recordings:", len(part)):
            recording = each.open()
            frames = features.frames(recording.length_at(features.rate))
            if recording.seconds > data.longest:
                long.append(f"{each.place} ({recording.seconds:.0f} s)")
            elif (count := int(vectors(torch.tensor(frames)))) < (least := fewest_frames(tokens)):
                short.append(f"{each.place} ({count} vectors for {least} tokens)")
            else:
                kept.append(SpokenIds(each, tokens, frames))
        report(line, name, len(part), short, long, data.longest)
        return kept

    first, held = encode(train, "training"), encode(valid, "validation")
    check_some(first, held, "lower --model.subsampling, or cut the files")
    frames = SpokenFrames(features, data.noise, data.masks, recipe.train.seed)
    stream = frames.stream(first, size)
    seconds = features.seconds(sum(example.frames for example in first))
    return Job(
        recipe=recipe, readers={"text": tokenizer, "audio": features}, stream=stream,
        valid=lambda: stream.once(held), objective=ctc,
        about=f"{len(first):,} recordings, {seconds / 3600:.1f} hours",
    )  # fmt: skip


def audio_settings(data: SpeechConfig, config: Any) -> LogMel | Waveform:
    """The frames, or samples, that the base which the data name reads, or a new model."""
    if data.base is not None:
        return load_features(find(data.base), config)
    bands = getattr(config, "bands", None)
    return Waveform() if bands is None else LogMel(**FEATURES, bands=bands)


def for_decoder(data: SpeechConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Windows of recordings, and phrases between timestamps; recordings longer than a window need times of phrases."""
    train, valid = data.split()
    tokenizer = get_tokenizer(data, lambda: (), out, resume, learn=lambda _: timed_tokenizer(data, train))
    features = LogMel(style="whisper", hop=HOP, bands=recipe.model.mels, length=recipe.model.frames)
    longest = features.seconds(recipe.model.frames)
    if longest % 1:
        raise ValueError(
            f"--model.frames {recipe.model.frames} are {longest:g} seconds; use a multiple of {features.rate // HOP}"
        )
    recipe = with_vocabulary(recipe, tokenizer)
    size = len(tokenizer) + round(longest / STEP) + 1  # the timestamps stand behind what the tokenizer holds
    recipe = replace(recipe, model=replace(recipe.model, vocab_size=size))
    tokens = spoken_tokens(tokenizer, round(longest / STEP))

    def fitting(part: Sequence[Spoken], name: str) -> list[Spoken]:
        kept, long = [], []
        for each in track(part, f"{name} recordings:", len(part)):
            seconds = each.open().seconds
            if seconds > data.longest or (seconds > longest and not each.times):
                long.append(f"{each.place} ({seconds:.0f} s)")
            else:
                kept.append(each)
        report(line, name, len(part), [], long, min(longest, data.longest))
        return kept

    first, held = fitting(train, "training"), fitting(valid, "validation")
    check_some(first, held, "cut the files")
    windows = SpokenWindows(
        features=features, encode=tokenizer.encode_batch, start=tokens.start, end=tokens.end, first=len(tokenizer),
        noise=data.noise, masks=data.masks, seed=recipe.train.seed,
    )  # fmt: skip
    stream = windows.stream(first, recipe.train.batch_tokens)
    seconds = sum(each.open().seconds for each in first)

    def publish(model: Any, path: Path) -> None:
        save_model(model, path)
        save_transcription(path, tokens, recipe.model.max_len)

    return Job(
        recipe=recipe, readers={"text": tokenizer, "audio": features}, stream=stream,
        valid=lambda: stream.once(windows.windows(held)), objective=next_token, publish=publish,
        about=f"{len(first):,} recordings, {seconds / 3600:.1f} hours",
    )  # fmt: skip


def timed_tokenizer(data: SpeechConfig, recordings: Sequence[Spoken]) -> Tokenizer:
    """A tokenizer whose last tokens are those that an encoder–decoder of speech needs."""
    texts = (f" {each.text}" for each in recordings)
    tokenizer = Tokenizer.train(texts=texts, kind=data.kind, vocab_size=data.vocab_size, lowercase=data.lowercase)
    tokenizer.inner.add_special_tokens(list(MARKERS))
    return Tokenizer(tokenizer.inner, names=tokenizer.names)


def check_some(train: Sequence[Any], valid: Sequence[Any], cure: str) -> None:
    """Raise an error where nothing is left to train or to validate on."""
    if not train or not valid:
        raise ValueError(f"no recording is left to train or to validate on; {cure}")


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
