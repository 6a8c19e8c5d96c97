"""Tokenizers without a tokenizer.json, against `sentencepiece` and the classes of `transformers` that read them."""

import io
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from regard.tokens import Tokenizer
from regard.tokens.published import FAMILIES
from regard.tokens.spm import BPE, UNIGRAM, read_pieces
from tests.tokens.conftest import LINES, NAMES, TEXTS, byte_level, word_pieces

sentencepiece = pytest.importorskip("sentencepiece")
transformers = pytest.importorskip("transformers")

MODELS: dict[str, dict[str, Any]] = {
    "unigram": {"vocab_size": 300, "model_type": "unigram"},
    "unigram bytes": {"vocab_size": 500, "model_type": "unigram", "byte_fallback": True, "character_coverage": 0.98},
    "unigram bare": {"vocab_size": 300, "model_type": "unigram", "add_dummy_prefix": False}
    | {"normalization_rule_name": "identity", "remove_extra_whitespaces": False},
    "unigram user": {"vocab_size": 300, "model_type": "unigram", "user_defined_symbols": ["(", "<sep>", "ca"]}
    | {"control_symbols": ["[CLS]", "[SEP]", "[MASK]"], "pad_id": 3},
    "unigram across": {"vocab_size": 300, "model_type": "unigram", "split_by_whitespace": False},
    "bpe": {"vocab_size": 300, "model_type": "bpe", "character_coverage": 0.98},
    "bpe bytes": {"vocab_size": 600, "model_type": "bpe", "byte_fallback": True, "character_coverage": 0.98}
    | {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True},
    "bpe folded": {"vocab_size": 300, "model_type": "bpe", "normalization_rule_name": "nmt_nfkc_cf"},
    "bpe user": {"vocab_size": 300, "model_type": "bpe", "user_defined_symbols": ["<sep>"], "add_dummy_prefix": False},
}
T5_IDS = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}


def train(**options: Any) -> bytes:
    file = io.BytesIO()
    limit = {"hard_vocab_limit": False} if options["model_type"] == "unigram" else {}
    options = {"sentence_iterator": iter(LINES), "minloglevel": 2, "num_threads": 1} | limit | options
    sentencepiece.SentencePieceTrainer.train(model_writer=file, **options)
    return file.getvalue()


def write(folder: Path, files: dict[str, Any]) -> Path:
    """A directory; what is bytes or text is written as it is, the rest as JSON."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        raw = content if isinstance(content, bytes) else content.encode() if isinstance(content, str) else None
        (folder / name).write_bytes(json.dumps(content).encode() if raw is None else raw)
    return folder


def unicode_texts(count: int = 400) -> list[str]:
    """Words of the lines, letters of many scripts, marks, signs, spaces of all kinds and controls, mixed."""
    rng = random.Random(5)
    ranges = [(0x20, 0x250), (0x370, 0x400), (0x900, 0x980), (0x1EA0, 0x1EFA), (0x2000, 0x2070), (0x3040, 0x3100)]
    ranges += [(0xAC00, 0xAC40), (0xFF00, 0xFF60), (0x1F600, 0x1F650), (0x4E00, 0x4E80), (0x00, 0x20)]
    pools = [[chr(code) for code in range(*ends)] for ends in ranges]
    pools += [" ".join(LINES[:4]).split(), list(" abcthe")]
    texts = []
    for _ in range(count):
        parts = ["".join(rng.choices(rng.choice(pools), k=rng.randint(1, 6))) for _ in range(rng.randint(1, 6))]
        texts.append(rng.choice(["", " "]).join(parts))
    return texts


@pytest.mark.parametrize("kind", MODELS)
def test_the_same_ids_as_sentencepiece(kind: str, tmp_path: Path) -> None:
    raw = train(**MODELS[kind])
    their = sentencepiece.SentencePieceProcessor(model_proto=raw)
    folder = write(tmp_path, {"tokenizer.model": raw, "config.json": {"model_type": "llama"}})
    tokenizer = Tokenizer.load(folder)
    model = read_pieces(folder / "tokenizer.model")
    assert model.algorithm == (UNIGRAM if "unigram" in kind else BPE)
    assert [(piece.name, piece.score) for piece in model.pieces] == [
        (their.id_to_piece(id), their.get_score(id)) for id in range(len(their))
    ]
    texts = [*TEXTS, *LINES, *unicode_texts()]
    ours = tokenizer.encode_batch(texts)
    # Of segmentations with equal scores the two may choose differently: the long run of one word is such a text.
    wrong = [text for text, ids in zip(texts, ours, strict=True) if ids != their.encode(text)]
    assert len(wrong) <= len(texts) // 200, wrong
    for text, ids in zip(texts, ours, strict=True):
        if text not in wrong and their.unk_id() not in ids:
            assert tokenizer.decode(ids) == their.decode(ids)
    assert Tokenizer.load(tokenizer.save(tmp_path / "again")).encode_batch(texts) == ours
    assert not {their.bos_id(), their.eos_id(), their.pad_id()} & set(tokenizer.encode(NAMES))
    assert "bytes" not in kind or tokenizer.inner.token_to_id("<0x41>") not in tokenizer.encode(NAMES)


def test_special_names_in_a_text_are_spelled_as_sentencepiece_spells_them(tmp_path: Path) -> None:
    raw = train(required_chars="</>[]", **MODELS["unigram user"])  # of signs that are unknown, two would be one
    their = sentencepiece.SentencePieceProcessor(model_proto=raw)
    tokenizer = Tokenizer.load(write(tmp_path, {"tokenizer.model": raw, "config.json": {"model_type": "llama"}}))
    for text in ["the </s> cat", "</s>", "<s><unk><pad>", "a<s>", "[CLS] the [MASK]", "<sep>a<sep>", "(the) cat("]:
        assert tokenizer.encode(text) == their.encode(text), text


# --- frames, as each kind of model wants them


@pytest.mark.parametrize(
    "settings",
    [{}, {"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}, {"mask_token": "[X]"}],
)
def test_bert(settings: dict[str, Any], tmp_path: Path) -> None:
    entries = word_pieces()
    vocabulary = sorted(entries, key=entries.__getitem__) + ["\u2028", "[X]", "The", "é"]
    folder = write(tmp_path, {"vocab.txt": "\n".join(vocabulary) + "\n", "tokenizer_config.json": settings})
    their = transformers.BertTokenizer.from_pretrained(folder)
    tokenizer = Tokenizer.load(folder)
    texts = [*TEXTS, NAMES, *unicode_texts(200)]
    assert len(tokenizer) == len(their) == len(vocabulary)
    wanted = their(texts, texts[::-1], split_special_tokens=True)
    framed = tokenizer.frame(texts, texts[::-1])
    assert [row.ids for row in framed] == wanted["input_ids"]
    assert [row.types for row in framed] == wanted["token_type_ids"]
    assert tokenizer.mask == their.mask_token_id and tokenizer.pad == their.pad_token_id
    assert tokenizer.decode_batch(wanted["input_ids"]) == their.backend_tokenizer.decode_batch(wanted["input_ids"])


@pytest.mark.parametrize("kind", ["GPT2", "Roberta", "Bart"])
@pytest.mark.parametrize("prefix", [False, True])
@pytest.mark.parametrize("hint", ["config.json", "tokenizer_config.json"])
def test_byte_level(kind: str, prefix: bool, hint: str, tmp_path: Path) -> None:
    byte_level(tmp_path, "<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|endoftext|>")
    named = {
        "config.json": {"model_type": kind.lower()},
        "tokenizer_config.json": {"tokenizer_class": f"{kind}Tokenizer"},
    }
    settings = (named["tokenizer_config.json"] if hint == "tokenizer_config.json" else {}) | {
        "add_prefix_space": prefix
    }
    write(tmp_path, {hint: named[hint], "tokenizer_config.json": settings})
    their = getattr(transformers, f"{kind}Tokenizer").from_pretrained(tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    texts = [*TEXTS, NAMES, *unicode_texts(200)]
    for pair in ((texts,), (texts, texts[::-1])):
        assert [row.ids for row in tokenizer.frame(*pair)] == their(*pair, split_special_tokens=True)["input_ids"]
    assert (tokenizer.bos, tokenizer.eos) == (their.bos_token_id, their.eos_token_id)
    assert tokenizer.decode(tokenizer.encode(TEXTS[3])) == " " * prefix + TEXTS[3]
    if kind != "GPT2":
        masked = tokenizer.frame(["the <mask> sat"], parse_special=True)[0]
        assert masked.ids == [0, *tokenizer.encode("the"), 4, *tokenizer.encode(" sat"), 2]


def clip_files(folder: Path) -> dict[str, int]:
    """vocab.json and merges.txt as CLIP has them: all bytes, the same at the end of a word, what was learned, marks."""
    trained = tokenizers.Tokenizer(tokenizers.models.BPE(end_of_word_suffix="</w>"))
    trained.normalizer = tokenizers.normalizers.Lowercase()
    trained.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=340, end_of_word_suffix="</w>", show_progress=False)
    trained.train_from_iterator(LINES, trainer)
    merges = [tuple(pair) for pair in json.loads(trained.to_str())["model"]["merges"]]
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    entries = dict.fromkeys([*letters, *(f"{letter}</w>" for letter in letters), *map("".join, merges)])
    vocabulary = {entry: id for id, entry in enumerate([*entries, "<|startoftext|>", "<|endoftext|>"])}
    lines = "\n".join(["#version: 0.2", *(" ".join(pair) for pair in merges)]) + "\n"
    write(folder, {"vocab.json": vocabulary, "merges.txt": lines, "config.json": {"model_type": "clip"}})
    return vocabulary


@pytest.mark.parametrize("files", ["vocab.json", "tokenizer.json"])
def test_clip(files: str, tmp_path: Path) -> None:
    """Pieces that end a word, no spaces, no capitals; and the end of text fills up shorter texts."""
    vocabulary = clip_files(tmp_path)
    their = transformers.CLIPTokenizer.from_pretrained(tmp_path)
    if files == "tokenizer.json":
        their.save_pretrained(tmp_path / "saved")
        tmp_path = tmp_path / "saved"
    tokenizer = Tokenizer.load(tmp_path)
    size = len(vocabulary)
    assert len(tokenizer) == len(their) == size
    assert (tokenizer.bos, tokenizer.eos, tokenizer.pad) == (size - 2, size - 1, size - 1)
    texts = [*TEXTS, NAMES, "They're HERE; it's 1999's", "a <|endoftext|> b<|startoftext|>", *unicode_texts(200)]
    for pair in ((texts,), (texts, texts[::-1])):
        assert [row.ids for row in tokenizer.frame(*pair)] == their(*pair, split_special_tokens=True)["input_ids"]
    ids = tokenizer.encode("The cat's hat fell.")
    assert tokenizer.decode(ids) == their.decode(ids) == "the cat 's hat fell ."
    cut = tokenizer.frame([LINES[0]], max_len=7)[0].ids
    assert cut == their(LINES[0], max_length=7, truncation=True)["input_ids"] and cut[-1] == tokenizer.eos
    again = Tokenizer.load(tokenizer.save(tmp_path / "again"))
    assert [row.ids for row in again.frame(texts)] == [row.ids for row in tokenizer.frame(texts)]
    assert again.decode(ids) == tokenizer.decode(ids)


def test_t5(tmp_path: Path) -> None:
    raw = train(vocab_size=300, model_type="unigram", **T5_IDS)
    folder = write(tmp_path, {"spiece.model": raw, "tokenizer_config.json": {"tokenizer_class": "T5Tokenizer"}})
    model = read_pieces(folder / "spiece.model")
    sentinels = [(f"<extra_id_{number}>", 0.0) for number in reversed(range(100))]
    their = transformers.T5Tokenizer(
        vocab=[(piece.name, piece.score) for piece in model.pieces] + sentinels,
        _spm_precompiled_charsmap=model.charsmap,
    )
    tokenizer = Tokenizer.load(folder)
    assert len(tokenizer) == len(their) == len(model.pieces) + 100
    assert tokenizer.sentinels == [their.convert_tokens_to_ids(f"<extra_id_{number}>") for number in range(100)]
    assert tokenizer.sentinels[0] == len(tokenizer) - 1
    assert (tokenizer.pad, tokenizer.eos, tokenizer.unk, tokenizer.bos) == (0, 1, 2, None)
    texts = [text for text in [*TEXTS, *LINES] if "\u0323" not in text]
    for pair in ((texts,), (texts, texts[::-1])):
        assert [row.ids for row in tokenizer.frame(*pair)] == their(*pair)["input_ids"]
    spans = "the <extra_id_0> sat <extra_id_1> on<extra_id_99>"
    assert tokenizer.frame([spans], parse_special=True)[0].ids == their(spans)["input_ids"]
    fewer = write(tmp_path / "fewer", {"spiece.model": raw, "config.json": {"model_type": "t5"}})
    write(fewer, {"tokenizer_config.json": {"extra_ids": 3}})
    assert len(Tokenizer.load(fewer).sentinels) == 3


@pytest.mark.parametrize("settings", [{}, {"do_lower_case": False, "keep_accents": True}])
def test_albert(settings: dict[str, Any], tmp_path: Path) -> None:
    options = {"control_symbols": ["[CLS]", "[SEP]", "[MASK]"], "pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1}
    raw = train(vocab_size=300, model_type="unigram", unk_surface="", **options)
    folder = write(
        tmp_path, {"spiece.model": raw, "config.json": {"model_type": "albert"}, "tokenizer_config.json": settings}
    )
    model = read_pieces(folder / "spiece.model")
    their = transformers.AlbertTokenizer(
        vocab=[(piece.name, piece.score) for piece in model.pieces],
        _spm_precompiled_charsmap=model.charsmap,
        **settings,
    )
    tokenizer = Tokenizer.load(folder)
    texts = [*[text for text in TEXTS if "\u0323" not in text], "``quoted''  THE ÉCOLE"]
    wanted, framed = their(texts, texts[::-1], return_token_type_ids=True), tokenizer.frame(texts, texts[::-1])
    assert [row.ids for row in framed] == wanted["input_ids"]
    assert [row.types for row in framed] == wanted["token_type_ids"]
    masked = tokenizer.frame(["the [MASK] sat"], parse_special=True)[0].ids
    assert masked == [2, *tokenizer.encode("the"), 4, *tokenizer.encode("sat"), 3]


@pytest.mark.parametrize(
    ("settings", "before", "after"),
    [({}, [1], []), ({"add_eos_token": True}, [1], [2]), ({"add_bos_token": False, "add_eos_token": False}, [], [])],
)
def test_llama(settings: dict[str, Any], before: list[int], after: list[int], tmp_path: Path) -> None:
    raw = train(**MODELS["bpe bytes"])
    write(tmp_path, {"tokenizer.model": raw, "config.json": {"model_type": "llama"}, "tokenizer_config.json": settings})
    tokenizer = Tokenizer.load(tmp_path)
    their = sentencepiece.SentencePieceProcessor(model_proto=raw)
    one, two = their.encode("the cat"), their.encode("sat 😀")
    framed = tokenizer.frame(["the cat"], ["sat 😀"])[0]
    assert framed.ids == [*before, *one, *after, *before, *two, *after]
    assert tokenizer.frame(["the cat"])[0].ids == [*before, *one, *after]
    side = [number for number in framed.side if number is not None]
    assert side == [0] * len(one) + [1] * len(two)
    assert tokenizer.decode(one) == "the cat"


def test_xlm_roberta(tmp_path: Path) -> None:
    raw = train(vocab_size=300, model_type="unigram")
    write(tmp_path, {"sentencepiece.bpe.model": raw, "config.json": {"model_type": "xlm-roberta"}})
    model = read_pieces(tmp_path / "sentencepiece.bpe.model")
    first = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")]
    their = transformers.XLMRobertaTokenizer(
        vocab=[*first, *((piece.name, piece.score) for piece in model.pieces[3:]), ("<mask>", 0.0)],
        _spm_precompiled_charsmap=model.charsmap,
    )
    tokenizer = Tokenizer.load(tmp_path)
    texts = [text for text in TEXTS if "\u0323" not in text]
    assert [row.ids for row in tokenizer.frame(texts, texts[::-1])] == their(texts, texts[::-1])["input_ids"]
    assert tokenizer.mask == their.mask_token_id == len(tokenizer) - 1


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_marian(tmp_path: Path) -> None:
    halves = [LINES[:2] + LINES[3:4], LINES[2:3]]
    models = [train(vocab_size=150, model_type="unigram", sentence_iterator=iter(lines * 5)) for lines in halves]
    write(tmp_path, {"source.spm": models[0], "target.spm": models[1]})
    names = {piece.name for file in ("source.spm", "target.spm") for piece in read_pieces(tmp_path / file).pieces}
    names -= {"<s>", "</s>", "<unk>"}
    order = ["</s>", "<unk>", *sorted(names), ">>deu<<", "<pad>"]
    vocabulary = {name: id for id, name in enumerate(order)}
    write(tmp_path, {"vocab.json": vocabulary, "config.json": {"model_type": "marian"}})
    their = transformers.MarianTokenizer.from_pretrained(tmp_path)
    tokenizer, target = Tokenizer.load(tmp_path), Tokenizer.load(tmp_path, target=True)
    assert (tokenizer.pad, tokenizer.eos, tokenizer.unk, tokenizer.bos) == (len(order) - 1, 0, 1, None)
    # Runs of what only the target knows are one unknown piece for them, and 999 has two equal segmentations.
    texts = [text for text in [*TEXTS, ">>deu<< the cat", "a ß, b"] if not re.search("हि|東|99", text)]
    assert [row.ids for row in tokenizer.frame(texts)] == their(texts)["input_ids"]
    german = [LINES[2], "der Kater", "", " auf  der Matte; ", "größer."]
    assert [row.ids for row in target.frame(german)] == their(text_target=german)["input_ids"]
    ids = target.encode(LINES[2])
    assert tokenizer.decode(ids) == target.decode(ids) == their.decode(ids, use_source_tokenizer=False)
    assert tokenizer.encode("ß")[-1] == vocabulary["ß"], "what only the target's pieces have is not unknown"
    assert 0 not in tokenizer.encode("a </s> b")
    with pytest.raises(ValueError, match="vocabulary of its own"):
        write(tmp_path, {"tokenizer_config.json": {"separate_vocabs": True}})
        Tokenizer.load(tmp_path)


# --- settings beside the files


def test_added_tokens_and_special_tokens_map(tmp_path: Path) -> None:
    byte_level(tmp_path, "<|endoftext|>")
    size = len(json.loads((tmp_path / "vocab.json").read_text()))
    files: dict[str, Any] = {
        "config.json": {"model_type": "gpt2"},
        "added_tokens.json": {"<new>": size + 1, "<|pad|>": size},
        "special_tokens_map.json": {"pad_token": "<|pad|>", "eos_token": {"content": "<|endoftext|>", "lstrip": False}},
    }
    tokenizer = Tokenizer.load(write(tmp_path, files))
    assert tokenizer.pad == size and len(tokenizer) == size + 2
    assert tokenizer.encode("a<new>b")[1] == size + 1, "an added token that is not special is always read"
    assert size not in tokenizer.encode("a<|pad|>b")
    assert tokenizer.decode([size, *tokenizer.encode("a")]) == "a"
    with pytest.raises(
        ValueError, match=rf"'<new>' should have the id {size + 9}, but it would be {size + 1}; open it"
    ):
        Tokenizer.load(write(tmp_path, {"added_tokens.json": {"<new>": size + 9, "<|pad|>": size}}))


def test_the_added_tokens_of_a_tokenizer_config(tmp_path: Path) -> None:
    entries = word_pieces()
    size = len(entries)
    added = {
        str(size): {"content": "[new]", "special": True, "lstrip": True},
        "4": {"content": "[MASK]", "special": True},
    }
    settings = {"added_tokens_decoder": added, "additional_special_tokens": ["[new]", "[last]"]}
    vocabulary = "\n".join(sorted(entries, key=entries.__getitem__))
    folder = write(tmp_path, {"vocab.txt": vocabulary, "tokenizer_config.json": settings})
    tokenizer = Tokenizer.load(folder, parse_special=True)
    assert tokenizer.encode("the [new][last]") == [*tokenizer.encode("the"), size, size + 1]
    assert tokenizer.mask == 4 and len(tokenizer) == size + 2


# --- what cannot be read


def test_what_cannot_be_read_says_so(tmp_path: Path) -> None:
    def message(files: dict[str, Any], **options: Any) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        with pytest.raises(ValueError) as caught:
            Tokenizer.load(write(folder, files), **options)
        text = str(caught.value)
        assert "\n" not in text and str(folder) in text
        return text.replace(f"{folder}/", "").replace(str(folder), "here")

    raw = train(**MODELS["unigram"])
    llama = {"config.json": {"model_type": "llama"}}
    assert message({"merges.txt": ""}).startswith("here: no config.json says whose tokenizer this is")
    assert "'ctrl' is not known without a tokenizer.json" in message(
        {"merges.txt": "", "config.json": {"model_type": "ctrl"}}
    )
    strange = {"tokenizer_class": "BertJapaneseTokenizer"}
    assert "'BertJapanese' is not known" in message({"vocab.txt": "[UNK]", "tokenizer_config.json": strange})
    assert message({"merges.txt": "", "config.json": {"model_type": "gpt2"}}).startswith("vocab.json: no such file")
    assert message({"merges.txt": "", "config.json": {"model_type": "bert"}}).startswith("vocab.txt: no such file")
    assert message({"merges.txt": "", **llama}).startswith("spiece.model: no such file")
    wrong = {
        "merges.txt": "#version: 0.2\na b\n",
        "vocab.json": {"a": 0, "b": 1},
        "config.json": {"model_type": "gpt2"},
    }
    assert message(wrong).startswith("merges.txt, line 2: 'a b' does not fit the vocab.json beside it")
    assert message(wrong | {"merges.txt": "a b c\n"}).startswith("merges.txt, line 1: 'a b c' does not fit")
    assert message(wrong | {"merges.txt": "", "vocab.json": "[1, 2]"}).startswith("vocab.json holds list")
    assert message(wrong | {"merges.txt": "", "vocab.json": "{"}).startswith("vocab.json is not valid JSON")
    assert message({"vocab.txt": b"\xff"}).startswith("vocab.txt: not UTF-8 at byte 0")
    assert message({"vocab.txt": "a\nb"}).startswith("vocab.txt: has no '[UNK]'")
    assert "sep token '[SEP]' is not in the vocabulary" in message({"vocab.txt": "[UNK]\na"})
    for bad in (raw[:-7], raw[5:], b"", b"text, and no model", b"\x0a\xff"):
        assert message({"tokenizer.model": bad, **llama}).startswith("tokenizer.model: not a SentencePiece model")
    words = train(vocab_size=30, model_type="word")
    assert message({"tokenizer.model": words, **llama}).startswith("tokenizer.model: only Unigram and BPE")
    holes = {"source.spm": raw, "vocab.json": {"<unk>": 0, "a": 2}}
    assert message(holes).startswith("vocab.json: the ids are not 0 to 1")
    assert message({"source.spm": raw, "vocab.json": {"<unk>": 0}}, target=True).startswith("target.spm: no such file")


def test_every_family_has_its_special_tokens() -> None:
    for family in FAMILIES.values():
        for role in ("bos", "eos", "cls", "sep"):
            assert f"{{{role}}}" not in family.single + family.pair or role in family.names
