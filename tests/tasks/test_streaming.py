"""What is said of texts while they are written: the likeliest tokens beside each one, and where a stop ends them."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.decode import Sampling
from regard.decode.requests import Request, Ticket
from regard.decode.sample import until
from regard.decode.speculative import Lookup
from regard.native import compiled
from regard.tasks import LanguageModel, streaming
from regard.tasks.streaming import TokenStream, overlap
from regard.tokens import Tokenizer
from tests.decode.texts import (
    ENDS,
    FORBIDDEN,
    VOCAB,
    check_empty,
    engine_for,
    model_of,
    reads_source,
    scores_after,
    source_of,
)

MARKS = dict(bos=None, eos=2, pad=0, forbidden=[], prompt_end="")
TEXT = "the cat and the hat – a naïve café for €5, 日本 and 😀. " * 9
END = 2


# ---- alternatives -----------------------------------------------------------------------------------------------


def check_likely(model, tickets, close=1e-9):
    """Beside each token stand the best of the full distribution behind all tokens before it."""
    for ticket in tickets:
        request = ticket.request
        assert len(ticket.alternatives) == (len(ticket.ids) if request.alternatives else 0)
        if not request.alternatives:
            continue
        along = scores_after(model, request, [ticket.ids[:-1]])[0]
        for place, likely in enumerate(ticket.alternatives):
            best = along[place].topk(request.alternatives)
            np.testing.assert_allclose([p for _, p in likely], best.values, atol=close)
            if close < 1e-6:
                assert [id for id, _ in likely] == best.indices.tolist()
            for id, log_prob in likely:
                assert abs(float(along[place, id]) - log_prob) < close
            if request.sampling is None:
                assert likely[0] == (ticket.ids[place], ticket.log_probs[place])


def asked_for(model, counts, **own):
    """Requests with so many alternatives each."""
    noise = np.random.default_rng(7)
    made = []
    for row, count in enumerate(counts):
        prompt = noise.integers(VOCAB, size=1 + row % 4).tolist()
        how = dict(prompt=prompt, max_len=9, forbidden=FORBIDDEN if row % 2 else (), ends=ENDS, row=row)
        how |= dict(inputs=source_of(noise.integers(VOCAB, size=5))) if reads_source(model) else {}
        made.append(Request(**how | dict(alternatives=count) | own))
    return made


DRAWN = Sampling(temperature=1.7, top_k=12, seed=5)


@pytest.mark.parametrize("case", ["gpt-0", "transformer-0", "t5-0", "lstm-0"])
@pytest.mark.parametrize("sampling", [None, DRAWN])
def test_the_likeliest_are_those_of_the_full_distribution(case, sampling):
    model = model_of(case)
    engine = engine_for(model, page=4, max_batch=5)
    tickets = engine.serve(asked_for(model, (1, 3, 0, 20), sampling=sampling))
    check_likely(model, tickets)
    check_empty(engine)


@pytest.mark.parametrize("sampling", [None, DRAWN])
def test_beside_guesses_that_are_right_and_wrong(sampling):
    """A guesser that knows the text, but errs now and then: several rows of one step are told of."""
    model = model_of("gpt-0")
    (one,) = engine_for(model).serve(asked_for(model, [4], ends=(), max_len=12))
    text = [*one.request.prompt, *one.ids]

    def propose(ids):
        return [id if (len(ids) + n) % 3 else (id + 1) % VOCAB for n, id in enumerate(text[len(ids) : len(ids) + 4])]

    engine = engine_for(model, page=4)
    guessed = [Request(**fields | dict(propose=propose)) for fields in [fields_of(one.request, sampling)]]
    tickets = engine.serve([*guessed, *asked_for(model, (2, 5), sampling=sampling, propose=Lookup(shortest=1))])
    check_likely(model, tickets)
    if sampling is None:
        assert tickets[0].ids == one.ids and engine.steps < len(one.ids) + 1, "right guesses save steps"


def fields_of(request, sampling):
    names = ("prompt", "max_len", "ends", "forbidden", "row", "alternatives")
    return {name: getattr(request, name) for name in names} | dict(sampling=sampling)


def test_in_a_batch_of_all_kinds_each_gets_its_own():
    """Greedy, drawn, searched and told side by side, on so few pages that some have to wait."""
    model = model_of("gpt-0")
    kinds = [
        *asked_for(model, (3, 0, 7)),
        *asked_for(model, (4, 9), sampling=DRAWN),
        *asked_for(model, (0,), beams=3, n_best=2),
        *asked_for(model, (6,), propose=Lookup(shortest=1)),
    ]
    engine = engine_for(model, page=2, pages=24, max_batch=8, chunk=5)
    tickets = engine.serve(kinds)
    check_likely(model, tickets)
    alone = [engine_for(model).serve([request])[0] for request in kinds]
    assert [one.ids for one in tickets] == [one.ids for one in alone]
    check_empty(engine)


@pytest.mark.skipif(not compiled.available(), reason="no compiled kernels")
def test_of_compiled_kernels():
    model = model_of("gpt-0", torch.float32)
    engine = engine_for(model, fast=True, max_batch=6)
    assert engine.runner.fast
    tickets = engine.serve([*asked_for(model, (5, 0, 20)), *asked_for(model, (3,), sampling=DRAWN)])
    check_likely(model_of("gpt-0"), tickets, close=1e-3)


@pytest.mark.parametrize("fast", [False, True])
def test_more_than_there_are(fast):
    """Of a small vocabulary, all tokens that may be chosen: nobody's text ends for it."""
    if fast and not compiled.available():
        pytest.skip("no compiled kernels")
    model = model_of("gpt-0", torch.float32)
    (ticket,) = engine_for(model, fast=fast).serve(asked_for(model, [3 * VOCAB], ends=()))
    for likely in ticket.alternatives:
        assert sorted(id for id, p in likely if p > -np.inf) == list(range(VOCAB))


# ---- stops ------------------------------------------------------------------------------------------------------


class Spelled:
    """A speaker whose tokens are any texts."""

    def __init__(self, pieces):
        self.pieces = pieces

    def text_of(self, request, ids, *, whole, before=0):
        text = b"".join(self.pieces[id] for id in until(request.ends, ids)[before:]).decode(errors="replace")
        return text if whole else text.rstrip("�")


def say(speaker, ids, stops, breaks=(), *, prompt=(1,), ends=(), last_alone=False):
    """Writes tokens into a ticket and asks for the news between them: after every one, or only at `breaks`. What a
    cancelled ticket would get later is not written. Returns the tokens told, and whether a stop was met."""
    ticket = Ticket(Request(prompt=prompt, max_len=len(ids), ends=ends))
    stream, said = TokenStream(ticket, speaker, stops), []
    for place, id in enumerate(ids, 1):
        ticket.log_probs.append(-float(place))
        ticket.ids.append(id)
        if place == len(ids):
            if last_alone:  # another thread has written the last token, but not yet that it was the last
                said += stream.new()
            ticket.finish()
        if place == len(ids) or not breaks or place in breaks:
            said += stream.new()
        if stream.stopped:
            break
    assert list(stream.new()) == []
    assert [token.id for token in said] == ids[: len(said)]
    assert [token.log_prob for token in said] == [-float(place) for place in range(1, len(said) + 1)]
    return said, stream.stopped


def joined(said):
    return "".join(token.text for token in said)


@pytest.mark.parametrize(
    ("pieces", "stops", "wanted", "tokens"),
    [
        (["ab", "c", "de", "f"], ["cd"], ["ab", "", ""], 3),  # across tokens
        (["ab", "c", "xe", "f"], ["cd"], ["ab", "", "cxe", "f"], 4),  # begins, but does not happen
        (["a", "b", "a", "b", "c"], ["abc"], ["", "", "ab", "", ""], 5),  # begins again inside of itself
        (["aab", "aabaac"], ["aabaac"], ["", "aab"], 2),
        (["xyz", "abc"], ["c", "b", "abcd"], ["xyz", "a"], 2),  # the earliest of several
        (["xyz"], ["y", "xyz", "z"], [""], 1),  # two begin, the first place counts
        (["a", "b", "c"], ["bc", "abcd"], ["", "", "a"], 3),  # one is there before the longer one that began earlier
        (["end"], ["d!"], ["end"], 1),  # what is held back is said at the end
        (["a", "b", "c"], [], ["a", "b", "c"], 3),
        (["a", "", "", "b"], ["ab"], ["", "", "", ""], 4),
        (["a", "ba", "ba", "b"], ["abab"], ["", "", ""], 3),
    ],
)
def test_where_a_text_ends(pieces, stops, wanted, tokens):
    said, stopped = say(Spelled([piece.encode() for piece in pieces]), list(range(len(pieces))), stops)
    assert [token.text for token in said] == wanted and len(said) == tokens
    assert stopped == any(stop in "".join(pieces) for stop in stops)


@pytest.mark.parametrize(
    ("raw", "stop", "wanted"),
    [
        ([b"a", b"\xe2", b"\x82", b"\xac", b"b"], "€", ["a", "", "", ""]),  # a character of three tokens
        ([b"a\xe2", b"\x82\xacb", b"c"], "€", ["a", ""]),
        ([b"\xe2", b"\x82", b"\xac", b"!"], "€?", ["", "", "", "€!"]),
        ([b"\xe2\x82", b"\xac\xe2", b"\x82\xac"], "€€", ["", "", ""]),
        ([b"\xe2", b"\x82", b"\xad"], "€", ["", "", "₭"]),  # its neighbour has the same two first bytes
        ([b"n\xcc", b"\x83o"], "n", [""]),  # a letter, and a mark on it: characters as Unicode counts them
    ],
)
def test_stops_among_characters_of_several_tokens(raw, stop, wanted):
    said, _ = say(Spelled(raw), list(range(len(raw))), [stop])
    assert [token.text for token in said] == wanted


def test_the_end_mark_ends_before_a_stop_that_began():
    pieces = [b"a", b"b", b"<eos>", b"c"]
    said, stopped = say(Spelled(pieces), [0, 1, 2], ["bc"], ends=(2,))
    assert joined(said) == "ab" and not stopped


def test_what_is_held_back_is_not_lost_to_another_thread():
    """The engine's thread writes the last token, and a moment later that the text is over."""
    for stops, raw in ([["d!"], [b"en", b"d"]], [[], [b"a", b"\xe2\x82"]]):
        said, _ = say(Spelled(raw), [0, 1], stops, last_alone=True)
        assert joined(said) == b"".join(raw).decode(errors="replace")
    said, _ = say(Spelled([b"a", b"b", b"<eos>"]), [0, 1, 2], ["bc"], ends=(2,), last_alone=True)
    assert joined(said) == "ab"


@pytest.fixture(params=[2, 3, 32], scope="module")
def block(request):
    """Tokens that are decoded together: a few, so that short texts have many such blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "BLOCK", request.param)
        yield


LETTERS = st.text(alphabet="ab€😀", max_size=12)


@settings(max_examples=300, deadline=None)
@given(LETTERS, st.text(alphabet="ab€😀", min_size=1, max_size=4), st.data())
def test_any_text_cut_anywhere_is_told_up_to_its_stop(block, text, stop, data):
    """For one stop it does not matter how the text is cut into tokens, nor when one listens."""
    raw = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(raw)), max_size=9)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    breaks = data.draw(st.sets(st.integers(1, len(pieces))))
    said, stopped = say(Spelled(pieces), list(range(len(pieces))), [stop], breaks, last_alone=data.draw(st.booleans()))
    assert joined(said) == text.partition(stop)[0]
    assert stopped == (stop in text)


@settings(max_examples=200, deadline=None)
@given(LETTERS, st.lists(st.text(alphabet="ab€", min_size=1, max_size=4), min_size=2, max_size=4), st.data())
def test_of_several_stops_the_first_that_is_complete_counts(block, text, stops, data):
    """Letter by letter, as one would with pen and paper."""
    wanted = text
    for end in range(len(text) + 1):
        if found := [text[:end].index(stop) for stop in stops if stop in text[:end]]:
            wanted = text[: min(found)]
            break
    breaks = data.draw(st.sets(st.integers(1, max(1, len(text)))))
    said, stopped = say(
        Spelled([letter.encode() for letter in text] or [b""]), list(range(max(1, len(text)))), stops, breaks
    )
    assert joined(said) == wanted and stopped == any(stop in text for stop in stops)


WRITERS = {}


def writer(kind):
    """One with the real tokenizer of a kind; only its texts are asked for."""
    if kind not in WRITERS:
        tokenizer = Tokenizer.train(texts=[TEXT], kind=kind, vocab_size=300)
        WRITERS[kind] = LanguageModel(torch.nn.Identity(), tokenizer, MARKS)
    return WRITERS[kind]


@pytest.mark.parametrize("kind", ["bpe", "char", "word"])
def test_behind_many_bytes_in_a_row(kind):
    """A prompt of characters that were never seen in training goes on with such ones."""
    one = writer(kind)
    prompt, ids = one.tokenizer.encode("漢字漢字漢字漢字漢字"), one.tokenizer.encode("漢字!")
    assert len(prompt) == 30
    assert joined(say(one, ids, [], prompt=prompt)[0]) == "漢字!"
    assert joined(say(one, ids, ["字"], prompt=prompt)[0]) == "漢"


@pytest.mark.parametrize("kind", ["bpe", "char", "word"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_of_any_ids_pieces_joined_are_the_whole(block, kind, data):
    """Any ids, most of which are no whole characters: with a stop from the text itself, and without."""
    one = writer(kind)
    any_ids = st.lists(st.integers(0, len(one.tokenizer) - 1).filter(lambda id: id != END), min_size=1, max_size=9)
    drawn = [data.draw(any_ids | st.text(alphabet="a é日本😀\n", min_size=1, max_size=9)) for _ in range(2)]
    prompt, ids = [one.tokenizer.encode(some) if isinstance(some, str) else some for some in drawn]
    ids += [END] if data.draw(st.booleans()) else []
    text = one.continuation(prompt, until((END,), ids))
    how = dict(breaks=data.draw(st.sets(st.integers(1, len(ids)))), prompt=prompt, ends=(END,))
    assert joined(say(one, ids, [], **how)[0]) == text
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    if stop := text[start:end]:
        said, stopped = say(one, ids, [stop], **how)
        assert joined(said) == text.partition(stop)[0]
        assert stopped or joined(said) == text


@settings(max_examples=100, deadline=None)
@given(LETTERS, st.text(alphabet="ab€", min_size=1, max_size=5))
@example("aab", "aabaac")
def test_the_beginning_of_a_stop_at_the_end(text, stop):
    wanted = max(count for count in range(len(stop)) if text.endswith(stop[:count]))
    assert overlap(text, stop) == wanted
