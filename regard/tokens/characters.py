"""Words as characters: the bytes of each, between marks of its ends, as ELMo's models read them."""

BEGIN, END = "<S>", "</S>"
"""Stand for the beginning and the end of a text."""
ENDS = {BEGIN: 256, END: 257}
WORD_BEGIN, WORD_END, AFTER = 258, 259, 260
"""Characters beyond the 256 bytes; each is stored one higher, since 0 is padding."""


def spell(word: str, length: int) -> list[int]:
    """The ids of a word's characters, `length` of them; a longer word is cut."""
    inner = [ENDS[word]] if word in ENDS else list(word.encode())[: length - 2]
    ids = [WORD_BEGIN, *inner, WORD_END]
    return [id + 1 for id in ids + [AFTER] * (length - len(ids))]
