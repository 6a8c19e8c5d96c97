"""The interface of data configs that training, evaluation and the command line use."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from regard.data.checksums import checksum
from regard.data.readers.hub_sets import HUB, fetch_set
from regard.data.sets.overview import Overview

Tune = Literal["all", "head", "lora"]
"""Which weights of a pretrained model are trained: all, the head's, or the head's and LoRA adapters."""

TRAINED = ("kind", "vocab_size")
"""Fields of a tokenizer that is trained here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Data:
    """Base of every data config: a subclass adds fields, names those of the user's files, and implements `split`."""

    own: ClassVar[tuple[str, ...]] = ()
    """Fields that name the user's training files; where none is set, the embedded data are used."""
    beside: ClassVar[tuple[str, ...]] = ("valid", "test")
    """Further fields that name files or folders, where there are such fields."""
    reading: ClassVar[tuple[str, ...]] = ()
    """Fields that say how examples are read, not which; they are kept when a run is evaluated on other files."""
    decides: ClassVar[dict[str, str]] = {}
    """Fields that follow from the data, as "model.image", each with the rest of the error for a user who sets it."""

    splitting: ClassVar[tuple[str, ...]] = ()
    """Fields, besides `own`, on which it depends which examples are held out of the user's files."""
    absent: ClassVar[dict[str, Any]] = {}
    """Fields newer than some stored recipes, each with the value that it has in a recipe without it."""

    @property
    def embedded(self) -> bool:
        """Whether the data come with the package, because no file of the user is named."""
        return all(getattr(self, name) in (None, ()) for name in self.own)

    @property
    def test(self) -> str | None:
        """The file or folder with the test examples, if one is named."""
        return None

    @property
    def parts(self) -> dict[str, str]:
        """The sources of "train", "valid" and "test", as far as each has one of its own."""
        return {} if self.test is None else {"test": self.test}

    @property
    def idle(self) -> dict[str, str]:
        """Fields that have no effect, each with the option that is the reason: {"rank": "tune all"}."""
        return {}

    @classmethod
    def reads(cls, source: str) -> bool:
        """Whether a file or folder holds data of this kind and no other, so that `regard data` needs no --task."""
        return False

    def checksums(self) -> dict[str, str]:
        """The checksum of each of the user's files and folders: a run stores them, and says when one has changed."""
        values = [getattr(self, name, None) for name in (*self.own, *self.beside)]
        sources = [each for value in values for each in (value if isinstance(value, tuple) else (value,)) if each]
        sums = {source: ",".join(map(checksum, fetch_set(source))) for source in sources if source.startswith(HUB)}
        for source in [source for source in sources if Path(source).exists()]:
            try:
                listed = self.listed(source)
            except ValueError:  # a part of a data set whose list is elsewhere
                listed = ()
            sums[source] = checksum(Path(source), listed)
        return sums

    def listed(self, source: str) -> Iterable[Path]:
        """Files outside of a source that belong to it, such as the images that a table names."""
        return ()

    def overview(self) -> list[Overview]:
        """Summaries of the user's files (counts, columns, labels), printed before training; [] without files."""
        return []

    def split(self) -> tuple[Any, Any]:
        """The training and the validation examples."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `split`")

    def held_out(self) -> Any:
        """The test examples; the validation examples where no others exist."""
        return self.split()[1]


@dataclass(frozen=True, kw_only=True, slots=True)
class TextData(Data):
    """Base of the configs whose texts are read by a tokenizer, given or trained."""

    reading: ClassVar[tuple[str, ...]] = ("lowercase",)
    decides: ClassVar[dict[str, str]] = {"model.vocab_size": "follows from the texts; use --data.vocab-size"}

    tokenizer: str | None = None
    """An existing tokenizer.json (none: one is trained on the training data)."""
    kind: Literal["bpe", "word", "char", "code", "dna", "bytes"] = "bpe"
    """Kind of tokenizer to train: subwords, words, characters, tokens of Python code, words of bases, or bytes."""
    vocab_size: int = 8000
    """Entries of the tokenizer to train."""
    lowercase: bool = False
    """Lower-case everything."""
    base: str | None = None
    """A run or checkpoint whose weights and tokenizer to start from."""
    tune: Tune = "all"
    """The weights to train: all, the head's alone, or the head's and LoRA adapters."""
    rank: int = 8
    """Rank of the LoRA adapters."""

    @property
    def idle(self) -> dict[str, str]:
        tokens = idle_with("tokenizer", self.tokenizer, *TRAINED) | idle_with("base", self.base, *TRAINED)
        return ({"vocab_size": "kind bytes"} if self.kind == "bytes" else {}) | tokens | idle_rank(self.tune)


def idle_with(option: str, value: Any, *fields: str) -> dict[str, str]:
    """The entries of `idle` for fields that have no effect while an option is set; {} where it is not."""
    return dict.fromkeys(fields, f"{option} {value}") if value else {}


def idle_rank(tune: Tune) -> dict[str, str]:
    """The entry of `idle` for the rank of LoRA adapters, where there are none."""
    return {} if tune == "lora" else {"rank": f"tune {tune}"}


def check_tuning(base: str | None, tune: Tune, rank: int) -> None:
    """Raise an error where a part of a pretrained model is to be trained, but no such model is named."""
    if base is None and tune != "all":
        raise ValueError(f"tune={tune!r} needs weights to start from; give --data.base")
    if rank < 1:
        raise ValueError(f"rank={rank} must be at least 1")
