"""A writer continues texts: whole or piece by piece, past its context, the same again from the same seed."""

import pytest
import torch

from regard.decode import Sampling
from regard.models import build, preset
from regard.models.recurrent import RecurrentState
from regard.tasks import LanguageModel
from regard.tokens import Tokenizer

TEXT = "the cat and the hat – a naïve café for €5, 日本 and 😀. " * 20
MARKS = dict(bos=None, eos=None, pad=0, forbidden=[0, 1, 2], prompt_end="")
DRAWN = Sampling(temperature=1.5, seed=3)


def writer(kind="bpe", family="gpt", context=32, **marks):
    tokenizer = Tokenizer.train(texts=[TEXT], kind=kind, vocab_size=300)
    sizes = dict(dim=16, depth=1, vocab_size=len(tokenizer), max_len=context, dropout=0.1)
    torch.manual_seed(1)
    sizes |= dict(heads=2, ffn_dim=24) if family == "gpt" else {}
    return LanguageModel(build(family, preset(family, "tiny", **sizes)).double(), tokenizer, MARKS | marks)


class Scripted(torch.nn.Module):
    """A model that writes what it is told, whatever it has read."""

    presets, reads = {}, ()

    def __init__(self, ids, tokenizer, context=64):
        super().__init__()
        self.ids, self.vocab, self.head = list(ids), len(tokenizer), torch.nn.Identity()
        self.config = type("Config", (), {"max_len": context})()

    def features(self, **inputs):
        raise NotImplementedError

    def new_cache(self, room):
        return RecurrentState()

    def scores(self, rows):
        one = torch.full((rows, self.vocab), -50.0)
        one[:, self.ids.pop(0)] = 50.0
        return one

    def prefill(self, prefix, cache):
        return self.scores(len(prefix))

    def step(self, ids, cache):
        return self.scores(len(ids))


def test_a_conversation_is_written_as_the_model_was_trained():
    plain, trained = writer(), writer(prompt_end="\n")
    asked = [dict(role="user", content="the cat")]
    assert trained.chats and trained.encode_chat(asked) == trained.encode("the cat")
    longer = [*asked, dict(role="assistant", content="a hat"), dict(role="user", content="and")]
    assert trained.tokenizer.decode(trained.encode_chat(longer)) == "the cat\na hat\nand\n"
    with pytest.raises(ValueError, match="no chat template"):
        plain.encode_chat(asked)


@pytest.mark.parametrize("kind", ["bpe", "char", "word"])
@pytest.mark.parametrize("new", [7, 40])
@pytest.mark.parametrize("sampling", [None, DRAWN])
def test_pieces_joined_are_the_whole(kind, new, sampling):
    one = writer(kind)
    pieces = list(one.stream("the cat", max_new_tokens=new, sampling=sampling))
    assert "".join(pieces) == one.generate(["the cat"], max_new_tokens=new, sampling=sampling)[0]


@pytest.mark.parametrize("seed", range(6))
def test_pieces_joined_are_the_whole_of_any_bytes(seed):
    """Drawn bytes are seldom whole characters; decoders of bytes in a row judge them together."""
    one, sampling = writer("char"), Sampling(temperature=3.0, seed=seed)
    pieces = list(one.stream("a", max_new_tokens=24, sampling=sampling))
    assert "".join(pieces) == one.generate(["a"], max_new_tokens=24, sampling=sampling)[0]


@pytest.mark.parametrize("family", ["gpt", "gru", "lstm", "rnn"])
def test_rows_do_not_depend_on_their_batch(family):
    one, prompts = writer(family=family), ["the cat", "a", "the hat", "and €5", "the cat"]
    for sampling in (None, DRAWN):
        together = one.generate(prompts, max_new_tokens=9, sampling=sampling)
        again = one.generate(prompts, max_new_tokens=9, sampling=sampling)
        assert together == again, "the same seed gives the same text"
        longer = one.generate([*prompts, "and the hat"], max_new_tokens=9, sampling=sampling)
        assert longer[: len(prompts)] == together
    assert together[0] != together[4], "each row has draws of its own"
    assert one.generate(prompts, max_new_tokens=9, sampling=Sampling(temperature=1.5, seed=4)) != together


def test_greedy_is_the_plain_loop():
    one = writer()
    ids = one.tokenizer.encode("the cat")
    wanted = list(ids)
    with torch.no_grad():
        for _ in range(11):
            scores = one.model(torch.tensor([wanted]))[0, -1]
            scores[[0, 1, 2]] = -torch.inf
            wanted.append(int(scores.argmax()))
    assert one.generate(["the cat"], max_new_tokens=11)[0] == one.tokenizer.decode(wanted)[len("the cat") :]


@pytest.mark.parametrize("new", [1, 27, 28, 29, 61])
def test_past_the_context_the_text_goes_on_from_its_last_half(new, monkeypatch):
    one = writer("char")
    seen = []
    real = one.engine.submit
    monkeypatch.setattr(one.engine, "submit", lambda request: seen.append(list(request.prompt)) or real(request))
    written = one.tokenizer.encode("ab x")
    for _step in range(new):  # the loop by hand, with a forward pass for each token
        window = written if len(written) < 32 else written[16 + (len(written) - 32) // 16 * 16 :]
        with torch.no_grad():
            scores = one.model(torch.tensor([window]))[0, -1]
        scores[[0, 1, 2]] = -torch.inf
        written.append(int(scores.argmax()))
    text = one.generate(["ab x"], max_new_tokens=new)[0]
    assert text == one.tokenizer.decode(written)[4:]
    assert seen[0] == written[:4] and all(len(ids) == 16 for ids in seen[1:])
    assert len(seen) == 1 + max(0, -(-(new - 28) // 16)), "a new window each half context"


def test_a_text_ends_at_its_mark():
    tokenizer = Tokenizer.train(texts=[TEXT], vocab_size=300)
    said = tokenizer.encode(" and the hat")
    for how in ("stream", "generate"):
        one = LanguageModel(
            Scripted([*said, tokenizer.eos, *said], tokenizer), tokenizer, MARKS | {"eos": 2, "forbidden": [0]}
        )
        found = "".join(one.stream("the cat")) if how == "stream" else one.generate(["the cat"], max_new_tokens=30)[0]
        assert found == " and the hat"


@pytest.mark.parametrize("kind", ["bpe", "char", "word"])
def test_a_character_is_never_streamed_in_halves(kind):
    tokenizer = Tokenizer.train(texts=["plain text only"], kind=kind, vocab_size=259)
    text = "é€😀a日é"
    ids = tokenizer.encode(text)
    assert len(ids) > len(text), "its characters must have several tokens"
    pieces = list(LanguageModel(Scripted(ids, tokenizer), tokenizer, MARKS).stream("x", max_new_tokens=len(ids)))
    assert "".join(pieces) == text and not any("�" in piece for piece in pieces)
    assert len([piece for piece in pieces if piece]) > 1


def test_half_a_character_at_the_end_is_shown_as_what_it_is():
    tokenizer = Tokenizer.train(texts=["plain text only"], vocab_size=259)
    ids = tokenizer.encode("a€")[:-1]
    pieces = list(LanguageModel(Scripted(ids, tokenizer), tokenizer, MARKS).stream("x", max_new_tokens=len(ids)))
    assert "".join(pieces) == "a�" and pieces[0] == "a"


def test_score_is_the_sum_of_log_probabilities():
    one = writer()
    prompts, answers = ["the cat", "a", "and the hat for"] * 7, [" and", " naïve café", " €5"] * 7
    found = one.score(prompts, answers)
    for prompt, answer, score in zip(prompts, answers, found, strict=True):
        front, back = one.tokenizer.encode(prompt), one.tokenizer.encode(answer)
        with torch.no_grad():
            log_probs = one.model(torch.tensor([front + back]))[0].log_softmax(-1)
        wanted = sum(float(log_probs[len(front) - 1 + i, id]) for i, id in enumerate(back))
        assert score == pytest.approx(wanted, abs=1e-9)
    assert one.score([], []) == []


def test_prompts_that_cannot_be_continued():
    one = writer(context=8)
    with pytest.raises(
        ValueError, match=r"the prompt has [\d,]+ tokens, the model's context is 8; shorten it, or train"
    ):
        one.generate(["the cat and the hat and the cat and the hat"])
    with pytest.raises(ValueError, match="the prompt is empty and this model has no BOS token; give it some"):
        one.generate([""])
    with pytest.raises(ValueError, match="prompt and answer have 9 tokens, the context is 8; shorten them"):
        one.score(["a"], ["aaaaaaaa"])


def test_a_model_with_a_mark_of_the_beginning_starts_from_it():
    one = writer(bos=1, eos=2)
    assert one.encode("") == [1] and one.encode("a") == one.tokenizer.encode("a")
    assert len(one.generate([""], max_new_tokens=5)) == 1


def test_a_prompt_of_an_instructed_model_ends_as_it_was_trained_to_and_is_not_shown():
    one = writer(prompt_end="\n")
    assert one.encode("a") == one.tokenizer.encode("a\n") and one.shown("a") == ""
    assert writer().shown("a") == "a"


def test_dropout_is_off_and_the_model_is_left_as_it_was():
    one = writer()
    one.model.train()
    first = one.generate(["the cat"], max_new_tokens=9)
    assert one.model.training and first == one.generate(["the cat"], max_new_tokens=9)
