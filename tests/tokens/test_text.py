"""Tokenizers: round trips for every string, parity with the library and `transformers`, and useful errors."""

import copy
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from regard.tokens import Tokenizer, read_chunks
from regard.tokens.corpus import CHUNK

KINDS = ["bpe", "word", "char"]
CORPUS = [
    "The cat sat on the mat, and the cat's hat fell. Don't sit on the hat! It's 1999, not 2000.",
    "Der Kater saß auf der Matte; größer, schöner. Çok güzel. Привет, мир! 你好，世界。 हिन्दी में नमस्ते",
    "emoji 😀 👩‍👩‍👧 and tabs\tand\r\nlines\n\n  twice  spaced",
]
TRAINED = {
    (kind, lowercase): Tokenizer.train(texts=CORPUS, kind=kind, vocab_size=320, lowercase=lowercase)
    for kind in KINDS
    for lowercase in (False, True)
}
HARD = [
    "",
    " ",
    "\n",
    "\r\n",
    "  leading and trailing  ",
    "\x00\x01\x1f\x7f\x85\xa0\u2028\u2029\ufeff",
    "é",
    "e\u0301",
    "가 \u1100\u1161 ﬁ Å \u212b",
    "👩‍👩‍👧‍👦🏳️‍🌈\U0010ffff\ufffd",
    "<pad><bos><eos> <eos>",
    "<0x41><0xE2> ▁ Ġ Ċ · ⟨E2⟩",
    "don’t DON'T 'tis 1234567 ١٢٣ x² ½ snake_case",
    "a\u0300\u0301\u0302 नि \u200d\u200c",
]
anything = st.text() | st.lists(st.sampled_from(HARD) | st.text(max_size=3), max_size=8).map("".join)


@settings(deadline=None, max_examples=400)
@given(anything)
def test_round_trip_of_every_string(text: str) -> None:
    for (_, lowercase), tokenizer in TRAINED.items():
        ids = tokenizer.encode(text)
        expected = normalizers.Lowercase().normalize_str(text) if lowercase else text
        assert tokenizer.decode(ids) == expected
        assert all(len(("<pad>", "<bos>", "<eos>")) <= id < len(tokenizer) for id in ids)
        assert len(tokenizer.pieces(ids)) == len(ids)
        assert tokenizer.decode([tokenizer.bos, *ids, tokenizer.eos, tokenizer.pad]) == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", HARD)
def test_round_trip_of_hard_strings(kind: str, text: str) -> None:
    tokenizer = TRAINED[kind, False]
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_lowercase_is_characterwise() -> None:
    tokenizer = TRAINED["bpe", True]
    assert tokenizer.decode(tokenizer.encode("ÀÉ Straße İ ΑΣ")) == "àé straße i\u0307 ας".replace("ς", "σ")


@pytest.mark.parametrize("kind", KINDS)
def test_every_unicode_character_round_trips(kind: str) -> None:
    text = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    parts = [text[start : start + 5000] for start in range(0, len(text), 5000)]
    tokenizer = TRAINED[kind, False]
    assert "".join(tokenizer.decode_batch(tokenizer.encode_batch(parts))) == text


@pytest.mark.parametrize("kind", KINDS)
def test_lone_surrogates_are_refused(kind: str) -> None:
    tokenizer = TRAINED[kind, False]
    for call in (tokenizer.encode, lambda text: tokenizer.encode_batch(["fine", text])):
        with pytest.raises(ValueError, match=r"lone surrogate U\+DC80 at character 2"):
            call("ab\udc80c")
    with pytest.raises(ValueError, match="lone surrogate"):
        Tokenizer.train(texts=["ok", "\ud800"], kind=kind, vocab_size=300)


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens(kind: str) -> None:
    tokenizer = Tokenizer.train(
        texts=["<eos> <mask> [SEP] <eos>"] * 9, kind=kind, vocab_size=400, specials=["<mask>", "[SEP]"]
    )
    assert (tokenizer.pad, tokenizer.bos, tokenizer.eos, tokenizer.mask, tokenizer.unk) == (0, 1, 2, 3, None)
    assert tokenizer.pieces([0, 1, 2, 3, 4]) == ["<pad>", "<bos>", "<eos>", "<mask>", "[SEP]"]
    assert tokenizer.decode([0, 1, 2, 3, 4]) == ""
    ids = tokenizer.encode("<eos> <mask>[SEP]")
    assert min(ids) > 4 and tokenizer.decode(ids) == "<eos> <mask>[SEP]"


def test_special_text_is_parsed_only_on_demand(tmp_path: Path) -> None:
    path = TRAINED["bpe", False].save(tmp_path)
    assert 2 not in Tokenizer.load(path).encode("a<eos>b")
    assert Tokenizer.load(path, parse_special=True).encode("a<eos>b")[1] == 2
    tokenizer = Tokenizer.load(path)
    text, a, b = "a<eos>b", tokenizer.encode("a"), tokenizer.encode("b")
    assert tokenizer.encode(text, parse_special=True) == [*a, 2, *b], "for one text"
    assert 2 not in tokenizer.encode(text), "and the next one is text again"
    with pytest.raises(ValueError, match="surrogate"):
        tokenizer.encode("\ud800", parse_special=True)


@pytest.mark.parametrize("name", ["mask", "<=>", "<0x41>", "<a b>", "", "<eos>", "<_>"])
def test_a_special_token_that_text_could_be_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="must look like"):
        Tokenizer.train(texts=CORPUS, vocab_size=400, specials=[name])


@pytest.mark.parametrize(("kind", "lowercase"), TRAINED)
def test_transformers_gives_the_same_ids(kind: str, lowercase: bool, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = TRAINED[kind, lowercase]
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tokenizer.save(tmp_path)))
    assert len(theirs) == len(tokenizer)
    for text in [*CORPUS, *HARD]:
        ids = theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        assert ids == tokenizer.encode(text)
        assert theirs.decode(ids, clean_up_tokenization_spaces=False) == tokenizer.decode(ids)


@pytest.mark.parametrize(("kind", "lowercase"), TRAINED)
def test_the_saved_file_alone_restores_everything(kind: str, lowercase: bool, tmp_path: Path) -> None:
    tokenizer = TRAINED[kind, lowercase]
    path = tokenizer.save(tmp_path / "run")
    assert path == tmp_path / "run" / "tokenizer.json" and os.listdir(path.parent) == ["tokenizer.json"]
    clones = [Tokenizer.load(path), Tokenizer.load(path.parent), pickle.loads(pickle.dumps(tokenizer))]
    for clone in [*clones, copy.deepcopy(tokenizer)]:
        assert (clone.kind, len(clone), clone.names) == (kind, len(tokenizer), tokenizer.names)
        assert clone.encode_batch([*CORPUS, *HARD]) == tokenizer.encode_batch([*CORPUS, *HARD])
        assert repr(clone) == f"Tokenizer(kind='{kind}', vocab_size={len(tokenizer)})"


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = TRAINED["char", False].save(tmp_path / "tokenizer.json")
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        TRAINED["bpe", False].save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["tokenizer.json"]


def test_batch_equals_single() -> None:
    for tokenizer in TRAINED.values():
        batch = tokenizer.encode_batch(CORPUS + HARD)
        assert batch == [tokenizer.encode(text) for text in CORPUS + HARD]
        assert tokenizer.decode_batch(batch) == [tokenizer.decode(ids) for ids in batch]


def test_an_id_outside_the_vocabulary_is_refused() -> None:
    tokenizer = TRAINED["bpe", False]
    for bad in (-100, len(tokenizer)):
        for call in (tokenizer.decode, tokenizer.pieces, lambda ids: tokenizer.decode_batch([[5], ids])):
            with pytest.raises(ValueError, match=f"id {bad} is outside the vocabulary of {len(tokenizer)}"):
                call([5, bad])


def test_pieces_are_readable() -> None:
    bpe = TRAINED["bpe", False]
    assert bpe.pieces(bpe.encode(" the\n\t☃")) == ["·the", "↵", "⇥", "⟨E2⟩", "⟨98⟩", "⟨83⟩"]
    char = TRAINED["char", False]
    assert char.pieces(char.encode("ß 😀\x00☃")) == ["ß", "·", "😀", "⟨00⟩", "⟨E2⟩", "⟨98⟩", "⟨83⟩"]
    word = TRAINED["word", False]
    assert word.pieces(word.encode(" the cat dog")) == ["·the", "·cat", "·", "d", "o", "g"]


def test_bpe_merges_stay_inside_words_and_digits_stand_alone() -> None:
    tokenizer = Tokenizer.train(texts=["of the 1999 and of the 1999, don't won't; a  b"] * 50, vocab_size=400)
    pieces = tokenizer.pieces(range(len(tokenizer)))
    assert "·the" in pieces and "'t" in pieces
    assert not [piece for piece in pieces if re.search(r"[^·]·|\d.|.\d", piece) and "⟨" not in piece]
    assert tokenizer.pieces(tokenizer.encode(" 1999")) == ["·", "1", "9", "9", "9"]


def test_bpe_equals_the_librarys_own_trainer() -> None:
    """On text without digits, marks and apostrophes our pattern and GPT-2's agree, so the merges must."""
    texts = [re.sub(r"[\d'’\u0900-\u097f\u200d]", "", text) for text in CORPUS] * 2
    theirs = tokenizers.ByteLevelBPETokenizer()
    theirs.train_from_iterator(
        texts,
        vocab_size=330,
        min_frequency=2,
        special_tokens=["<pad>", "<bos>", "<eos>"],
        show_progress=False,
    )
    ours = Tokenizer.train(texts=texts, vocab_size=330)
    assert ours.inner.get_vocab() == theirs.get_vocab() and len(ours) == 330
    assert ours.encode_batch(texts) == [theirs.encode(text).ids for text in texts]


def test_char_keeps_what_was_seen_most() -> None:
    full = Tokenizer.train(texts=["ééé ßß Я😀"], kind="char", vocab_size=1000)
    assert len(full) == 259 + 4
    assert full.encode("éßЯ😀") == [259, 260, 261, 262]
    small = Tokenizer.train(texts=["ééé ßß Я😀"], kind="char", vocab_size=260)
    assert small.pieces(small.encode("éß")) == ["é", "⟨C3⟩", "⟨9F⟩"]


def test_word_keeps_what_was_seen_most() -> None:
    texts = ["the cat the cat the dog", "don't stop; größer"]
    tokenizer = Tokenizer.train(texts=texts, kind="word", vocab_size=261)
    assert tokenizer.pieces([259, 260]) == ["·cat", "·the"]
    full = Tokenizer.train(texts=texts, kind="word", vocab_size=1000)
    assert full.pieces(full.encode("don't größer größer")) == ["don't", "·größer", "·größer"]
    assert all(len(full.encode(word)) == 1 for word in ("the", " cat", " größer", ";"))
    assert full.decode(full.encode("größtes")) == "größtes"


@pytest.mark.parametrize("kind", KINDS)
def test_smallest_vocabulary(kind: str) -> None:
    tokenizer = Tokenizer.train(texts=CORPUS, kind=kind, vocab_size=259)
    assert len(tokenizer) == tokenizer.vocab_size == 259 and tokenizer.kind == kind
    assert tokenizer.decode(tokenizer.encode(CORPUS[1])) == CORPUS[1]
    with pytest.raises(ValueError, match="vocab_size=258 is too small; use 259 or more"):
        Tokenizer.train(texts=CORPUS, kind=kind, vocab_size=258)
    with pytest.raises(ValueError, match="use 260 or more"):
        Tokenizer.train(texts=CORPUS, kind=kind, vocab_size=259, specials=["<mask>"])


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_repeatable_and_the_same_from_files(kind: str, tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.txt" for number in range(len(CORPUS))]
    for file, text in zip(files, CORPUS, strict=True):
        file.write_bytes(text.encode())
    learned = [
        Tokenizer.train(files, kind=kind, vocab_size=350),
        Tokenizer.train(map(str, files), kind=kind, vocab_size=350),
        Tokenizer.train(texts=iter(CORPUS), kind=kind, vocab_size=350),
    ]
    assert len({tokenizer.inner.to_str() for tokenizer in learned}) == 1


# --- published files


def published(folder: Path, inner: tokenizers.Tokenizer, **config: object) -> Path:
    folder.mkdir(exist_ok=True)
    inner.save(str(folder / "tokenizer.json"))
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def bert() -> tokenizers.Tokenizer:
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "."]
    inner = tokenizers.Tokenizer(models.WordPiece({name: id for id, name in enumerate(names)}, unk_token="[UNK]"))
    inner.normalizer, inner.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    inner.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    inner.add_special_tokens(names[:5])
    inner.enable_truncation(3)
    inner.enable_padding(length=8)
    return inner


def test_a_published_wordpiece(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(published(tmp_path, bert()))
    assert (tokenizer.pad, tokenizer.unk, tokenizer.bos, tokenizer.eos, tokenizer.mask) == (0, 1, 2, 3, 4)
    assert tokenizer.kind == "wordpiece" and len(tokenizer) == 9
    ids = tokenizer.encode("The cats. the cats.")
    assert ids == [5, 6, 7, 8, 5, 6, 7, 8], "nothing added, cut or padded"
    assert tokenizer.pieces([2, *ids[:3]]) == ["[CLS]", "the", "cat", "##s"]
    assert tokenizer.decode([2, *ids[:4], 3]) == "the cats."
    assert Tokenizer.load(tmp_path, parse_special=True).encode("the [MASK]") == [5, 4]


def test_a_published_gpt2(tmp_path: Path) -> None:
    inner = tokenizers.Tokenizer.from_str(TRAINED["bpe", False].inner.to_str())
    state = json.loads(inner.to_str())
    state["added_tokens"] = []
    state["model"]["vocab"] = {token if id > 2 else f"unused{id}": id for token, id in state["model"]["vocab"].items()}
    inner = tokenizers.Tokenizer.from_str(json.dumps(state))
    inner.add_special_tokens(["<|endoftext|>"])
    folder = published(tmp_path, inner)
    tokenizer = Tokenizer.load(folder)
    end = inner.token_to_id("<|endoftext|>")
    assert (tokenizer.bos, tokenizer.eos, tokenizer.pad, tokenizer.unk) == (end, end, None, None)
    assert tokenizer.kind == "bpe"
    assert Tokenizer.load(folder, pad="<|endoftext|>").pad == end
    ids = tokenizer.encode("<|endoftext|> the")
    assert end not in ids and tokenizer.decode(ids) == "<|endoftext|> the"


def test_tokenizer_config_decides_before_custom_and_arguments_before_both(tmp_path: Path) -> None:
    inner = tokenizers.Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "<end>": 2, "x": 5}, unk_token="<s>"))
    assert Tokenizer.load(published(tmp_path, inner)).eos == 1
    folder = published(tmp_path, inner, eos_token={"content": "<end>"}, bos_token=None)
    tokenizer = Tokenizer.load(folder)
    assert (tokenizer.eos, tokenizer.bos, tokenizer.kind) == (2, None, "word")
    assert len(tokenizer) == 6, "as many rows as the largest id needs"
    assert Tokenizer.load(folder, eos="x", bos="<s>").eos == 5
    with pytest.raises(ValueError, match="eos='<and>' is not in the vocabulary"):
        Tokenizer.load(folder, eos="<and>")
    with pytest.raises(ValueError, match="did you mean 'pad'"):
        Tokenizer.load(folder, padd="x")


def test_roles_survive_a_save(tmp_path: Path) -> None:
    inner = tokenizers.Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "<end>": 2, "x": 3}, unk_token="<s>"))
    tokenizer = Tokenizer.load(published(tmp_path / "from", inner, eos_token="<end>", bos_token=None))
    tokenizer.save(tmp_path / "to")
    again = Tokenizer.load(tmp_path / "to")
    assert again.names == tokenizer.names and (again.eos, again.bos) == (2, None)
    TRAINED["bpe", False].save(tmp_path / "to")
    assert Tokenizer.load(tmp_path / "to").names == TRAINED["bpe", False].names, "what was there is not believed"


def test_what_cannot_be_loaded_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tokenizer.json: no such file"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"half": ')
    with pytest.raises(ValueError, match="tokenizer.json: not a tokenizer.json"):
        Tokenizer.load(tmp_path)


# --- reading the corpus


def test_missing_and_empty_and_ambiguous_corpora(tmp_path: Path) -> None:
    def train(*files: object, **options: object) -> str:
        with pytest.raises(ValueError) as caught:
            Tokenizer.train(*files, vocab_size=300, **options)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)
        return str(caught.value)

    (tmp_path / "empty.txt").touch()
    (tmp_path / "full.txt").write_text("text")
    assert train([tmp_path / "absent.txt"]).startswith(f"{tmp_path}/absent.txt: no such file;")
    assert train([tmp_path]).startswith(f"{tmp_path}: is a directory;")
    for kind in KINDS:
        message = train([tmp_path / "full.txt", tmp_path / "empty.txt"], kind=kind)
        assert message.startswith(f"{tmp_path}/empty.txt: the file is empty;")
    assert "no text" in train([]) and "no text" in train(texts=[]) and "no text" in train(texts=["", ""])
    assert "both or neither" in train() and "both or neither" in train([tmp_path], texts=["a"])
    assert "brackets" in train("file.txt") and "brackets" in train(texts="a")
    assert "did you mean 'word'" in train(texts=["a"], kind="words")


@pytest.mark.parametrize("size", [1, 2, 3, 7, CHUNK])
@pytest.mark.parametrize(
    ("raw", "byte", "line"),
    [
        (b"fine\nfine\ncaf\xe9 au lait\n", 13, 3),
        (b"\xff\xfea\x00", 0, 1),
        ("ok €\n".encode() + b"\xe2\x82", 7, 2),
        ("€€\n\n".encode() + b"\xe2\x82 ", 8, 3),
        (b"a\xed\xa0\x80", 1, 1),
    ],
)
def test_invalid_utf8_is_located(tmp_path: Path, size: int, raw: bytes, byte: int, line: int) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=rf"bad.txt: not UTF-8 at byte {byte} \(line {line}\); convert it"):
        list(read_chunks(path, size))
    with pytest.raises(ValueError, match="not UTF-8"):
        Tokenizer.train([path], vocab_size=300)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.sampled_from([*CORPUS, *HARD[1:]]), min_size=1).map("".join), st.integers(100, 400))
def test_chunks_are_bounded_and_change_no_id(tmp_path_factory: pytest.TempPathFactory, text: str, size: int) -> None:
    path = tmp_path_factory.getbasetemp() / "chunks.txt"
    path.write_bytes(text.encode())
    chunks = list(read_chunks(path, size))
    assert "".join(chunks) == text
    assert max(len(chunk.encode()) for chunk in chunks) <= 2 * size + 4
    for kind in KINDS:
        tokenizer = TRAINED[kind, False]
        if kind == "char" or all(re.match(r"[ \t\r\n]", chunk) for chunk in chunks[1:]):
            assert [id for chunk in chunks for id in tokenizer.encode(chunk)] == tokenizer.encode(text)


def test_a_file_of_one_long_line(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("x" * (3 * CHUNK + 5) + " and so on" * CHUNK)
    chunks = list(read_chunks(path))
    assert max(map(len, chunks)) <= 2 * CHUNK and "".join(chunks) == path.read_text()
    spaced = [chunk for chunk in chunks if "and" in chunk][1:]
    assert len(spaced) > 5 and all(chunk.startswith(" ") for chunk in spaced)
    assert " and" in {piece.replace("·", " ") for piece in _pieces(Tokenizer.train([path], vocab_size=290))}
    assert "·and" in _pieces(Tokenizer.train(texts=[path.read_text()], kind="word", vocab_size=290))


def _pieces(tokenizer: Tokenizer) -> list[str]:
    return tokenizer.pieces(range(len(tokenizer)))


def test_import_needs_no_torch() -> None:
    code = "import sys, regard.tokens; print('torch' in sys.modules, 'numpy' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "False"]
