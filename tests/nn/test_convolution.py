"""Convolutional kin: equal where they are the same layer, and each trains."""

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import regard
from regard.doctor.laws import close, differs
from regard.nn.attention import AttentionConfig
from regard.nn.convolution import ImageAttention, LocalRelation, Pointwise
from regard.nn.feedforward import ACTIVATIONS, GATED, FeedForward


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


# ---- the feed-forward layer is two 1 × 1 convolutions -----------------------------------------------------------


@pytest.mark.parametrize("activation", [*ACTIVATIONS, *GATED])
@pytest.mark.parametrize("bias", [True, False])
def test_a_feed_forward_layer_is_two_convolutions(activation, bias):
    """Equal outputs, equal gradients of the input and of every weight."""
    layer = FeedForward(6, 10, activation=activation, bias=bias).double()
    convolved = Pointwise(layer)
    assert [tuple(p.shape) for p in convolved.parameters()] == [
        (*p.shape, 1) if p.dim() == 2 else tuple(p.shape) for p in layer.parameters()
    ]
    x = normal(3, 5, 6).requires_grad_()
    turned = x.detach().transpose(1, 2).requires_grad_()
    wanted, got = layer(x), convolved(turned)
    close(got.transpose(1, 2), wanted, "outputs", 1e-12)
    towards = normal(3, 5, 6)
    (wanted * towards).sum().backward()
    (got.transpose(1, 2) * towards).sum().backward()
    close(turned.grad.transpose(1, 2), x.grad, "gradient of the input", 1e-12)
    for (name, theirs), ours in zip(layer.named_parameters(), convolved.parameters(), strict=True):
        close(ours.grad.view_as(theirs), theirs.grad, f"gradient of {name}", 1e-12)


def test_it_is_a_convolution_of_images_too():
    layer = FeedForward(6, 10, activation="relu", bias=True).double()
    x = normal(2, 6, 4, 3)
    wanted = layer(x.flatten(2).transpose(1, 2)).transpose(1, 2).view_as(x)
    close(Pointwise(layer)(x), wanted, "an image", 1e-12)
    up, down = layer.up, layer.down
    hidden = F.conv2d(x, up.weight[..., None, None], up.bias).relu()
    close(F.conv2d(hidden, down.weight[..., None, None], down.bias), wanted, "PyTorch's own", 1e-12)


def test_its_dropout_stays():
    layer = Pointwise(FeedForward(6, 10, activation="relu", bias=True, dropout=0.5))
    x = torch.randn(2, 6, 4)
    differs(layer(x), layer(x), "two passes in training")
    layer.eval()
    assert torch.equal(layer(x), layer(x))


# ---- attention inside a CNN ---------------------------------------------------------------------------------------


def test_image_attention_starts_as_the_identity_and_learns():
    block = ImageAttention(AttentionConfig(dim=6, heads=2))
    x = torch.randn(2, 6, 5, 3)
    assert torch.equal(block(x), x)
    optimizer = torch.optim.SGD(block.parameters(), lr=0.1)
    for _ in range(2):  # the last matrix moves first, and lets the others move
        before = {name: p.clone() for name, p in block.named_parameters()}
        optimizer.zero_grad()
        (block(x) - x.roll(1, 2)).square().mean().backward()
        optimizer.step()
    differs(block(x), x, "two steps")
    still = {name for name, p in block.named_parameters() if torch.equal(p, before[name])}
    assert not still


def test_image_attention_is_attention_over_places():
    """PyTorch's layer with the same matrices, every pixel a token."""
    block = ImageAttention(AttentionConfig(dim=6, heads=2)).double()
    for parameter in block.attention.out.parameters():
        nn.init.normal_(parameter)
    theirs = nn.MultiheadAttention(6, 2, batch_first=True, dtype=torch.float64)
    own = block.attention
    theirs.load_state_dict({
        "in_proj_weight": torch.cat([own.query.weight, own.key_value.weight]),
        "in_proj_bias": torch.cat([own.query.bias, own.key_value.bias]),
        "out_proj.weight": own.out.weight,
        "out_proj.bias": own.out.bias,
    })  # fmt: skip
    x = normal(2, 6, 5, 3)
    tokens = F.layer_norm(x.permute(0, 2, 3, 1).reshape(2, 15, 6), (6,))
    wanted = x + theirs(tokens, tokens, tokens)[0].view(2, 5, 3, 6).permute(0, 3, 1, 2)
    close(block(x), wanted, "the block", 1e-12)


def test_attention_in_a_cnn_can_be_looked_at():
    model = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), ImageAttention(AttentionConfig(dim=6, heads=2)))
    with regard.look(model) as seen:
        model(torch.randn(1, 1, 4, 5))
    assert seen.attention["1.attention"].shape == (1, 2, 20, 20)


# ---- local relations in place of a convolution --------------------------------------------------------------------


def by_hand(layer: LocalRelation, x):
    """The formula, place by place and channel by channel; nothing outside of the image takes part."""
    B, C, H, W = x.shape
    reach, stride, m = layer.kernel_size // 2, layer.stride, layer.share
    rows, columns = range(0, H, stride), range(0, W, stride)
    mixed = x.new_zeros(B, C, len(rows), len(columns))
    for b in range(B):
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                near = [
                    (y, z)
                    for y in range(row - reach, row + reach + 1)
                    for z in range(column - reach, column + reach + 1)
                    if 0 <= y < H and 0 <= z < W
                ]
                for c in range(C):
                    g = c // m
                    q = layer.query.weight[g, :, 0, 0] @ x[b, :, row, column]
                    powers = []
                    for y, z in near:
                        offset = x.new_tensor([y - row, z - column]) / max(reach, 1)
                        score = q * (layer.key.weight[g, :, 0, 0] @ x[b, :, y, z]) + layer.prior(offset)[g]
                        powers.append(score.exp())
                    values = [x[b, c, y, z] for y, z in near]
                    mixed[b, c, i, j] = sum(p * v for p, v in zip(powers, values, strict=True)) / sum(powers)
    return layer.out(mixed)


@pytest.mark.parametrize(("kernel_size", "stride", "share"), [(3, 1, 2), (3, 2, 3), (5, 1, 4), (7, 3, 1), (1, 2, 8)])
def test_local_relation_by_hand(kernel_size, stride, share):
    """Channels that `share` does not divide and images smaller than the neighbourhood are among them."""
    layer = LocalRelation(5, 4, kernel_size, stride=stride, share=share).double()
    x = normal(2, 5, 4, 5)
    close(layer(x), by_hand(layer, x), "the layer", 1e-10)


def test_local_relation_has_the_shapes_of_a_convolution():
    for size in (5, 6, 7, 8):
        for stride in (1, 2, 3):
            for k in (1, 3, 7):
                x = torch.randn(1, 4, size, size + 1)
                wanted = nn.Conv2d(4, 6, k, stride=stride, padding=k // 2)(x)
                assert LocalRelation(4, 6, k, stride=stride)(x).shape == wanted.shape


def test_local_relation_over_the_whole_image_is_attention():
    """A neighbourhood that reaches everywhere, no prior: PyTorch's attention with heads of size 1 for q and k."""
    layer = LocalRelation(6, 6, 9, share=3).double()
    nn.init.zeros_(layer.prior[2].weight)
    x = normal(2, 6, 4, 5)
    q, k = (conv(x).flatten(2).unsqueeze(-1) for conv in (layer.query, layer.key))  # B 2 20 1
    v = x.view(2, 2, 3, 20).transpose(2, 3)
    mixed = F.scaled_dot_product_attention(q, k, v, scale=1.0).transpose(2, 3).reshape(2, 6, 4, 5)
    close(layer(x), layer.out(mixed), "full attention", 1e-12)


def test_without_content_a_local_relation_is_a_convolution():
    """Keys that say nothing leave the prior: fixed weights, the same everywhere away from the border."""
    layer = LocalRelation(4, 4, 3, share=2).double()
    nn.init.zeros_(layer.key.weight)
    x = normal(2, 4, 6, 7)
    kernel = layer.prior(layer.offsets()).softmax(0).T.view(2, 1, 3, 3).repeat_interleave(2, 0)
    wanted = F.conv2d(x, kernel, groups=4)
    close(layer.relate(x)[0][:, :, 1:-1, 1:-1], wanted, "the inside", 1e-12)


def test_relations_are_weights_and_move_with_the_image():
    layer = LocalRelation(4, 4, 3, share=2).double()
    x = normal(1, 4, 8, 8)
    mixed, weights = layer.relate(x)
    close(weights.sum((-1, -2)), torch.ones(1, 2, 8, 8, dtype=torch.float64), "weights")
    assert weights[0, :, 0, 0, 0].eq(0).all() and weights[0, :, 0, 0, 1:, 1:].gt(0).all()  # above the first row
    moved = layer.relate(x.roll((1, 2), (2, 3)))[0]
    close(moved[..., 2:-1, 3:-1], mixed.roll((1, 2), (2, 3))[..., 2:-1, 3:-1], "a moved image")
    strided = LocalRelation(4, 4, 3, stride=2, share=2).double()
    strided.load_state_dict(layer.state_dict())
    close(strided(x), layer(x)[..., ::2, ::2], "every second place")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [(dict(kernel_size=4), "must be odd; use 5"), (dict(stride=0), "stride=0 must be at least 1")],
)
def test_wrong_sizes_carry_the_cure(wrong, message):
    with pytest.raises(ValueError, match=message):
        LocalRelation(4, 4, **{"kernel_size": 3} | wrong)


# ---- each trains --------------------------------------------------------------------------------------------------


def with_attention():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), ImageAttention(AttentionConfig(dim=16, heads=2)),
        nn.Conv2d(16, 16, 3, padding=1, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 16, 10),
    )  # fmt: skip


def with_relations(kernel_size):
    return nn.Sequential(
        nn.Conv2d(1, 16, 1), nn.BatchNorm2d(16), nn.ReLU(),
        LocalRelation(16, 16, kernel_size), nn.BatchNorm2d(16), nn.ReLU(),
        LocalRelation(16, 16, kernel_size, stride=2), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Flatten(), nn.Linear(16 * 16, 10),
    )  # fmt: skip


@pytest.mark.parametrize(
    "build", [with_attention, lambda: with_relations(3), lambda: with_relations(7)], ids=["attention", "3x3", "7x7"]
)
def test_a_small_network_learns_digits(build):
    images, digits = load_digits(return_X_y=True)
    x = torch.tensor(images[:50], dtype=torch.float32).view(-1, 1, 8, 8) / 16
    y = torch.tensor(digits[:50])
    model = build()
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
    assert model(x).argmax(-1).eq(y).all()
    assert all(not torch.equal(p, start[name]) for name, p in model.named_parameters())
