"""A vocabulary of whole words, for models that have a vector for each word and none for what lies between them.

Unlike the tokenizers of `Tokenizer.train`: spaces and punctuation have no ids, and a rare word is `<unk>`.
"""

from collections.abc import Iterable

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from regard.tokens.corpus import corpus
from regard.tokens.tokenizer import Tokenizer

PATTERN = r"[\p{L}\p{M}\p{N}]+(?:['’][\p{L}\p{M}]+)*"
"""A word: letters and digits, with apostrophes inside."""
UNKNOWN = "<unk>"


def word_tokenizer(texts: Iterable[str], *, vocab_size: int, min_count: int = 1, lowercase: bool = True) -> Tokenizer:
    """Return a tokenizer of at most `vocab_size` entries: `<unk>`, then the words that occur at least `min_count`
    times, the most frequent first."""
    if vocab_size < 2 or min_count < 1:
        raise ValueError(f"vocab_size={vocab_size} must be at least 2, min_count={min_count} at least 1")
    inner = tokenizers.Tokenizer(models.WordLevel({UNKNOWN: 0}, unk_token=UNKNOWN))
    if lowercase:
        inner.normalizer = normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(PATTERN), "removed", invert=True)
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocab_size, min_frequency=min_count, special_tokens=[UNKNOWN], show_progress=False
    )
    inner.train_from_iterator(corpus(None, texts), trainer)
    if inner.get_vocab_size() < 2:
        raise ValueError(f"no word occurs {min_count} times in the text; give more text, or lower --data.min-count")
    return Tokenizer(inner)
