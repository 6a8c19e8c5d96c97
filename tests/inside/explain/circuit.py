"""An induction circuit by hand: a head that finds the token before, and one that finds what followed last time."""

import torch

from regard.models import GPT, GPTConfig

VOCAB, PLACES, SIZE = 11, 24, 24
PREVIOUS, INDUCTION = ("decoder.blocks.0.attention", 0), ("decoder.blocks.1.attention", 1)
# Each token's vector holds four things side by side.
TOKEN, PLACE, BEFORE, SAID = (
    slice(start, stop)
    for start, stop in [(0, 11), (11, 35), (35, 46), (46, 57)]
)  # fmt: skip


@torch.no_grad()
def circuit() -> GPT:
    """Two layers of two heads, one each does something; a text begins with token 0, which never comes again."""
    model = GPT(GPTConfig(
        vocab_size=VOCAB, dim=57, depth=2, heads=2, head_dim=SIZE, ffn_dim=1, position="learned", max_len=PLACES,
        norm="rms", bias=False, tie=False, dropout=0.0,
    )).eval()  # fmt: skip
    for parameter in model.decoder.blocks.parameters():
        if parameter.dim() > 1:
            parameter.zero_()
    model.embedding.weight.zero_()[:, TOKEN] = torch.eye(VOCAB)
    model.decoder.position.table.zero_()[:, PLACE] = torch.eye(PLACES)
    model.head.weight.zero_()[:, SAID] = 4 * torch.eye(VOCAB)
    first, second = (block.attention for block in model.decoder.blocks)
    head = slice(0, SIZE)  # the first
    first.query.weight[head, PLACE] = 4 * torch.eye(PLACES).roll(-1, 0)  # place p asks for p − 1
    first.query.weight[head, PLACE][-1, 0] = 0  # and the first for nobody
    key, value = first.key_value.weight.chunk(2)
    key[head, PLACE] = torch.eye(PLACES)
    value[:VOCAB, TOKEN] = torch.eye(VOCAB)
    first.out.weight[BEFORE, :VOCAB] = torch.eye(VOCAB)
    own = slice(SIZE, SIZE + VOCAB)  # the second
    second.query.weight[own, TOKEN] = 4 * torch.eye(VOCAB)
    key, value = second.key_value.weight.chunk(2)
    key[own, BEFORE] = torch.eye(VOCAB)
    value[own, TOKEN] = torch.eye(VOCAB)
    second.out.weight[SAID, own] = torch.eye(VOCAB)
    return model
