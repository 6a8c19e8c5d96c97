"""Tokenizers that `transformers` and `tokenizers` write themselves, on a vocabulary learned from a few lines."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import pre_tokenizers, trainers

LINES = [
    "The cat sat on the mat, and the cat's hat fell. Don't sit on the hat! It's 1999, not 2000.",
    "Where was Ada Lovelace born? Ada Lovelace was born in London in December of the year 1815 (a Sunday).",
    "Der Kater saß auf der Matte; größer, schöner. Çok güzel. Привет, мир! 你好，世界。 हिन्दी में नमस्ते",
    "unseen words are spelled with pieces of words that were seen; so nothing is unknown, or nearly nothing",
] * 3
TEXTS = [
    *LINES[:4],
    "",
    " ",
    "  two  spaces, tabs\tand\nlines ",
    "naïve café — déjà vu… 東京 😀👩‍👩‍👧 x² ½",
    "e\u0301 a\u0323\u0302 ﬁ Å \u212b ٣",
    "antidisestablishmentarianism" * 6,
]
NAMES = "[CLS] [SEP] </s> <s> <mask> [MASK] <unk> <pad>a<extra_id_0> <extra_id_12> <0x41>"


def word_pieces() -> dict[str, int]:
    trained = tokenizers.BertWordPieceTokenizer()
    trained.train_from_iterator(LINES, vocab_size=330, show_progress=False)
    return trained.get_vocab()


def byte_level(directory: Path, *names: str) -> None:
    """vocab.json and merges.txt, with the special tokens first."""
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator(LINES, vocab_size=360, show_progress=False, special_tokens=list(names))
    trained.save_model(str(directory))


def unigram(*names: str) -> list[tuple[str, float]]:
    """Pieces and scores, with the special tokens first."""
    trained = tokenizers.Tokenizer(tokenizers.models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=list(names), unk_token="<unk>", show_progress=False
    )
    trained.train_from_iterator(LINES, trainer)
    pieces = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    scores = dict(json.loads(trained.model.__getstate__())["vocab"])
    return [(piece, scores[piece]) for piece, _ in pieces]


@pytest.fixture(scope="session")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any]]:
    """For each kind of model a directory with tokenizer.json, and the `transformers` tokenizer that wrote it."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("theirs")
    (folder / "files").mkdir()
    byte_level(folder / "files", "<s>", "<pad>", "</s>", "<unk>", "<mask>")
    made = {
        "bert": transformers.BertTokenizer(vocab=word_pieces()),
        "roberta": transformers.RobertaTokenizer.from_pretrained(folder / "files"),
        "t5": transformers.T5Tokenizer(
            vocab=unigram("<pad>", "</s>", "<unk>", *(f"<extra_id_{n}>" for n in reversed(range(7)))), extra_ids=7
        ),
        "albert": transformers.AlbertTokenizer(vocab=unigram("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")),
    }
    for kind, tokenizer in made.items():
        tokenizer.save_pretrained(folder / kind)
    return {kind: (folder / kind, tokenizer) for kind, tokenizer in made.items()}
