"""Published tokenizers that have no `tokenizer.json`: vocabularies, merges and SentencePiece models beside the weights.

    vocab.txt                           WordPiece: BERT and its kin
    vocab.json + merges.txt             byte-level BPE: GPT-2, RoBERTa, BART; CLIP, whose words end with </w>
    spiece.model, tokenizer.model, …    SentencePiece: T5, ALBERT, Llama, XLM-RoBERTa
    source.spm, target.spm, vocab.json  Marian: two SentencePiece models over one vocabulary
    vocab.json                          wav2vec 2.0: letters, and a bar between words
    vocab.txt                           ESM: amino acids, or words of bases

The files do not say how a model wants its texts framed; which model it is stands in `tokenizer_config.json` or
`config.json`, and `FAMILIES` knows the rest.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from regard.config import MOST_BYTES, MOST_SIZE, one_line, parse, read_json, reading
from regard.files import read_bytes
from regard.tokens.residues import build_residues
from regard.tokens.spm import CONTROL, UNKNOWN, Piece, build, read_pieces

PIECE_FILES = ("spiece.model", "tokenizer.model", "sentencepiece.bpe.model")
FILES = ("vocab.txt", "vocab.json", "merges.txt", *PIECE_FILES, "source.spm")
WORD_END = "</w>"
AGAIN = "download it again"
SAVE = "open it once with transformers' AutoTokenizer and save_pretrained, which writes tokenizer.json"
FLAGS = ("special", "normalized", "lstrip", "rstrip", "single_word")
# The order in which new special tokens are given ids.
ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")

Settings = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Tokenizer settings of a family of published models."""

    read: Callable[["Source"], tuple[tokenizers.Tokenizer, list[str]]]
    """Function that builds the tokenizer from its files; returns it with the names of its special tokens."""
    names: Mapping[str, str]
    """Default special token of each role."""
    single: str = "$A"
    """The frame of one text; a role in braces is its special token."""
    pair: str = "$A $B:1"
    """The frame of two texts; `:1` marks the second segment."""
    ends: tuple[bool, bool] | None = None
    """Whether BOS and EOS are added to each text, for families where `tokenizer_config.json` decides."""
    mask_strips: bool = False
    """Whether the mask token includes the space before it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A checkpoint directory with its tokenizer settings and the options for reading it."""

    directory: Path
    settings: Settings
    names: Mapping[str, str]
    """The special token of each role, such as "bos" or "unk"."""
    target: bool = False
    """Whether the target language is read, where there are two."""


def has_files(directory: Path) -> bool:
    """Whether a directory has files of a published tokenizer."""
    return any((directory / name).is_file() for name in FILES)


def read_settings(directory: Path) -> dict[str, Any]:
    """The settings of `special_tokens_map.json` and `tokenizer_config.json`; the second decides where both have one."""
    return _read_settings(directory / "special_tokens_map.json") | _read_settings(directory / "tokenizer_config.json")


Token, Flag = str | dict | None, bool | None
SETTINGS: dict[str, Any] = {
    **{f"{role}_token": Token for role in ROLES}, "tokenizer_class": str | None, "added_tokens_decoder": dict | None,
    "additional_special_tokens": list | None, "extra_ids": int | None, "add_bos_token": Flag, "add_eos_token": Flag,
    "tokenize_chinese_chars": Flag, "strip_accents": Flag, "do_lower_case": Flag, "add_prefix_space": Flag,
    "keep_accents": Flag, "separate_vocabs": Flag,
}  # fmt: skip
"""The types of the settings that are read; others may be there."""
MOST_EXTRA = 10_000
"""Most sentinels that T5's `extra_ids` may add."""


def _read_settings(path: Path) -> dict[str, Any]:
    """The settings of a file, each of its type. Those that are null are left out, but for tokens, which there are not
    then."""
    with reading(path, AGAIN):
        stored = _read_json(path)
        settings = {name: value for name, value in stored.items() if value is not None or name.endswith("_token")}
        settings |= {name: parse(settings[name], SETTINGS[name], name) for name in settings.keys() & SETTINGS.keys()}
        if not 0 <= settings.get("extra_ids", 0) <= MOST_EXTRA:
            raise ValueError(f"extra_ids={settings['extra_ids']} is no number of sentinels; use 0 to {MOST_EXTRA:,}")
        added = settings.get("added_tokens_decoder", {})
        further = settings.get("additional_special_tokens", [])
        for id, token in [*added.items(), *((0, token) for token in further)]:
            parse(id, int, "added_tokens_decoder")
            parse(_content(token), str, "an added token")
        for role in ROLES:
            parse(_content(settings.get(f"{role}_token")), str | None, f"{role}_token")
    return settings


def read_files(directory: Path, *, target: bool = False) -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
    """Build the tokenizer of a directory without `tokenizer.json`; return it with the settings that its family
    implies."""
    settings = read_settings(directory)
    family = _family(directory, settings)
    named = {role: _content(settings[f"{role}_token"]) for role in ROLES if settings.get(f"{role}_token")}
    source = Source(directory=directory, settings=settings, names={**family.names, **named}, target=target)
    inner, special = family.read(source)
    _add_tokens(inner, source, [*special, *named.values()], source.names.get("mask") if family.mask_strips else None)
    single, pair = family.single, family.pair
    if family.ends:
        bos, eos = (
            settings.get(f"add_{end}_token", usual) for end, usual in zip(("bos", "eos"), family.ends, strict=True)
        )
        single = "{bos} " * bool(bos) + "$A" + " {eos}" * bool(eos)
        pair = f"{single} {single.replace('$A', '$B:1').replace('}', '}:1')}"
    inner.post_processor = _frame(inner, source, single, pair)
    return inner, {f"{role}_token": name for role, name in family.names.items()} | settings


def _family(directory: Path, settings: Settings) -> Family:
    """The kind of tokenizer in a directory, by its stated class, the model's type, or a file that only one kind has."""
    written = re.sub("(Tokenizer(Fast|sBackend)?|PreTrained)", "", settings.get("tokenizer_class") or "")
    name = written or parse(_read_json(directory / "config.json").get("model_type"), str | None, "model_type")
    if not name:
        kinds = {"vocab.txt": "bert", "source.spm": "marian"}
        name = next((kind for file, kind in kinds.items() if (directory / file).is_file()), None)
    key = re.sub("[-_]", "", name or "").lower()
    if key not in FAMILIES:
        fact = f"the tokenizer of {name!r} is not known" if name else "no config.json says whose tokenizer this is"
        raise ValueError(f"{directory}: {fact} without a tokenizer.json; {SAVE}")
    return FAMILIES[key]


def _read_wordpiece(source: Source) -> tuple[tokenizers.Tokenizer, list[str]]:
    # Only \n ends an entry: some are themselves what Python takes for the end of a line.
    entries = _text(source.directory / "vocab.txt").removesuffix("\n").split("\n")
    vocabulary = {entry: id for id, entry in enumerate(entries)}
    if source.names["unk"] not in vocabulary:
        raise ValueError(f"{source.directory / 'vocab.txt'}: has no {source.names['unk']!r}; download it again")
    inner = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=source.names["unk"]))
    inner.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=source.settings.get("tokenize_chinese_chars", True),
        strip_accents=source.settings.get("strip_accents"),
        lowercase=source.settings.get("do_lower_case", True),
    )
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    return inner, []


def _read_merges(source: Source) -> tuple[dict[str, int], list[tuple[str, str]]]:
    vocabulary = _read_ids(_existing(source.directory / "vocab.json"))
    path = source.directory / "merges.txt"
    merges = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        left, _, right = line.partition(" ")
        if {left, right, left + right} <= vocabulary.keys():
            merges.append((left, right))
        elif line and not line.startswith("#version"):
            raise ValueError(
                f"{path}, line {number}: {line!r} does not fit the vocab.json beside it; download both again"
            )
    return vocabulary, merges


def _read_byte_level(source: Source) -> tuple[tokenizers.Tokenizer, list[str]]:
    inner = tokenizers.Tokenizer(models.BPE(*_read_merges(source)))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=source.settings.get("add_prefix_space", False))
    inner.decoder = decoders.ByteLevel()
    return inner, []


def _read_clip(source: Source) -> tuple[tokenizers.Tokenizer, list[str]]:
    """CLIP's tokenizer: words in lower case, each with </w> at its end; the spaces between them are lost."""
    names = dict.fromkeys(source.names[role] for role in ("bos", "eos"))
    vocabulary, merges = _read_merges(source)
    model = models.BPE(vocabulary, merges, end_of_word_suffix=WORD_END, unk_token=source.names["unk"])
    inner = tokenizers.Tokenizer(model)
    spaces = normalizers.Replace(tokenizers.Regex(r"\s+"), " ")
    inner.normalizer = normalizers.Sequence([normalizers.NFC(), spaces, normalizers.Lowercase()])
    words = "|".join([*map(re.escape, names), r"'(?:s|t|re|ve|m|ll|d)", r"\p{L}+", r"\p{N}", r"[^\s\p{L}\p{N}]+"])
    split = pre_tokenizers.Split(tokenizers.Regex(words), behavior="removed", invert=True)
    inner.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    inner.decoder = decoders.ByteLevel()
    return inner, list(names)


def open_words(inner: tokenizers.Tokenizer) -> None:
    """Make decoding turn CLIP's </w> at the end of a word into a space, which its files leave out."""
    if getattr(inner.model, "end_of_word_suffix", None) == WORD_END and isinstance(inner.decoder, decoders.ByteLevel):
        steps = [decoders.ByteLevel(), decoders.Replace(WORD_END, " "), decoders.Strip(" ", 0, 1)]
        inner.decoder = decoders.Sequence(steps)


def _read_pieces(source: Source) -> tuple[tokenizers.Tokenizer, list[str]]:
    model = read_pieces(_piece_file(source))
    return build(model), model.special


def _read_t5(source: Source) -> tuple[tokenizers.Tokenizer, list[str]]:
    model = read_pieces(_piece_file(source))
    known = {piece.name for piece in model.pieces}
    sentinels = [f"<extra_id_{number}>" for number in reversed(range(source.settings.get("extra_ids", 100)))]
    extra = [Piece(name, kind=CONTROL) for name in sentinels if name not in known]
    model = replace(model, pieces=[*model.pieces, *extra])
    return build(model), model.special


def _read_albert(source: Source) -> tuple[tokenizers.Tokenizer, list[str]]:
    before: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not source.settings.get("keep_accents", False):
        before += [normalizers.NFKD(), normalizers.StripAccents()]
    if source.settings.get("do_lower_case", True):
        before.append(normalizers.Lowercase())
    model = read_pieces(_piece_file(source))
    # ALBERT keeps a comma apart from the digit before it: such a piece is only a last resort.
    pieces = [
        replace(piece, score=piece.score - 100) if re.search(r"\d,$", piece.name) else piece for piece in model.pieces
    ]
    return build(replace(model, pieces=pieces), before=before), model.special


def _read_xlm_roberta(source: Source) -> tuple[tokenizers.Tokenizer, list[str]]:
    """XLM-RoBERTa's tokenizer: pieces in their order, but the first three and one more laid out as RoBERTa's."""
    model = read_pieces(_piece_file(source))
    kinds = {"bos": CONTROL, "pad": CONTROL, "eos": CONTROL, "unk": UNKNOWN}
    first = [Piece(source.names[role], kind=kind) for role, kind in kinds.items()]
    model = replace(model, pieces=[*first, *model.pieces[3:], Piece(source.names["mask"], kind=CONTROL)])
    return build(model), model.special


def _read_marian(source: Source) -> tuple[tokenizers.Tokenizer, list[str]]:
    if source.settings.get("separate_vocabs"):
        fact = "each language has a vocabulary of its own, which is not read here"
        raise ValueError(f"{source.directory}: {fact}; use a checkpoint with one vocab.json for both")
    path = source.directory / "vocab.json"
    ids = _read_ids(_existing(path))
    if sorted(ids.values()) != list(range(len(ids))) or source.names["unk"] not in ids:
        fact = f"the ids are not 0 to {len(ids) - 1}, each once, with {source.names['unk']!r} among them"
        raise ValueError(f"{path}: {fact}; download it again")
    # What only the other language's pieces can spell is spelled with them; Marian takes a run of it for one unknown.
    model = read_pieces(_existing(source.directory / ("target.spm" if source.target else "source.spm")))
    inner = build(model, ids=ids)
    inner.add_tokens([AddedToken(name, normalized=False) for name in ids if re.fullmatch(">>.+<<", name)])
    return inner, [name for name in (*model.special, *source.names.values()) if name in ids]


def _read_letters(source: Source) -> tuple[tokenizers.Tokenizer, list[str]]:
    """wav2vec 2.0's letters, with a bar in place of each space; texts get the case of these, if it is one."""
    bar = parse(source.settings.get("word_delimiter_token", "|"), str, "word_delimiter_token")
    vocabulary = _read_ids(_existing(source.directory / "vocab.json"))
    inner = tokenizers.Tokenizer(models.BPE(vocabulary, [], unk_token=source.names["unk"]))
    capitals = [letter for letter in vocabulary if len(letter) == 1 and letter.isupper()]
    case: list[Any] = [normalizers.Replace(c.lower(), c) for c in capitals if c.lower() not in vocabulary]
    case = case if capitals else [normalizers.Lowercase()]
    inner.normalizer = normalizers.Sequence([normalizers.Replace(" ", bar), *case])
    inner.decoder = decoders.Sequence([decoders.Replace(bar, " "), decoders.Fuse()])
    return inner, []


ROBERTA = {"bos": "<s>", "eos": "</s>", "sep": "</s>", "cls": "<s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>"}
BERT = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
SEGMENTS: dict[str, Any] = {"single": "{cls} $A {sep}", "pair": "{cls} $A {sep} $B:1 {sep}:1"}
NO_SEGMENTS: dict[str, Any] = {
    "single": "{cls} $A {sep}", "pair": "{cls} $A {sep} {sep} $B {sep}", "names": ROBERTA, "mask_strips": True,
}  # fmt: skip

_bert = Family(read=_read_wordpiece, names=BERT, **SEGMENTS)
_gpt2 = Family(
    read=_read_byte_level,
    names=dict.fromkeys(("bos", "eos", "unk"), "<|endoftext|>"),
    ends=(False, False),
)
_llama = Family(read=_read_pieces, names={"unk": "<unk>", "bos": "<s>", "eos": "</s>"}, ends=(True, False))
_t5 = Family(
    read=_read_t5,
    names={"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
    single="$A {eos}",
    pair="$A {eos} $B {eos}",
)
FAMILIES = {
    **dict.fromkeys(("bert", "distilbert", "electra", "mobilebert"), _bert),
    **dict.fromkeys(("gpt2", "gptneo"), _gpt2),
    **dict.fromkeys(("roberta", "bart", "longformer"), Family(read=_read_byte_level, **NO_SEGMENTS)),
    **dict.fromkeys(("t5", "mt5"), _t5),
    **dict.fromkeys(("llama", "mistral"), _llama),
    "albert": Family(
        read=_read_albert,
        names=BERT | {"bos": "[CLS]", "eos": "[SEP]", "unk": "<unk>", "pad": "<pad>"},
        mask_strips=True,
        **SEGMENTS,
    ),
    "clip": Family(
        read=_read_clip,
        names={"bos": "<|startoftext|>"} | dict.fromkeys(("eos", "unk", "pad"), "<|endoftext|>"),
        single="{bos} $A {eos}",
        pair="{bos} $A {eos} {eos} $B {eos}",
    ),
    "xlmroberta": Family(read=_read_xlm_roberta, **NO_SEGMENTS),
    **dict.fromkeys(
        ("wav2vec2", "wav2vec2ctc"),
        Family(read=_read_letters, names={"pad": "<pad>", "bos": "<s>", "eos": "</s>", "unk": "<unk>"}),
    ),
    "esm": Family(
        read=lambda source: (build_residues(_text(source.directory / "vocab.txt").split(), source.names), []),
        names={name: f"<{name}>" for name in ("cls", "pad", "eos", "unk", "mask")},
        single="{cls} $A {eos}",
        pair="{cls} $A {eos} $B {eos}",
    ),
    "marian": Family(
        read=_read_marian,
        names={"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
        single="$A {eos}",
        pair="$A $B {eos}",
    ),
}


def _add_tokens(inner: tokenizers.Tokenizer, source: Source, special: list[str], strips: str | None) -> None:
    """Special and added tokens, in the order of their ids; the ids that the files give them are checked."""
    listed = sorted(source.settings.get("added_tokens_decoder", {}).items(), key=lambda item: int(item[0]))
    ids = {token["content"]: int(id) for id, token in listed}
    ids |= dict(sorted(_read_ids(source.directory / "added_tokens.json").items(), key=lambda item: item[1]))
    further = list(source.settings.get("additional_special_tokens") or ())
    written = [source.settings.get(f"{role}_token") for role in ROLES] + further + [token for _, token in listed]
    flags = {token["content"]: token for token in written if isinstance(token, dict)}
    # A role's usual name counts where the vocabulary has it.
    usual = [source.names[role] for role in ROLES if role in source.names]
    special = [*(name for name in usual if name in special or inner.token_to_id(name) is not None), *special]
    special += map(_content, further)
    for name in dict.fromkeys([*ids, *special]):
        known = {"special": name in special, "normalized": name not in special, "lstrip": name == strips}
        known |= {flag: flags[name][flag] for flag in FLAGS if flag in flags.get(name, {})}
        token = AddedToken(name, **known)
        (inner.add_special_tokens if token.special else inner.add_tokens)([token])
        if name in ids and inner.token_to_id(name) != ids[name]:
            fact = f"added token {name!r} should have the id {ids[name]}, but it would be {inner.token_to_id(name)}"
            raise ValueError(f"{source.directory}: {fact}; {SAVE}")


def _frame(inner: tokenizers.Tokenizer, source: Source, single: str, pair: str) -> processors.PostProcessor:
    if "{" not in single:  # nothing is added, and this says so: a file that says nothing gets our own frame
        return processors.ByteLevel(trim_offsets=True)
    names = {role: source.names[role] for role in ROLES if f"{{{role}}}" in single + pair}
    for role, name in names.items():
        if inner.token_to_id(name) is None:
            raise ValueError(f"{source.directory}: the {role} token {name!r} is not in the vocabulary; {SAVE}")
    special = [(name, inner.token_to_id(name)) for name in dict.fromkeys(names.values())]
    single, pair = single.format(**names), pair.format(**names)
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=special)


def _piece_file(source: Source) -> Path:
    present = [source.directory / name for name in PIECE_FILES if (source.directory / name).is_file()]
    return present[0] if present else _existing(source.directory / PIECE_FILES[0])


def _content(token: Any) -> Any:
    return token["content"] if isinstance(token, dict) else token


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"{path}: no such file; download the checkpoint again with all its files")
    return path


def _text(path: Path) -> str:
    try:
        return read_bytes(_existing(path), MOST_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 at byte {error.start}; download it again") from None


def _read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty where there is no file."""
    return read_json(path, AGAIN) if path.is_file() else {}


def _read_ids(path: Path) -> dict[str, int]:
    """The ids of tokens by name, from a JSON file; empty where there is no file."""
    with reading(path, AGAIN):
        stored = _read_json(path)
        ids = {name: parse(id, int, one_line(repr(name), 40)) for name, id in stored.items()}
        if not all(0 <= id < MOST_SIZE for id in ids.values()):
            raise ValueError(f"an id is below 0 or above {MOST_SIZE:,}; {AGAIN}")
    return ids
