"""FASTA and FASTQ as text, the embedded code and DNA; beside Biopython where it is installed."""

import gzip
import math

import numpy as np
import pytest

from regard.data.generated.code import library
from regard.data.generated.genome import BASES, STOPS, codons, generator_bits, genome, rules
from regard.data.readers.sequences import fasta, fastq, sequences_of
from regard.data.readers.text_files import read_any, read_text
from regard.data.sets.running_text import TextConfig
from regard.tasks.scored_text import chain, chain_bits, places

TWO = ">chr1 first\nACGTac\n\nGTN\n;note\n>empty\n>chr2\r\nMKT*-\n"
READS = "@one\nACGT\n+one\nIII@\n@two\nAC\nGT\n+\n@I\nII\n\n"


def test_sequences_are_lines_in_capitals(tmp_path):
    (tmp_path / "x.fa").write_text(TWO)
    (tmp_path / "y.fq.gz").write_bytes(gzip.compress(READS.encode()))
    assert read_text((str(tmp_path / "x.fa"),)) == "ACGTACGTN\nMKT*-\n"
    assert read_text((str(tmp_path / "y.fq.gz"),)) == "ACGT\nACGT\n"
    assert list(fasta(TWO, tmp_path)) == [("chr1 first", "ACGTacGTN"), ("empty", ""), ("chr2", "MKT*-")]
    assert list(fastq(READS, tmp_path)) == [("one", "ACGT"), ("two", "ACGT")]


def test_sequences_are_those_of_biopython(tmp_path):
    parsers = pytest.importorskip("Bio.SeqIO.FastaIO")
    (tmp_path / "x.fa").write_text(TWO.replace(";note\n", ""))
    with (tmp_path / "x.fa").open() as file:
        assert list(parsers.SimpleFastaParser(file)) == list(fasta(TWO, tmp_path))


@pytest.mark.parametrize(("name", "text", "error"), [
    ("x.fa", "ACGT\n>a\nAC\n", "line 1: a sequence without a name"),
    ("x.fasta", ">a\nAC1T\n", "line 2: '1' stands for no base"),
    ("x.fna", ">a\n>b\n", "has no sequence"),
    ("x.fq", "@a\nACGT\n+\nIII\n", "line 1: the read has 4 letters and 3 qualities"),
    ("x.fastq", "ACGT\n", "line 1: 'ACGT' does not begin a read"),
    ("x.fq", "@a\nAC\n+\nIIII\n", "line 1: the read has 2 letters and 4 qualities"),
])  # fmt: skip
def test_a_mistake_is_one_line_with_its_place(tmp_path, name, text, error):
    with pytest.raises(ValueError) as caught:
        sequences_of(text, tmp_path / name)
    assert error in str(caught.value) and "\n" not in str(caught.value)


def test_any_bytes_are_read_as_they_are(tmp_path):
    raw = bytes(range(256)) * 3 + b"\r\n\xef\xbb\xbf\xc3"
    (tmp_path / "x.bin").write_bytes(raw)
    assert read_any((str(tmp_path / "x.bin"),)).encode("utf-8", "surrogateescape") == raw
    train, valid = TextConfig(text=(str(tmp_path / "x.bin"),), kind="bytes").split()
    assert (train + valid).encode("utf-8", "surrogateescape") == raw
    assert TextConfig(text=(str(tmp_path / "x.bin"),), kind="bytes").overview()[0].examples


def test_the_embedded_code_is_that_of_the_library():
    texts = {split: library(split) for split in ("train", "valid", "test")}
    assert len(texts["train"]) > 10 * len(texts["test"]) > 100_000
    for name in ("class ArgumentParser", "def literal_eval(", "class Decimal", "class NamedTuple"):
        assert sum(name in text for text in texts.values()) >= 1 or name == "class Decimal"
    assert TextConfig(kind="code").held_out() == texts["test"] and TextConfig(kind="dna").held_out() == genome("test")


def test_the_rules_of_the_dna_are_probabilities_and_what_was_drawn_follows_them():
    moves = rules()
    np.testing.assert_allclose(moves.sum((0, 2)), 1)
    text = genome("valid")
    assert set(text) == {*BASES, "\n"} and genome("train")[:100] != genome("test")[:100]
    names, usage = codons()
    assert len(names) == 61 and not {*names} & {*STOPS}
    bits = generator_bits(text[:20_000])
    # Bases drawn from the hidden states themselves need as many bits for each.
    rng, state, letters = np.random.default_rng(0), 0, []
    flat = moves.transpose(1, 0, 2).reshape(len(moves[0]), -1).cumsum(1)
    for place in rng.random(20_000):
        base, state = divmod(int(np.searchsorted(flat[state], place * flat[state, -1])), moves.shape[1])
        letters.append(BASES[base])
    assert generator_bits("".join(letters)) == pytest.approx(bits, abs=0.02)
    assert bits < chain_bits(genome("train")[:400_000], text)[1] - 0.05 < 2


def test_a_chain_is_its_counts():
    train, test = places("ACACACACAG"), places("acn")
    assert places("acn").tolist() == [0, 1]
    counts = {"A": 5.5, "C": 4.5, "G": 1.5, "T": 0.5}
    assert chain(train, test, 0) == pytest.approx(-sum(math.log2(counts[base] / 12) for base in "AC") / 2)
    assert chain(train, test, 1) == pytest.approx(-math.log2(4.5 / 7))
