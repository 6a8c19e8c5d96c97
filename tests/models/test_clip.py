"""CLIP: laws of its two towers, and what its config refuses."""

import math

import pytest
import torch
import torch.nn.functional as F

from regard.cost import cost
from regard.doctor import laws
from regard.models import preset
from regard.models.clip import TEMPERATURE
from tests.laws.cases import SMALL, VOCAB, make

T, LENGTHS = 11, torch.tensor([4, 7, 2, 11, 5])
every_case = pytest.mark.parametrize("number", range(len(SMALL["clip"])))


def model_of(number):
    return make("clip", number, max_len=T + 3).double()


def texts():
    return laws.all_different({"ids": torch.zeros(5, T, dtype=torch.long)}, VOCAB)["ids"]


@every_case
def test_no_token_of_a_text_sees_the_future(number):
    model, ids = model_of(number), texts()
    out = model.text(ids)
    for t in range(1, T):
        changed = ids.clone()
        changed[:, t:] = (changed[:, t:] + 1) % VOCAB
        other = model.text(changed)
        laws.close(other[:, :t], out[:, :t], f"token {t} was changed, earlier vectors moved")
        laws.differs(other[:, t], out[:, t], f"token {t} was changed")
        reach = laws.reach_of_tokens(model, (out[0, t] * laws.direction(out)).sum(), VOCAB)
        assert reach[ids[0, : t + 1]].gt(0).all() and reach[ids[0, t + 1 :]].eq(0).all()


@every_case
def test_the_last_token_stands_for_the_text_and_padding_changes_nothing(number):
    model, ids = model_of(number), texts()
    out = model.embed_text(ids, LENGTHS)
    hidden = torch.arange(T) >= LENGTHS[:, None]
    laws.close(model.embed_text(torch.where(hidden, 3, ids), LENGTHS), out, "other tokens in the padding")
    laws.close(model.embed_text(F.pad(ids, (0, 3), value=5), LENGTHS), out, "three more columns of padding")
    seen = ids.clone()
    seen[torch.arange(5), LENGTHS - 1] = 9
    laws.differs(model.embed_text(seen, LENGTHS), out, "the last tokens were changed")
    reach = laws.reach_of_tokens(model, (out * laws.direction(out)).sum(), VOCAB)
    assert reach[ids[hidden]].eq(0).all() and reach[ids[~hidden]].gt(0).all()


@every_case
@torch.no_grad()
def test_batch_equals_single_and_the_table_is_of_cosines(number):
    model, ids = model_of(number), texts()
    pixels = torch.randn(3, 2, 13, 19).double()
    table = model(pixels, ids, LENGTHS)
    assert table.shape == (3, 5)
    for i in range(3):
        picture = model.embed(pixels[i : i + 1])
        for j in range(5):
            text = model.embed_text(ids[j : j + 1, : LENGTHS[j]], LENGTHS[j : j + 1])
            cosine = F.cosine_similarity(picture, text) / TEMPERATURE
            laws.close(table[i, j], cosine[0], f"picture {i} and text {j} by themselves", 1e-7)
    assert model.temperature.item() == pytest.approx(TEMPERATURE)
    laws.differs(table[:, 0], table[:, 1], "another text")


@torch.no_grad()
def test_at_first_no_pair_is_likelier_than_another():
    model = make("clip", embedding_dim=512).double()
    table = model(torch.randn(7, 2, 13, 19).double(), torch.randint(VOCAB, (7, 7)), torch.full((7,), 7))
    table = table * TEMPERATURE  # cosines, and those of unlike things are small
    assert -table.log_softmax(-1).mean().item() == pytest.approx(math.log(7), abs=0.1)


def test_a_picture_of_another_size():
    model = model_of(0)
    assert model.embed(torch.randn(2, 2, 25, 14).double()).shape == (2, 17)


def test_published_sizes():
    """As they are published: 151 million for ViT-B/32, 428 for ViT-L/14."""
    sizes = {name: cost(preset("clip", name)).parameters["total"] for name in ("vit-b/32", "vit-b/16", "vit-l/14")}
    assert sizes == {"vit-b/32": 151_277_313, "vit-b/16": 149_620_737, "vit-l/14": 427_616_513}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(head_dim=5), "leave head_dim and kv_heads unset"),
        (dict(position="grid"), "position=grid is for images"),
        (dict(text_heads=3), "heads=3 does not divide dim=20"),
        (dict(stem=(5, 6)), "2 convolutions that halve an image give patches of 4 pixels, got patch=3"),
        (dict(embedding_dim=0), "embedding_dim=0 must be at least 1"),
        (dict(patch=17), "no patch of 17 × 17 pixels fits"),
    ],
)
def test_what_cannot_be_built(changes, message):
    with pytest.raises(ValueError, match=message):
        make("clip", **changes)
