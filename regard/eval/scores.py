"""What a model is worth on held-out examples: one way for each thing that a model can do."""

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.config import override
from regard.data.generated.text_tasks import PREFIXES, tasks
from regard.data.readers.preprocessing import Preprocessing
from regard.data.readers.text_files import Pairs, read_pairs, read_text
from regard.data.sets.batches import IGNORE
from regard.data.sets.boxed_images import BoxesConfig
from regard.data.sets.captioned_images import CaptionsConfig
from regard.data.sets.image_text_pairs import PairedConfig
from regard.data.sets.labelled_images import ImagesConfig, LabelledImages
from regard.data.sets.labelled_texts import ExamplesConfig, labels_of, sides_of, tag_of
from regard.data.sets.masked_text import MaskedConfig
from regard.data.sets.running_text import SpansConfig, TextConfig
from regard.data.sets.text_pairs import PairsConfig, TasksConfig
from regard.data.sets.unlabelled_images import PixelsConfig
from regard.eval.caption_scores import score_captions
from regard.hub.remote import find
from regard.nn.patches import sides
from regard.runs.recipe import Recipe
from regard.tasks import (
    EntityTagger,
    ImageCaptioner,
    ImageClassifier,
    ImageEncoder,
    ImageTextMatcher,
    LanguageModel,
    MaskFiller,
    ObjectDetector,
    PixelModel,
    QuestionAnswerer,
    TextClassifier,
    TextEncoder,
    Translator,
    load,
)  # fmt: skip
from regard.tasks.loading import Quantize
from regard.tasks.metrics import (
    exact_match,
    label_scores,
    pixel_scores,
    recall_scores,
    similarity_scores,
    summary_scores,
    tag_scores,
    text_scores,
    translation_scores,
)  # fmt: skip
from regard.tasks.object_detector import detection_scores
from regard.tasks.text_heads import first_tokens
from regard.tokens.encoding import cut_text, mask_texts

TEST_EXAMPLES = 1000
HIDDEN_TEXTS = 200


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Scores by name, and what the model said of each example."""

    scores: dict[str, Any]
    outputs: list[str]


def evaluate(
    run: str | Path, changes: Mapping[str, Any], *, limit: int | None = None, few_shot: int | None = None,
    quantize: Quantize | None = None, **how: Any,
) -> Scored:  # fmt: skip
    """Scores of a model on the data that `changes` name, or else on what was held out from its training."""
    run = find(run)
    loaded = load(run, quantize)
    if few_shot is not None:
        data = data_of(run, ExamplesConfig, {"data.task": "classify"} | dict(changes))
        return prompted(loaded, data, few_shot, limit)
    return score(loaded, run, changes, limit, **how)


def score(loaded: Any, run: Path, changes: Mapping[str, Any], limit: int | None, **how: Any) -> Scored:
    """The same for a model at hand."""
    if type(loaded) not in WAYS:
        more = " --data.images …, or regard eval --probe" if isinstance(loaded, ImageEncoder) else " --task …"
        raise ValueError(f"{run} has no scores of its own; fine-tune it for a task: regard finetune {run}{more}")
    return WAYS[type(loaded)](loaded, run, changes, limit, **how)


def data_of(run: Path, kind: type, changes: Mapping[str, Any]) -> Any:
    """The data's config that a run was trained with, if it is of this kind, with the user's changes."""
    stored = run / "recipe.toml"
    own = Recipe.load(stored).data if stored.exists() else None
    base: Any = own if isinstance(own, kind) else kind()
    given = {key.removeprefix("data."): value for key, value in changes.items()}
    other = isinstance(base, ExamplesConfig) and given.setdefault("task", base.task) != base.task
    if other or any(field in given and not same(given[field], getattr(base, field)) for field in base.own):
        # Nothing that belongs to the run's own data stays.
        base = kind(**{field: getattr(base, field) for field in kind.reading})
    return override(base, given)


def same(one: Any, other: Any) -> bool:
    """Whether two names are those of the same file or folder."""
    return isinstance(one, str) and isinstance(other, str) and Path(one).resolve() == Path(other).resolve()


def sized(loaded: Any) -> Preprocessing:
    """How a model's pictures are prepared; at its own size, where it needs one and that is not said."""
    how = loaded.preparation
    if how.target is not None or isinstance(loaded, ObjectDetector):
        return how
    return replace(how, size=sides(loaded.model.config.image), shortest=None, longest=None)


def pictures_of(
    loaded: Any, run: Path, kind: type, changes: Mapping[str, Any], limit: int | None = None, **more: Any
) -> tuple[Any, Any]:
    """The data's config, and pictures prepared for the model: all of those that are named, or else what is held out.

    Of what the run was trained on it is what was held out, too. At most `limit`: a draw, or, with captions or boxes,
    the first.
    """
    data, given = data_of(run, kind, changes), {key.removeprefix("data.") for key in changes}
    if "valid" in given and "test" not in given:
        data = replace(data, test=data.valid)
    how = sized(loaded)
    for name, own in (("size", how.shortest or how.target), ("channels", how.channels)):
        asked = getattr(data, name)
        if name in given and asked is not None and own not in (asked, (asked, asked)):
            raise ValueError(f"{run} says itself how pictures are read; leave out --data.{name}")
    known = same(data.source, data_of(run, kind, {}).source) or given & {"valid", "test"}
    found = (
        data.read(data.source, preprocessing=how, **more) if given & set(data.own) and not known else data.held_out(how)
    )
    if limit is None:
        return data, found
    return data, found.sample(limit, 0) if isinstance(found, LabelledImages) else found.take(slice(limit))


def examples_of(run: Path, task: str, changes: Mapping[str, Any], limit: int | None) -> list[Any]:
    """Held-out examples of the one task that a model was trained for."""
    data = data_of(run, ExamplesConfig, {"data.task": task} | dict(changes))
    if data.task != task:
        raise ValueError(f"{run} was trained to {task}; leave out --data.task {data.task}, or give another model")
    return data.held_out()[:limit]


def held_out_pairs(run: Path, changes: Mapping[str, Any], limit: int | None) -> Pairs:
    """The pairs that `--data.…` names; else the embedded test phrases, or the run's own validation pairs."""
    data = data_of(run, PairsConfig, changes)
    if data.embedded:
        return PairsConfig().generated("test", TEST_EXAMPLES)[:limit]
    if changes:
        return read_pairs(data.source, data.target, data.pairs, data.keys)[:limit]
    return data.split()[1][:limit]


def score_pairs(
    loaded: Translator, pairs: Pairs, *, beams: int | None = None, length_penalty: float | None = None,
    lowercase: bool = False,
) -> Scored:  # fmt: skip
    """BLEU, chrF and exact match of a model's translations."""
    found = loaded.translate([source for source, _ in pairs], beams=beams, length_penalty=length_penalty)
    texts = [best[0].text for best in found]
    return Scored(scores=translation_scores(texts, [target for _, target in pairs], lowercase=lowercase), outputs=texts)


def of_translator(loaded: Translator, run: Path, changes: Mapping[str, Any], limit: int | None, **how: Any) -> Scored:
    stored = run / "recipe.toml"
    if not changes and stored.exists() and isinstance(Recipe.load(stored).data, SpansConfig):
        raise ValueError(f"{run} was only pre-trained; train it for tasks: regard train t5 --data.base {run}")
    if isinstance(data := data_of(run, PairsConfig, changes), TasksConfig) and data.embedded:
        return of_tasks(loaded, limit)
    return score_pairs(loaded, held_out_pairs(run, changes, limit), **how)


def of_tasks(loaded: Translator, limit: int | None) -> Scored:
    """Each embedded task by itself: exact match, and ROUGE-L for summaries next to the body's first sentence."""
    examples = tasks("test", limit or 2 * TEST_EXAMPLES)
    texts = [best[0].text for best in loaded.translate([example.source for example in examples], beams=1)]
    groups: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for example, text in zip(examples, texts, strict=True):
        groups[example.name].append((example.source.removeprefix(PREFIXES[example.name]), text, example.target))
    scores: dict[str, Any] = {}
    for name, rows in groups.items():
        bodies, found, wanted = (list(column) for column in zip(*rows, strict=True))
        if name == "summarize":
            lead = [body.partition(". ")[0] + "." for body in bodies]
            scores["summarize_rouge_l"] = summary_scores(found, wanted)
            scores["lead_sentence_rouge_l"] = summary_scores(lead, wanted)
        else:
            scores[f"{name}_exact_match"] = round(exact_match(found, wanted), 2)
    return Scored(scores=scores | {"examples": len(examples)}, outputs=texts)


def of_writer(loaded: LanguageModel, run: Path, changes: Mapping[str, Any], limit: int | None, **how: Any) -> Scored:
    """Bits per byte of held-out text; of instructions, how many answers are exactly right."""
    stored = run / "recipe.toml"
    if stored.exists() and isinstance(data := Recipe.load(stored).data, ExamplesConfig):
        data = data_of(run, ExamplesConfig, changes)
        examples = data.held_out()[: limit or TEST_EXAMPLES]
        texts = loaded.generate([example.prompt for example in examples], max_new_tokens=64)
        match = round(exact_match(texts, [example.answer for example in examples]), 2)
        return Scored(scores={"exact_match": match, "examples": len(examples)}, outputs=texts)
    data = data_of(run, TextConfig, changes)
    text = read_text(data.text) if changes and data.text else data.held_out()
    return Scored(scores=text_scores(loaded.model, loaded.tokenizer, loaded.context, text[:limit]), outputs=[])


def of_classifier(
    loaded: TextClassifier, run: Path, changes: Mapping[str, Any], limit: int | None, **how: Any
) -> Scored:
    examples = examples_of(run, "classify", changes, limit)
    found = [best[0].label for best in loaded.classify(*sides_of(examples))]
    return Scored(scores=label_scores(found, [example.label for example in examples]), outputs=found)


def of_pictures(
    loaded: ImageClassifier, run: Path, changes: Mapping[str, Any], limit: int | None, **how: Any
) -> Scored:
    """Accuracy on held-out pictures; of those that are named, all."""
    data, pictures = pictures_of(loaded, run, ImagesConfig, changes, limit, part="test")
    pictures = pictures.numbered_as(loaded.model.config.labels, data.source or "the embedded digits")
    found = [best[0].label for best in loaded.classify_arrays(pictures.pixels)]
    return Scored(scores=label_scores(found, [pictures.names[i] for i in pictures.labels]), outputs=found)


def of_comparer(
    loaded: ImageTextMatcher, run: Path, changes: Mapping[str, Any], limit: int | None, **how: Any
) -> Scored:
    """Recall at 1 in both directions; of scenes drawn here also how often what stands alone is found among labels."""
    data, pictures = pictures_of(loaded, run, PairedConfig, changes, limit)
    texts = list(dict.fromkeys(text for several in pictures.captions for text in several))
    vectors = loaded.embed_arrays(pictures.pixels), loaded.embed_texts(texts)
    scores, found = recall_scores(*vectors, pictures.captions, texts)
    if data.embedded:
        alone, labels = data.single_objects(limit, loaded.preparation)
        said = [best[0].label for best in loaded.classify(alone.images(), labels)]
        scores["zero_shot_accuracy"] = label_scores(said, [one[0] for one in alone.captions])["accuracy"]
    return Scored(scores=scores | {"examples": len(pictures)}, outputs=found)


def of_painter(loaded: PixelModel, run: Path, changes: Mapping[str, Any], limit: int | None, **how: Any) -> Scored:
    """Bits a number of held-out pictures; of those that are named, all. The histograms are of the training's."""
    _, pictures = pictures_of(loaded, run, PixelsConfig, changes, limit, part="test")
    known = data_of(run, PixelsConfig, {}).split(loaded.preparation)[0]
    return Scored(scores=pixel_scores(loaded.model, loaded.pixels, pictures, known), outputs=[])


def of_detector(loaded: ObjectDetector, run: Path, changes: Mapping[str, Any], limit: int | None, **how: Any) -> Scored:
    """Average precision on held-out pictures; of those that are named, all."""
    _, boxes = pictures_of(loaded, run, BoxesConfig, changes, limit, names=loaded.model.config.labels)
    found = loaded.detect_arrays([one.pixels for one in boxes.images])
    truth = [one.labels for one in boxes.images], [one.boxes for one in boxes.images]
    said = ["; ".join(f"{one.label} {one.score:.2f}" for one in row if one.score >= 0.5) for row in found]
    crowds = [one.crowds for one in boxes.images]
    return Scored(scores=detection_scores(found, *truth, boxes.names, crowds), outputs=said)


def of_tagger(loaded: EntityTagger, run: Path, changes: Mapping[str, Any], limit: int | None, **how: Any) -> Scored:
    """Entities as tags of words, which is what seqeval compares."""
    examples = examples_of(run, "tag", changes, limit)
    found = loaded.tag([example.text for example in examples])
    frames = loaded.tokenizer.frame([example.text for example in examples])
    tags: list[list[list[str]]] = [[], []]
    for framed, said, example in zip(frames, found, examples, strict=True):
        words = [framed.offsets[tokens[0]] for tokens in first_tokens(framed).values()]
        for rows, entities in zip(tags, (said, example.entities), strict=True):
            rows.append([tag_of(word, entities) for word in words])
    texts = ["; ".join(f"{entity.label}: {entity.text}" for entity in said) for said in found]
    return Scored(scores=tag_scores(*tags), outputs=texts)


def of_answerer(
    loaded: QuestionAnswerer, run: Path, changes: Mapping[str, Any], limit: int | None, **how: Any
) -> Scored:
    examples = examples_of(run, "answer", changes, limit)
    found = loaded.answer([example.question for example in examples], [example.passage for example in examples])
    texts, wanted = [one.text or "" for one in found], [example.answer or "" for example in examples]
    silent = [i for i, answer in enumerate(wanted) if not answer]
    scores: dict[str, Any] = {"exact_match": round(exact_match(texts, wanted), 2)}
    if silent:
        scores["unanswerable_found"] = round(100 * sum(not texts[i] for i in silent) / len(silent), 2)
    scores["examples"] = len(examples)
    return Scored(scores=scores, outputs=texts)


def of_filler(loaded: MaskFiller, run: Path, changes: Mapping[str, Any], limit: int | None, **how: Any) -> Scored:
    """How many hidden tokens of held-out text the model finds again at the first guess."""
    data = data_of(run, MaskedConfig, changes)
    text = read_text(data.text) if changes and data.text else data.held_out()
    room = min(data.max_len, loaded.context)
    parts = cut_text(loaded.tokenizer, text, room - 3)[: limit or HIDDEN_TEXTS]
    alone = replace(data, next_sentence=False)
    examples = mask_texts(parts, loaded.tokenizer, alone, room, np.random.default_rng(0))
    right = total = 0
    for one, scores in zip(examples, loaded.logits([one.framed for one in examples]), strict=True):
        targets = torch.tensor(one.targets)
        right += int((scores.argmax(-1) == targets).sum())
        total += int((targets != IGNORE).sum())
    return Scored(scores={"found_again": round(100 * right / max(1, total), 2), "examples": total}, outputs=[])


def of_encoder(loaded: TextEncoder, run: Path, changes: Mapping[str, Any], limit: int | None, **how: Any) -> Scored:
    examples = examples_of(run, "embed", changes, limit)
    first, second = (loaded.embed([getattr(example, side) for example in examples]) for side in ("a", "b"))
    likeness = (first * second).sum(-1).tolist()
    outputs = [f"{value:.4f}" for value in likeness]
    return Scored(scores=similarity_scores(likeness, [example.score for example in examples]), outputs=outputs)


def prompted(loaded: Any, data: ExamplesConfig, shots: int, limit: int | None) -> Scored:
    """Classification by examples in the prompt: the label that the model finds likeliest behind them."""
    if not isinstance(loaded, LanguageModel):
        raise ValueError("examples in a prompt are for models that continue texts; score this one without --few-shot")
    if data.task != "classify":
        raise ValueError(f"--few-shot is for classification, not for {data.task}")
    shown, examples = data.split()[0], data.held_out()[: limit or TEST_EXAMPLES]
    labels = labels_of("classify", shown)
    front = "".join(f"Text: {one.text}\nLabel: {one.label}\n\n" for one in chosen_shots(shown, labels, shots))
    found = []
    for number, example in enumerate(examples, 1):
        prompt = f"{front}Text: {example.text}\nLabel:"
        scores = loaded.score([prompt] * len(labels), [f" {label}" for label in labels])
        found.append(labels[scores.index(max(scores))])
        if sys.stderr.isatty():
            print(f"\r{number:,} of {len(examples):,}", end="", file=sys.stderr)
    scored = label_scores(found, [example.label for example in examples])
    return Scored(scores=scored | {"shots": shots}, outputs=found)


def chosen_shots(examples: list[Any], labels: tuple[str, ...], count: int) -> list[Any]:
    """The first examples of each label in turn."""
    by_label = {label: [one for one in examples if one.label == label] for label in labels}
    rounds = range(max(map(len, by_label.values())))
    mixed = [by_label[label][i] for i in rounds for label in labels if i < len(by_label[label])]
    return mixed[:count]


def of_captions(loaded: ImageCaptioner, run: Path, changes: Mapping[str, Any], limit: int | None, **how: Any) -> Scored:
    """BLEU-4 and exact match on held-out pictures; on those that are named, all."""
    scores, outputs = score_captions(loaded, *pictures_of(loaded, run, CaptionsConfig, changes, limit), **how)
    return Scored(scores=scores, outputs=outputs)


WAYS: dict[type, Callable[..., Scored]] = {
    Translator: of_translator, LanguageModel: of_writer, TextClassifier: of_classifier, EntityTagger: of_tagger,
    QuestionAnswerer: of_answerer, MaskFiller: of_filler, TextEncoder: of_encoder, ImageClassifier: of_pictures,
    PixelModel: of_painter, ImageCaptioner: of_captions, ObjectDetector: of_detector, ImageTextMatcher: of_comparer,
}  # fmt: skip


def render(scores: Mapping[str, Any]) -> str:
    """Scores in one line; a signature below it."""
    if "bleu" in scores:
        return (
            f"exact match {scores['exact_match']:.1f} %   BLEU {scores['bleu']:.2f}   chrF {scores['chrf']:.2f}"
            f"   ({scores['sentences']:,} sentences)\n{scores['bleu_signature']}"
        )
    if "bleu_4" in scores:
        gain = f"   attention on what is named {scores['gain']:.1f} ×" if "gain" in scores else ""
        return (
            f"BLEU-4 {scores['bleu_4']:.2f}   exact match {scores['exact_match']:.1f} %{gain}"
            f"   ({scores['pictures']:,} pictures)\n{scores['bleu_signature']}"
        )
    if "bits_per_byte" in scores:
        return (
            f"bits per byte {scores['bits_per_byte']:.3f}   (xz {scores['xz']:.3f}, bz2 {scores['bz2']:.3f}; "
            f"{scores['bytes']:,} held-out bytes)"
        )
    if "bits_per_dimension" in scores:
        return (
            f"bits per dimension {scores['bits_per_dimension']:.3f}   (each pixel's own histogram "
            f"{scores['histograms']:.3f}; {scores['examples']:,} held-out pictures)"
        )
    numbers = "   ".join(
        f"{name.replace('_', ' ').replace('rouge l', 'ROUGE-L')} {value:.1f}{'' if 'rouge' in name else ' %'}"
        for name, value in scores.items()
        if name not in ("examples", "shots")
    )
    return f"{numbers}   ({scores['examples']:,} examples)"
