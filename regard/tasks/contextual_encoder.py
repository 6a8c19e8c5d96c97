"""Vectors of tokens in their context, from language models of both directions (ELMo)."""

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.data.notices import track
from regard.data.readers.text_files import read_text
from regard.data.sets.batches import pad, text_batches
from regard.data.sets.running_text import TextConfig
from regard.models import parts
from regard.objectives.both_sides import both_sides
from regard.tasks.base import EvalSet, Example, Samples, Scored, Task, Verb, check_list, quoted, register_task
from regard.tasks.default_texts import DOCUMENTATION
from regard.tasks.prepared import Outputs, Prepared, TokenSequence, all_tokens
from regard.tasks.prepared_text import check_texts, read_encoder
from regard.tasks.single import one_or_many
from regard.tasks.text_encoder import EMBED, TextEncoder
from regard.tokens import Tokenizer
from regard.tokens.characters import BEGIN, END, spell
from regard.tokens.encoding import encode_text
from regard.train.device import device_of

WORDS = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
"""A word, or a mark of punctuation, for models that read the characters of words."""
TOKENS = 1 << 14
"""Tokens of held-out text that are scored."""
AT_ONCE = 16
"""Texts that are read together."""


@register_task("contextual")
class ContextualEncoder(TextEncoder):
    """A vector for each token that depends on its sentence; a text has their mean."""

    verbs: ClassVar[tuple[Verb, ...]] = (EMBED,)
    learns: ClassVar[tuple[str, ...]] = ()
    data: ClassVar[tuple[type, ...]] = (TextConfig,)
    examples = ""
    trial = TOKENS

    def __init__(self, model: Any, tokenizer: Tokenizer | None) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer  # type: ignore[assignment]

    @classmethod
    def load(cls, path: Path, model: Any) -> "Task":
        return cls(model, None) if model.config.filters else super().load(path, model)

    @property
    def spells(self) -> bool:
        """Whether the model reads the characters of words, and needs no vocabulary."""
        return bool(self.model.config.filters)

    @property
    def longest_token(self) -> int:
        return self.model.config.word_length if self.spells else super().longest_token

    def words(self, text: str, *, cut: bool = True) -> list[str]:
        """The words of a text that are spelled, as many as the model's context has room for."""
        most = self.context - 2 if cut else None
        return [match[0] for match in islice(WORDS.finditer(text), most)]

    def lengths(self, texts: Sequence[str], seconds: Sequence[str] | None = None, *, cut: bool = True) -> list[int]:
        if not self.spells:
            return super().lengths(texts, seconds, cut=cut)
        return [len(self.words(text, cut=cut)) + 2 for text in texts]

    def spelled(self, words: Sequence[Sequence[str]]) -> dict[str, Tensor]:
        """Words of texts, between the marks of their beginning and end, as the characters that the model reads."""
        size = self.model.config.word_length
        rows = [[id for word in (BEGIN, *text, END) for id in spell(word, size)] for text in words]
        inputs = {"ids": pad(rows, 0), "lengths": torch.tensor([len(row) for row in rows])}
        return {name: values.to(device_of(self.model)) for name, values in inputs.items()}

    @one_or_many
    @torch.inference_mode()
    def embed(self, texts: Sequence[str], *, normalize: bool = True) -> Float[Tensor, "N D"]:
        """A vector for each text, of length 1 if `normalize`."""
        if not self.spells:
            vectors = self.framed_vectors(texts)
        else:
            check_list("texts", texts)
            groups = [texts[start : start + AT_ONCE] for start in range(0, len(texts), AT_ONCE)]
            rows = [
                self.model.embed(**self.spelled(list(map(self.words, group)))).cpu()
                for group in track(groups, "texts:", len(texts), len)
            ]
            vectors = torch.cat(rows) if rows else torch.empty(0, 2 * self.model.config.dim)
        return F.normalize(vectors, dim=-1) if normalize else vectors

    def framed_vectors(self, texts: Sequence[str]) -> Float[Tensor, "N D"]:
        """The vectors of texts by the model's vocabulary."""
        framed = self.frame(texts)
        vectors = torch.empty(len(framed), 2 * self.model.config.dim, dtype=next(self.model.parameters()).dtype)
        for indices, inputs in self.batches(framed):
            vectors[indices] = self.model.embed(**inputs)
        return vectors

    def read(self, *texts: str, target: Any = None, kept: int | None = None, **options: Any) -> Prepared:
        if not self.spells:
            return read_encoder(self, *texts, target=target, kept=kept, **options)
        check_texts(self, texts, 1, target, kept)
        spans: list[tuple[int, int] | None] = [None, *(match.span() for match in WORDS.finditer(texts[0])), None]
        words = WORDS.findall(texts[0])
        sequence = TokenSequence("text", "Text", ["<S>", *words, "</S>"], text=texts[0], spans=spans)

        def embed(inputs: dict[str, Tensor]) -> Float[Tensor, "B D"]:
            return self.model.embed(**inputs)

        return Prepared(
            model=self.model, inputs=self.spelled([words]), run=lambda inputs: embed(inputs)[:, None],
            sequences=[sequence], answers="vector", choose=lambda prepared: Outputs([0], [0], all_tokens(len(spans))),
            embed=embed, request={"text": texts[0]}, tower=parts.text_tower(self.model),
        )  # fmt: skip

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        """Bits per byte of held-out text, mean of both directions."""
        if self.spells:
            raise ValueError(f"{test.run} has no vocabulary to predict; it has vectors only: regard embed {test.run} …")
        text = read_text(test.data.text) if "text" in test.named else test.data.held_out()
        ids = encode_text(self.tokenizer, text)
        count, context = min(test.limit or TOKENS, TOKENS), self.model.config.max_len
        size = len(self.tokenizer.decode(ids[:count].tolist()).encode())
        loss, tokens = 0.0, 0
        with torch.inference_mode():
            for batch in text_batches(ids[:count], context, max(1, 4096 // context)):
                summed, number = both_sides(self.model, batch)
                loss, tokens = loss + summed.item(), tokens + number
        bits = loss / tokens * len(ids[:count]) / size / 0.6931471805599453
        scores = {"bits_per_byte": round(bits, 4), "perplexity": round(2.718281828459045 ** (loss / tokens), 2)}
        return Scored(
            scores=scores | {"examples": tokens}, outputs=[], lower=True, total=min(len(ids), TOKENS), unit="tokens",
            summary=f"bits per byte {bits:.3f}, mean of both directions ({tokens:,} predictions)",
        )  # fmt: skip

    def baselines(self, test: EvalSet, scored: Scored) -> dict[str, dict[str, float]]:
        return {"any byte": {"bits_per_byte": 8.0}}

    def samples(self, test: EvalSet, run: Path) -> Samples:
        texts = list(DOCUMENTATION)[:2]
        commands = [f"regard embed {run} {quoted(texts[0])}", f"regard eval {run}"]
        return Samples(commands=commands, examples=[Example(inputs=(text,)) for text in texts])
