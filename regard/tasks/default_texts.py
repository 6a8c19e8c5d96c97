"""Texts that the page offers to try with models that have no examples of their own, such as published checkpoints."""

SENTENCES = (
    "A man is playing a guitar.", "Someone makes music.", "The stock market fell sharply today.",
    "Shares lost much of their value.",
)  # fmt: skip
"""Two pairs of similar meaning, in different words."""
PROMPTS = ("Once upon a time", "The capital of France is", "def fibonacci(n):")
DOCUMENTATION = ("Raise an error if the ", "The following example shows ", "This function returns a ")
"""Prompts for a model of Python's documentation."""
GREETINGS: tuple[str, ...] = (
    "Good morning, how are you?", "The house is wonderful.", "I would like a cup of coffee, please.",
)  # fmt: skip
PREFIXED: tuple[str, ...] = (
    "translate English to German: The house is wonderful.",
    "summarize: The storm came in the night. It took the roofs of nine houses, and the harbour is closed until Friday.",
)
"""Texts with the prefixes that T5 was trained with."""
REVIEWS = (
    "A wonderful film, and I would watch it again tomorrow.", "Dull, far too long, and the ending makes no sense.",
    "The acting is good, the story is not.",
)  # fmt: skip
NAMES = ("Marie Curie moved from Warsaw to Paris in 1891.", "Ada Lovelace worked with Charles Babbage in London.")
QUESTIONS = (
    ("Who built the bridge?", "William Arrol built the bridge. It was opened in 1890."),
    ("When was it opened?", "William Arrol built the bridge. It was opened in 1890."),
)
"""Questions, each with its passage."""
HIDDEN_WORDS = ("Paris is the [MASK] of France.", "She poured the [MASK] into a cup.")
PHRASES = ("a red circle", "a blue square", "a photo of a dog", "a photo of a city at night")
"""Texts to compare an image with."""


def beginnings(text: str, count: int = 3, words: int = 5) -> list[str]:
    """The first words of a few long lines of a text, each followed by a space."""
    lines = [line.split() for line in text[:100_000].splitlines()]
    return [" ".join(line[:words]) + " " for line in lines if len(line) > 2 * words][:count]
