"""Video models: a vector for each clip, and labels."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.data.notices import track
from regard.data.readers.clip_preprocessing import ClipPreprocessing
from regard.data.readers.clips import Clip
from regard.data.sets.batches import Batch
from regard.data.sets.labelled_clips import ClipsConfig, LabelledClip
from regard.files import same_file
from regard.hub.checkpoint import export_model
from regard.hub.clip_preprocessor import save_clip_preprocessing
from regard.modalities.video import VIDEO
from regard.tasks.base import EvalSet, Example, Samples, Scored, Task, Verb, Work, register_task
from regard.tasks.baselines import labels_by_pixels, most_frequent
from regard.tasks.metrics import accuracy, label_scores, label_table
from regard.tasks.prepared_video import read_clip
from regard.tasks.single import one_or_many
from regard.tasks.text_encoder import EMBED
from regard.tasks.text_heads import Label, best_label, labels_as_json, ranked, render_labels

ClipInput = str | Path | bytes | np.ndarray | Tensor | list | Clip
"""A video file or its bytes, a folder of frames, frames as bytes or as Pillow's images, or a clip."""
BATCH = 16
"""Clips that are computed together."""
EMBED_VIDEOS = replace(EMBED, ability="videos")
KNOWN = 2000
"""Training clips that the baseline of single frames learns from."""


@register_task("embed-videos")
class VideoEncoder(Task):
    """A video model: a vector for each clip."""

    inputs: ClassVar[tuple[str, ...]] = ("video",)
    axes: ClassVar[int] = 4
    """Axes of an array that is one clip."""
    verbs: ClassVar[tuple[Verb, ...]] = (EMBED_VIDEOS,)
    data: ClassVar[tuple[type, ...]] = (ClipsConfig,)

    def __init__(self, model: Any, preprocessing: ClipPreprocessing) -> None:
        self.model, self.preprocessing = model.eval(), preprocessing

    def facts(self) -> dict[str, str]:
        facts = super().facts()
        facts.pop("context", None)  # the clip decides on the number of tokens
        return facts | {"frames": str(self.preprocessing.frames)}

    def tensors(self, frames: Sequence[np.ndarray]) -> dict[str, Tensor]:
        """Clips as bytes (frames, rows, columns, channels) as inputs of the model."""
        lengths = [len(each) for each in frames]
        video = np.zeros((len(frames), max(lengths), *frames[0].shape[1:]), dtype=np.uint8)
        for row, each in zip(video, frames, strict=True):
            row[: len(each)] = each
        like = next(self.model.parameters())
        inputs = {"video": torch.from_numpy(self.preprocessing.numbers(video)).to(like)}
        if min(lengths) < self.preprocessing.frames:
            inputs["lengths"] = torch.tensor(lengths, device=like.device)
        return inputs

    @torch.inference_mode()
    def outputs(self, function: Callable[..., Tensor], clips: Sequence[Callable[[], np.ndarray]]) -> list[Tensor]:
        """The result of `function` for each clip, from functions that return its frames as bytes."""
        results: list[Tensor] = []
        groups = [clips[first : first + BATCH] for first in range(0, len(clips), BATCH)]
        for group in track(groups, "clips:", len(clips), len):
            results += function(**self.tensors([read() for read in group])).float().cpu()
        return results

    def readers(self, videos: Sequence[ClipInput]) -> list[Callable[[], np.ndarray]]:
        """Functions that return the frames of clips, so that only those of a batch are in memory."""
        return [lambda item=item: self.preprocessing.fit(VIDEO.read(item)) for item in videos]  # type: ignore[misc]

    @one_or_many
    def embed(self, videos: Sequence[ClipInput], *, normalize: bool = True) -> Float[Tensor, "N D"]:
        """A vector for each clip, of length 1 if `normalize`."""
        rows = self.outputs(self.model.embed, self.readers(videos))
        vectors = torch.stack(rows) if rows else torch.empty(0, self.model.config.dim)
        return F.normalize(vectors, dim=-1) if normalize else vectors

    vectors = embed
    read = read_clip

    def export(self, out: Path) -> None:
        export_model(self.model, out)
        save_clip_preprocessing(out, self.preprocessing)


@register_task("classify-videos")
class VideoClassifier(VideoEncoder):
    """Labels clips."""

    verbs: ClassVar[tuple[Verb, ...]] = (
        Verb(
            name="classify", does="labels clips", ability="videos", as_json=labels_as_json, render=render_labels,
            columns=best_label,
        ),
        EMBED_VIDEOS,
    )  # fmt: skip
    output = "labels"

    @one_or_many
    def classify(self, videos: Sequence[ClipInput]) -> list[list[Label]]:
        """All labels of each clip, the most probable first."""
        return self.labelled(self.readers(videos))

    def labelled(self, clips: Sequence[Callable[[], np.ndarray]]) -> list[list[Label]]:
        """All labels of each clip, from functions that return its frames."""
        return [ranked(logits, self.model.config.labels) for logits in self.outputs(self.model, clips)]

    def validate(self, batches: Iterable[Batch]) -> dict[str, float]:
        return accuracy(self.model, batches)

    def test_clips(self, test: EvalSet) -> list[LabelledClip]:
        """The clips of a test set: all of the named files, or those held out of the run's own data."""

        def read() -> list[LabelledClip]:
            elsewhere = "clips" in test.named and not same_file(test.data.clips, test.own.clips)
            named = elsewhere and not test.named & {"valid", "test"}
            return test.data.both_ways(test.data.read(test.data.clips)) if named else test.data.held_out()

        return test.read("clips", read)

    def readers_of(self, clips: Sequence[LabelledClip]) -> list[Callable[[], np.ndarray]]:
        return [lambda each=each: each.frames(self.preprocessing) for each in clips]  # type: ignore[misc]

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        whole = self.test_clips(test)
        clips = whole if test.limit is None else some_of(whole, test.limit)
        labels = [best[0].label for best in self.labelled(self.readers_of(clips))]
        expected = [each.label for each in clips]
        return Scored(
            scores=label_scores(labels, expected), outputs=labels, expected=expected, total=len(whole), unit="clips",
            details=clips, **label_table(labels, expected),
        )  # fmt: skip

    def baselines(self, test: EvalSet, scored: Scored) -> dict[str, dict[str, float]]:
        """The most frequent label, and linear classifiers of the frame in the middle alone, and of all frames."""
        expected = list(scored.expected)
        rows = {"most frequent label": label_scores([most_frequent(expected)] * len(expected), expected)}
        try:
            clips = test.own.split()[0]
        except (OSError, ValueError):  # the training data are no longer where they were
            return rows
        known = some_of(clips, KNOWN if test.own.task == "labels" else KNOWN // 2)
        known = test.own.both_ways(known)
        learned, others = (self.middles(part) for part in (known, scored.details))
        names = sorted({each.label for each in known})
        labels = np.array([names.index(each.label) for each in known])
        if len(names) > 1:
            predicted = labels_by_pixels(learned, labels, others)
            rows["linear on one frame"] = label_scores([names[i] for i in predicted], expected)
        return rows

    def middles(self, clips: Sequence[LabelledClip]) -> np.ndarray:
        """The frame in the middle of each clip, as bytes (clips, rows, columns, channels)."""
        frames = [each.frames(self.preprocessing) for each in track(clips, "frames:", len(clips))]
        return np.stack([each[len(each) // 2] for each in frames])

    def work(self, test: EvalSet) -> Work:
        clips = [each.frames(self.preprocessing) for each in some_of(self.test_clips(test), test.limit or KNOWN)]
        readers: list[Callable[[], np.ndarray]] = [lambda frames=frames: frames for frames in clips]  # type: ignore[misc]
        return Work(run=lambda: self.labelled(readers), count=len(clips), unit="clip")

    def samples(self, test: EvalSet, run: Path) -> Samples:
        clips = self.test_clips(test)[:7]
        best = [f"{row[0].label}  {row[0].probability:.0%}" for row in self.labelled(self.readers_of(clips))]
        examples = [Example(inputs=(each.frames(self.preprocessing),), label=each.label) for each in clips]
        return Samples(
            rows=[(f"a clip of {each.label}", text) for each, text in zip(clips, best, strict=True)],
            commands=[f"regard classify {run} clip.mp4", f"regard eval {run}"], examples=examples,
        )  # fmt: skip


def some_of(clips: Sequence[LabelledClip], count: int) -> list[LabelledClip]:
    """At most so many clips, always the same random ones."""
    if len(clips) <= count:
        return list(clips)
    chosen = np.random.default_rng(0).choice(len(clips), count, replace=False)
    return [clips[number] for number in sorted(chosen)]
