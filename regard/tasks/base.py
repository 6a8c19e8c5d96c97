"""The interface of tasks: one class for each use of a model.

A family names its task (`task = "classify-images"`, or a property where its config decides). Everything above asks the
task: nobody else needs to know what kind of model it is.
"""

import html
import shlex
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.data.sets.batches import Batch
from regard.hub.checkpoint import LayoutError
from regard.modalities.base import modality_of
from regard.registry import modalities, models, tasks
from regard.tasks.baselines import best_constant
from regard.tasks.prepared import Prepared
from regard.tasks.scored import Scored as Scored


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """An option of a verb: a flag of the command line, a field of a request, a keyword of the method."""

    name: str
    kind: type = str
    default: Any = None
    help: str = ""
    limits: tuple[int | float, int | float] | None = None
    """The smallest and the largest value allowed."""
    each: bool = False
    """Whether there is a value for each input."""


def render_values(answer: Mapping[str, Any]) -> str:
    """The values of an answer in one line."""
    return "\t".join(f"{value:.4f}" if isinstance(value, float) else str(value) for value in answer.values())


FLAGS = {"seconds": "second", "labels": "zero-shot", "passages": "passage", "propose": "draft"}
"""Options of verbs whose flags on the command line have another name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verb:
    """An operation of a task, such as translate: a method, a command and a server route of the same name."""

    name: str
    does: str
    """A phrase in the third person for sentences about a model: "labels texts"."""
    input: str = ""
    """The name of the input in JSON, where it is not that of its modality: "prompt"."""
    help: str = ""
    """The first line of the command's help."""
    options: tuple[Option, ...] = ()
    ability: str | None = ""
    """The name that a server lists it by, where that is not its own; None: it is not served."""
    method: str = ""
    """The method of the task, where it has another name than the verb."""
    as_json: Callable[[Any], dict[str, Any]] = dict
    """From the method's result for one input to a JSON object."""
    render: Callable[[Any], str] = render_values
    """From a JSON object to lines for a terminal."""
    columns: Callable[[dict[str, Any]], dict[str, Any]] = dict
    """From a JSON object to the columns of a table."""
    blank: bool = False
    """Whether an empty text has an answer, as the prompt of a text that may begin with anything."""

    def check_options(self, options: Mapping[str, Any], model: str) -> None:
        """Raise a ValueError for an option that this verb does not declare."""
        for name in options.keys() - {option.name for option in self.options}:
            flag = FLAGS.get(name, name.replace("_", "-"))
            raise ValueError(f"{model} {self.does}, for which --{flag} has no effect; leave out --{flag}")


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalSet:
    """A test set: the data that a model is scored on, and the run that it belongs to."""

    data: Any
    """The data config that is scored: the run's own, or one with the fields that the user named."""
    own: Any
    """The data config that the model was trained with; the default one for a checkpoint from elsewhere."""
    named: frozenset[str] = frozenset()
    """The fields of `data` that the user named."""
    limit: int | None = None
    """Score at most this many examples."""
    part: tuple[int, int] = (0, 1)
    """Score only this part, and how many parts there are: (0, 1) is everything."""
    run: str = ""
    """The model's path, for errors."""
    recipe: str = ""
    """The name of the recipe that the model was trained by."""
    kept: dict[Any, Any] = field(default_factory=dict, compare=False)
    """Held-out examples that were read already; copies with another limit or part share them."""

    def share(self, examples: Any) -> Any:
        """Return the examples of this part: every n-th of a list or of images, the n-th piece of a text."""
        index, count = self.part
        if count == 1:
            return examples
        if isinstance(examples, str):
            return examples[len(examples) * index // count : len(examples) * (index + 1) // count]
        chosen = slice(index, None, count)
        return examples.take(chosen) if hasattr(examples, "take") else examples[chosen]

    def read(self, name: str, reader: Callable[[], Any]) -> Any:
        """Return this part of what `reader` returns, which is called once for all parts."""
        if name not in self.kept:
            self.kept[name] = reader()
        return self.share(self.kept[name])


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """The main verb on held-out inputs: what the cost of a model is measured by."""

    run: Callable[[], Any]
    count: int
    """The number of inputs, or of what `unit` names."""
    unit: str = "example"


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """An input that the page offers to try."""

    inputs: tuple[Any, ...]
    """The inputs of the task: a text, a pair of texts, an image, or an image and texts to compare it with."""
    label: str = ""
    """A few words about it, such as its true label; none: the text itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Samples:
    """Outputs that are shown after training, and commands to try next."""

    rows: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of an input and the model's output; a row without an input is shown as running text."""
    commands: list[str] = field(default_factory=list)
    """Commands to try next."""
    views: dict[str, tuple[str, Any]] = field(default_factory=dict)
    """Figures to draw in the run: file name → the name of a view and its input."""
    images: dict[str, Any] = field(default_factory=dict)
    """Images to save in the run: file name → a Pillow image."""
    examples: list[Example] = field(default_factory=list)
    """Inputs that the page offers to try; none: the inputs of `rows`, if the task reads texts."""


def shortened(text: str, most: int = 200) -> str:
    """A text on one line, cut to `most` characters."""
    return textwrap.shorten(text, most, placeholder=" …")


def quoted(text: str) -> str:
    """A text as an argument of a shell command, cut to 200 characters."""
    return shlex.quote(shortened(text))


def check_list(name: str, items: Any) -> None:
    """Raise an error for a single text where a list of them is expected."""
    if isinstance(items, str):
        raise ValueError(f"{name} is a list; put a single one in brackets: [{items!r}]")


SHOWN_LABELS = 8
"""Labels that the description of a model names."""


class Task:
    """A trained model with the readers of its inputs. Subclasses override what their task needs."""

    name: ClassVar[str] = ""
    """The name it is registered by."""
    inputs: ClassVar[tuple[str, ...]] = ("text",)
    """The modalities that it reads, by name; the first is what a command's arguments are."""
    output: ClassVar[str] = "vector"
    """The kind of the model's output, as `Prepared.answers` names it."""
    verbs: ClassVar[tuple[Verb, ...]] = ()
    """The operations of this task; the first is the main one."""
    data: ClassVar[tuple[type, ...]] = ()
    """The kinds of training data that it can be scored on; the first is the default."""
    learns: ClassVar[tuple[str, ...]] = ()
    """Verbs that a model of this task gains by fine-tuning with another head."""
    generates: ClassVar[bool] = False
    """Whether an engine generates its outputs, with memory of its own for keys and values."""
    streams: ClassVar[bool] = False
    """Whether a server passes its requests to the task's engine, and sends texts while they are generated."""
    trial: ClassVar[int] = 16
    """The `limit` of a first scoring after training, from which the time for all held-out examples is estimated."""
    model: Any
    path: Path | None = None
    """Where `load` found the model."""
    revision: str | None = None
    """The commit of a model that was loaded from the Hub."""
    size: int | None = None
    """The number of parameters, as `load` counted them before it quantised any."""
    quantization: str = "none"
    """The quantisation of the weights: none, bfloat16, int8 or int4."""

    if not TYPE_CHECKING:  # type checkers know what a class has

        def __getattr__(self, name: str) -> Any:
            """Raise an error; for a verb that other tasks have, one that says what this one does instead."""
            if any(tasks[other].verb(name) for other in tasks):
                does, owner = " and ".join(verb.does for verb in self.verbs), self.path or type(self).__name__
                raise AttributeError(f"{owner} {does or 'has no verbs'}, it does not {name}; load another model")
            return object.__getattribute__(self, name)  # raises the error that led here

    @property
    def longest_token(self) -> int:
        """The number of characters of the longest token."""
        return max(map(len, self.tokenizer.inner.get_vocab()))  # type: ignore[attr-defined]

    def facts(self) -> dict[str, str]:
        """Return the model's family, parameters, labels, context, image size, quantisation and path by name."""
        config, size = self.model.config, self.size
        count = sum(p.numel() for p in self.model.parameters()) if size is None else size
        facts = {"family": models.name_of(type(self.model)), "parameters": f"{count:,}"}
        if names := getattr(config, "labels", None):
            more = [f"{len(names) - SHOWN_LABELS} more"] if len(names) > SHOWN_LABELS else []
            facts["labels"] = ", ".join([*map(str, names[:SHOWN_LABELS]), *more])
        if context := getattr(config, "max_len", None):
            facts["context"] = f"{context:,} tokens"
        if image := getattr(config, "image", None):
            facts["images"] = " × ".join(map(str, image if isinstance(image, tuple) else (image, image)))
        if self.quantization != "none":
            facts["weights"] = self.quantization
        return facts | ({"path": str(self.path)} if self.path is not None else {})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}: {value}' for name, value in self.facts().items())})"

    def _repr_html_(self) -> str:
        """A table of what the model is and can do, for notebooks."""
        does = "; ".join(f".{verb.method or verb.name}(…) {verb.does}" for verb in self.verbs)
        style = "style='text-align:left'"
        rows = "".join(
            f"<tr><th {style}>{html.escape(name)}</th><td {style}>{html.escape(value)}</td></tr>"
            for name, value in {**self.facts(), "verbs": does}.items()
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"

    @classmethod
    def suited(cls, path: Path) -> "type[Task]":
        """Return the task class for the files beside the weights: this one, unless a subclass reads other files."""
        return cls

    @classmethod
    def load(cls, path: Path, model: Any) -> "Task":
        """The task of a loaded model: `cls(model, reader, …)`, with the saved reader of each input."""
        build: Callable[..., Task] = cls
        return build(model, *(modalities[name].load(path, model.config) for name in cls.inputs))

    @classmethod
    def default_data(cls) -> Any:
        """The data config of the embedded examples of this task."""
        if not cls.data:
            raise ValueError(f"the task {cls.name!r} has no metrics; fine-tune the model for a task: regard finetune …")
        return cls.data[0]()

    @classmethod
    def abilities(cls, path: Path, model: Any) -> list[str]:
        """The operations that a server offers for the model in `path`; its weights are not needed."""
        return list(dict.fromkeys(verb.ability or verb.name for verb in cls.verbs if verb.ability is not None))

    @classmethod
    def verb(cls, name: str) -> Verb | None:
        """The declaration of a verb, or None where this task does not have it."""
        return next((verb for verb in cls.verbs if verb.name == name), None)

    @classmethod
    def default_examples(cls, path: Path, config: Any) -> list[Example]:
        """Inputs that the page offers for a model without examples of its own, such as one from elsewhere."""
        items = modalities[cls.inputs[0]].examples(path, config)
        return [Example(inputs=(item,), label=label) for label, item in items]

    def limit_engine(self, **limits: Any) -> None:
        """Set the limits of the engine, the arguments of `regard.decode.Engine`, if the task generates with one."""

    def field_of(self, verb: str, item: Any) -> str:
        """The name of an input in JSON: "text", "image", or the verb's own, such as "prompt"."""
        declared = self.verb(verb)
        return declared.input if declared is not None and declared.input else modality_of(item, self.inputs).field

    def check_inputs(self, items: Sequence[Any]) -> None:
        """Raise a ValueError for an item that is no input of this task, such as an image file for a text model."""
        own = [modalities[name] for name in self.inputs]
        others = [record for name in modalities if (record := modalities[name]).field not in {one.field for one in own}]
        for item in [item for item in items if isinstance(item, str) and not any(one.holds(item) for one in own)]:
            for record in others:
                if record.files and record.holds(item):
                    reads = " and ".join(one.plural for one in own)
                    raise ValueError(f"the model reads {reads}, and {item} is {record.noun}; choose a model for it")

    def read(self, *inputs: Any, **options: Any) -> Prepared:
        """Return one input as a `Prepared`, from which views and explanations are computed."""
        raise ValueError(f"the task {self.name!r} has no views; give its class a method `read`")

    def views(self, *inputs: Any) -> list[str]:
        """The names of the views of the model at work on an input."""
        return self.read(*inputs).views

    def answers(self, verb: str, inputs: Sequence[Any], **options: Any) -> list[dict[str, Any]]:
        """One JSON object for each input, shared by the command line and the server."""
        declared = self.verb(verb)
        assert declared is not None, f"{self.name} has no verb {verb}"
        return [declared.as_json(result) for result in getattr(self, declared.method or verb)(inputs, **options)]

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        """The metrics of this task on a test set."""
        raise ValueError(f"{test.run} has no scores of its own; fine-tune it for a task: regard finetune {test.run} …")

    def validate(self, batches: Iterable[Batch]) -> dict[str, float]:
        """Metrics of validation batches during training, in percent; more is better, and the first one decides. None
        here: a task without them is judged by its loss."""
        return {}

    def baselines(self, test: EvalSet, scored: Scored) -> dict[str, dict[str, float]]:
        """The metrics of the simplest predictors on the examples of `scored`, by the predictor's name: here the most
        frequent output alone, where outputs are right or wrong."""
        metric = scored.judged[0] if scored.judged else ""
        if not scored.expected or metric not in ("accuracy", "exact_match"):
            return {}
        return {"most frequent output": {metric: best_constant(scored.expected)}}

    def learned(self, test: EvalSet) -> int:
        """The number of examples in a file for the test that the model was trained on, too; here unknown, hence 0."""
        return 0

    def work(self, test: EvalSet) -> Work:
        """The main verb on the inputs of a test set; here the whole evaluation, where it does little else."""
        return Work(run=lambda: self.evaluate(test), count=self.evaluate(test).total or 1)

    def is_scored(self, test: EvalSet) -> bool:
        """Whether a model trained on such data has metrics of its own."""
        return True

    def evaluate_after_training(self, test: EvalSet) -> Scored:
        """The metrics that are printed after training, on what was held out of it."""
        return self.evaluate(test)

    def samples(self, test: EvalSet, run: Path) -> Samples:
        """A few outputs for held-out inputs, and commands to try next."""
        return Samples(commands=[f"regard eval {run}"])

    def export(self, out: Path) -> None:
        """Write the model so that other projects can read it."""
        raise LayoutError(f"a {type(self.model).__name__} for {self.name!r} has no layout that other projects read")


def register_task(name: str) -> Callable[[type[Task]], type[Task]]:
    """Register a task class under a name that families use."""

    def add(cls: type[Task]) -> type[Task]:
        cls.name = name
        for verb in cls.verbs:
            if not hasattr(cls, verb.method or verb.name):
                raise ValueError(f"the task {name!r} has the verb {verb.name!r}, but no method of that name; add one")
        return tasks.register(name)(cls)

    return add
