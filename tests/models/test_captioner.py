"""The captioner: features that see only their surroundings, the lecture's equations, and every way to decode."""

import pytest
import torch

from regard.data.sets.batches import IGNORE, pad
from regard.decode import Sampling, beam_search, generate
from regard.inside.capture.weights import cross_attention, look
from regard.models import Captioner, CaptionerConfig
from regard.nn.convolution import ConvStem

V, EOS = 23, 2
DECODERS = ("recurrent", "transformer")


def captioner(decoder="recurrent", **changes):
    sizes = dict(vocab_size=V, image=32, widths=(5, 6, 7), dim=16, heads=2, ffn_dim=24, depth=2, dropout=0.0)
    torch.manual_seed(3)
    return Captioner(CaptionerConfig(**sizes | dict(decoder=decoder) | changes)).double().eval()


def pictures(count=4, side=32):
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(5)).double()


@pytest.mark.parametrize("widths", [(4,), (4, 5), (4, 5, 6)])
def test_a_place_sees_its_surroundings_and_nothing_else(widths):
    config = CaptionerConfig(image=96, widths=widths)
    eye = ConvStem(3, widths, 8).double()
    pixels = torch.randn(1, 3, 96, 96).double().requires_grad_()
    found = eye(pixels)
    assert found.shape[2:] == config.grid and config.cell_side == 2 ** len(widths)
    row, column = config.grid[0] // 2, config.grid[1] // 2
    (grad,) = torch.autograd.grad(found[0, :, row, column].square().sum(), pixels)
    halvings, side = len(widths), config.cell_side
    around = sum(2**i for i in range(halvings)) + sum(2**i for i in range(1, halvings))  # beyond the place's own square
    for place, seen in ((row, grad.abs().sum((0, 1, 3))), (column, grad.abs().sum((0, 1, 2)))):
        assert seen.nonzero().flatten().tolist() == list(range(place * side - around, (place + 1) * side + around))


def test_pictures_of_any_size_have_a_place_for_each_pixel():
    eye = ConvStem(1, (4, 5), 8)
    for side in (1, 4, 7, 13):
        assert eye(torch.randn(1, 1, side, 5)).shape == (1, 8, -(-side // 4), 2)


def test_the_recurrent_decoder_is_the_lectures():
    """e_ti = v·tanh(W s_{t−1} + U h_i), α = softmax e, c_t = Σ α h: written out, word by word."""
    model = captioner()
    pixels, target = pictures(2), torch.randint(V, (2, 4))
    writer = model.writer
    with torch.no_grad():
        found = model(pixels, target)
        weights = cross_attention(model, dict(pixels=pixels, target=target))
        h = model.cells(pixels)
        s = writer.begin[0](h.mean(1)).tanh()
        for t in range(4):
            e = torch.tanh(writer.query(s)[:, None] + writer.key(h)) @ writer.kernel.vector.flatten()
            alpha = e.softmax(1)
            c = (alpha[..., None] * h).sum(1)
            y = writer.embedding(target[:, t : t + 1])[:, 0]
            s = writer.decoder.layers(torch.cat([y, c], 1)[:, None], s[None])[1][0]
            scores = writer.head(writer.readout(torch.cat([s, c], 1)).tanh())
            torch.testing.assert_close(found[:, t], scores)
            torch.testing.assert_close(weights[:, t].double(), alpha, atol=1e-6, rtol=0)


@pytest.mark.parametrize("decoder", DECODERS)
def test_looking_changes_nothing_and_sees_where(decoder):
    model, pixels, target = captioner(decoder), pictures(), torch.randint(V, (4, 5))
    without = model(pixels, target)
    with look(model) as seen:
        within = model(pixels, target)
    assert torch.equal(without, within)
    assert len(seen.of("cross")) == (1 if decoder == "recurrent" else 2)
    assert len(seen.of("decoder")) == (0 if decoder == "recurrent" else 2)
    for weights in seen.of("cross"):
        assert weights.shape[2:] == (5, 16)
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


@pytest.mark.parametrize("decoder", DECODERS)
def test_steps_see_the_same_as_one_pass(decoder):
    model, pixels, target = captioner(decoder), pictures(), torch.randint(V, (4, 5))
    with torch.no_grad(), look(model, layers="cross") as whole:
        model(pixels, target)
    with torch.no_grad(), look(model, layers="cross") as steps:
        cache = model.new_cache(5)
        model.prefill(target[:, :1], cache, pixels=pixels)
        for t in range(1, 5):
            model.step(target[:, t], cache)
    for one, other in zip(whole.of("cross"), steps.of("cross"), strict=True):
        torch.testing.assert_close(one, other)


def by_hand(model, pixels, count):
    """Greedy words without any cache: all is read again for each."""
    ids = torch.ones(len(pixels), 1, dtype=torch.long)
    for _ in range(count):
        ids = torch.cat([ids, model(pixels, ids)[:, -1:].argmax(-1)], dim=1)
    return [row[: row.index(EOS)] if EOS in row else row for row in ids[:, 1:].tolist()]


def taught(decoder):
    """A model that has something to say of each of five pictures, of different lengths."""
    model, pixels = captioner(decoder), pictures(5)
    said = [[7, 9, 11, 9], [7, 8], [12, 3, 4, 5, 6, 7, 8], [7, 9, 10, 11, 20], [12, 12, 12]]
    target, wanted = pad([[1, *ids] for ids in said], 0), pad([[*ids, EOS] for ids in said], IGNORE)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(50):
        loss = torch.nn.functional.cross_entropy(model(pixels, target).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, pixels


@pytest.mark.parametrize("decoder", DECODERS)
def test_every_way_to_decode(decoder):
    model, pixels = taught(decoder)
    with torch.no_grad():
        wanted = by_hand(model, pixels, 9)
    start, how = torch.ones(5, 1, dtype=torch.long), dict(eos=EOS, max_len=9)
    greedy = [one.ids for one in generate(model, start, pixels=pixels, **how)]
    assert greedy == wanted and len({tuple(ids) for ids in greedy}) > 1
    assert [best[0].ids for best in beam_search(model, start, pixels=pixels, beams=1, **how)] == wanted
    together = beam_search(model, start, pixels=pixels, beams=3, n_best=3, **how)
    for row in range(5):
        alone = beam_search(model, start[:1], pixels=pixels[row : row + 1], beams=3, n_best=3, **how)[0]
        assert [one.ids for one in alone] == [one.ids for one in together[row]]
        for one in alone:  # the score is that of the whole, computed without a cache
            ids = torch.tensor([[1, *one.ids, EOS][:10]])
            with torch.no_grad():
                log_probs = model(pixels[row : row + 1], ids[:, :-1]).log_softmax(-1)
            total = log_probs[0].gather(1, ids[0, 1:, None]).sum().item()
            assert one.score == pytest.approx(total / (ids.shape[1] - 1), abs=1e-6)
    sampling = Sampling(temperature=2.0, seed=4)
    drawn = [one.ids for one in generate(model, start, pixels=pixels, sampling=sampling, **how)]
    some = generate(model, start[3:], pixels=pixels[3:], sampling=sampling, rows=[3, 4], **how)
    assert drawn[3:] == [one.ids for one in some] and drawn != greedy


def test_pictures_of_two_sizes_in_one_batch():
    model = captioner()
    small, large = pictures(1), pictures(1, 48)
    from regard.decode import Engine, Request

    requests = [Request(prompt=[1], inputs={"pixels": one[0]}, max_len=6) for one in (small, large, small)]
    found = [ticket.ids for ticket in Engine(model).serve(requests)]
    start = torch.ones(1, 1, dtype=torch.long)
    for ids, pixels in zip(found, (small, large, small), strict=True):
        assert ids == generate(model, start, eos=None, max_len=6, pixels=pixels)[0].ids


def test_what_is_wrong_is_said():
    model = captioner()
    start = torch.ones(1, 1, dtype=torch.long)
    with pytest.raises(ValueError, match="this model reads pixels, got nothing; set inputs"):
        generate(model, start, eos=EOS, max_len=3)
    with pytest.raises(ValueError, match="images have 1 channels, the model reads 3"):
        model(torch.randn(1, 1, 32, 32).double(), start)
    with pytest.raises(ValueError, match=r"widths=\(\) must be at least one positive number"):
        CaptionerConfig(widths=())
    with pytest.raises(ValueError, match="layers=0 must be at least 1"):
        CaptionerConfig(layers=0)
    with pytest.raises(ValueError, match="must be one positive number, or two"):
        CaptionerConfig(image=0)
