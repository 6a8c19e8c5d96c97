"""Sound models: a vector for each recording, and labels."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.data.generated.splits import hashed
from regard.data.notices import track
from regard.data.readers.audio_files import Recording
from regard.data.sets.batches import Batch
from regard.data.sets.labelled_sounds import Sound, SoundsConfig
from regard.files import same_file
from regard.hub.checkpoint import export_model
from regard.hub.feature_extractor import save_features
from regard.modalities.audio import AUDIO
from regard.models import parts
from regard.nn.grids import LayerGrids
from regard.tasks.base import EvalSet, Example, Samples, Scored, Task, Verb, Work, register_task
from regard.tasks.baselines import most_frequent
from regard.tasks.metrics import accuracy, label_scores, label_table
from regard.tasks.prepared import Outputs, Prepared, all_tokens, first_token
from regard.tasks.prepared_image import image_sequence
from regard.tasks.single import one_or_many
from regard.tasks.text_encoder import EMBED
from regard.tasks.text_heads import Label, best_label, labels_as_json, ranked, render_labels
from regard.tokens.mel import LogMel

AudioInput = str | Path | bytes | tuple | np.ndarray | Tensor | Recording
"""An audio file or its bytes, samples at 16 kHz, (samples, rate) at any other, or a recording."""
MOST = 32
"""Stretches of a recording that are computed together."""


@register_task("embed-sounds")
class SoundEncoder(Task):
    """A sound model: a vector for each recording, the mean over its stretches where it is long."""

    inputs: ClassVar[tuple[str, ...]] = ("audio",)
    verbs: ClassVar[tuple[Verb, ...]] = (EMBED,)
    data: ClassVar[tuple[type, ...]] = (SoundsConfig,)

    def __init__(self, model: Any, features: LogMel) -> None:
        self.model, self.features = model.eval(), features

    def stretches(self, recording: Recording) -> Iterator[np.ndarray]:
        """The samples of a recording in parts of the model's length; a short rest is left out."""
        rate, whole = self.features.rate, recording.length_at(self.features.rate)
        size = whole if self.features.length is None else self.features.length * self.features.hop
        for start in range(0, whole, size):
            if start == 0 or whole - start >= size // 2:
                yield recording.samples(rate, start, start + size)

    @torch.inference_mode()
    def outputs(self, function: Callable[[Tensor], Tensor], audio: Sequence[AudioInput]) -> list[Tensor]:
        """The mean result of `function` over the stretches of each recording."""
        results = []
        like = next(self.model.parameters())
        for item in track(audio, "recordings:", len(audio)):
            total, count, waiting = torch.zeros(()), 0, []
            for wave in self.stretches(AUDIO.read(item)):
                waiting.append(self.features(wave))
                if len(waiting) == MOST:
                    total, count, waiting = total + function(torch.stack(waiting).to(like)).sum(0), count + MOST, []
            if waiting:
                total, count = total + function(torch.stack(waiting).to(like)).sum(0), count + len(waiting)
            results.append(total.cpu() / count)
        return results

    @one_or_many
    def embed(self, audio: Sequence[AudioInput], *, normalize: bool = True) -> Float[Tensor, "N D"]:
        """A vector for each recording, of length 1 if `normalize`."""
        rows = self.outputs(self.model.embed, audio)
        vectors = torch.stack(rows) if rows else torch.empty(0, self.model.config.dim)
        return F.normalize(vectors, dim=-1) if normalize else vectors

    vectors = embed

    def read(self, *audio: Any, **options: Any) -> Prepared:
        """Prepare the first stretch of a recording; its spectrogram is the image."""
        if len(audio) != 1:
            raise ValueError(f"a {type(self.model).__name__} reads one recording at a time, got {len(audio)}")
        model, answers = self.model, self.output
        samples = next(self.stretches(AUDIO.read(audio[0])))
        frames = self.features(samples)
        picture = spectrogram_image(frames)
        patches, prefix = parts.patch_grid(model, picture.shape[:2]), parts.prefix_length(model)
        column = self.features.seconds(len(frames) / patches.grid[1])
        tokens = replace(image_sequence(picture.shape, patches, prefix), seconds=column)
        grids = LayerGrids(queries=patches, keys=patches, prefix=prefix)

        def run(inputs: dict[str, Tensor]) -> Tensor:
            rows = model.embed(**inputs) if answers == "vector" else model(**inputs)
            return rows.reshape(len(rows), 1, -1)

        def choose(prepared: Prepared) -> Outputs:
            column = 0 if answers == "vector" else int(prepared.logits()[0, 0].argmax())
            length = len(prepared.sequences[0])
            return Outputs([0], [column], first_token(length) if prefix else all_tokens(length))

        return Prepared(
            model=model, inputs={"audio": frames[None].to(next(model.parameters()))}, run=run, answers=answers,
            row_sequence=None, choose=choose, labels=list(getattr(model.config, "labels", ())), image=picture,
            original=audio[0], tower=model, sequences=[tokens], sound=AUDIO.send((samples, self.features.rate)),
            grids=dict.fromkeys(parts.attention_layers(model), grids),
            embed=lambda inputs: model.embed(**inputs), request={},
        )  # fmt: skip

    def export(self, out: Path) -> None:
        export_model(self.model, out)
        save_features(out, self.features)


def spectrogram_image(frames: Float[Tensor, "T M"]) -> np.ndarray:
    """Frames as bytes (bands, frames, 1), low bands at the bottom, loud ones bright."""
    low, high = frames.min(), frames.max()
    shades = (frames - low) / (high - low).clamp(min=1e-6) * 255
    return np.ascontiguousarray(shades.round().byte().mT.flip(0)[:, :, None].numpy())


@register_task("classify-sounds")
class SoundClassifier(SoundEncoder):
    """Labels recordings."""

    verbs: ClassVar[tuple[Verb, ...]] = (
        Verb(name="classify", does="labels sounds", as_json=labels_as_json, render=render_labels, columns=best_label),
        EMBED,
    )
    output = "labels"

    @one_or_many
    def classify(self, audio: Sequence[AudioInput]) -> list[list[Label]]:
        """All labels of each recording, the most probable first."""
        return [ranked(logits, self.model.config.labels) for logits in self.outputs(self.model, audio)]

    def validate(self, batches: Iterable[Batch]) -> dict[str, float]:
        return accuracy(self.model, batches)

    def test_sounds(self, test: EvalSet) -> list[Sound]:
        """The sounds of a test set: all of the named files, or those held out of the run's own data."""

        def read() -> list[Sound]:
            elsewhere = "audio" in test.named and not same_file(test.data.audio, test.own.audio)
            named = elsewhere and not test.named & {"valid", "test"}
            return test.data.read(test.data.audio) if named else test.data.held_out()

        return test.read("sounds", read)

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        whole = self.test_sounds(test)
        order = sorted(range(len(whole)), key=lambda index: hashed(f"scored {index}"))  # every n-th may be of one class
        sounds = [whole[index] for index in sorted(order[: test.limit or len(whole)])]
        labels = [best[0].label for best in self.classify([each.open() for each in sounds])]
        expected = [each.label for each in sounds]
        return Scored(
            scores=label_scores(labels, expected), outputs=labels, expected=expected, total=len(whole), unit="sounds",
            **label_table(labels, expected),
        )  # fmt: skip

    def baselines(self, test: EvalSet, scored: Scored) -> dict[str, dict[str, float]]:
        expected = list(scored.expected)
        return {"most frequent label": label_scores([most_frequent(expected)] * len(expected), expected)}

    def work(self, test: EvalSet) -> Work:
        recordings = [each.open() for each in self.test_sounds(test)[: test.limit]]
        return Work(run=lambda: self.classify(recordings), count=len(recordings), unit="sound")

    def samples(self, test: EvalSet, run: Path) -> Samples:
        sounds = self.test_sounds(test)[:5]
        recordings = [each.open() for each in sounds]
        best = [f"{row[0].label}  {row[0].probability:.0%}" for row in self.classify(recordings)]
        return Samples(
            rows=[(f"a recording of {each.label}", text) for each, text in zip(sounds, best, strict=True)],
            commands=[f"regard classify {run} recording.wav", f"regard eval {run}"],
            examples=[Example(inputs=(item,), label=each.label) for item, each in zip(recordings, sounds, strict=True)],
        )
