"""A trained masked autoencoder: some patches of a picture in, the whole picture out."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.patches import cut, grid_of, paste
from regard.tasks.image_encoder import ImageEncoder, Picture

BLANK = 90
"""The grey of what is hidden."""


class ImageRestorer(ImageEncoder):
    """What `regard.load` returns for a masked autoencoder: a vector for each picture, and guesses of what is hidden."""

    def complete(
        self, pictures: Sequence[Picture] | np.ndarray, *, count: int = 1, seed: int = 0
    ) -> list[list[tuple[np.ndarray, np.ndarray]]]:
        """For each picture `count` pairs of bytes (rows, columns, channels): it with other patches blank each time, and
        with these patches as the model guesses them."""
        read = self.numbers(pictures) if isinstance(pictures, np.ndarray) else self.pixels(pictures)
        return [self.restored(pixels, count, seed) for pixels in read]

    @torch.inference_mode()
    def restored(self, pixels: np.ndarray, count: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """The same for one picture as the model reads it."""
        patch, like = self.model.config.patch, next(self.model.parameters())
        x = torch.from_numpy(pixels).to(like).expand(count, *pixels.shape)
        patches = cut(x, patch)
        noise = torch.rand(patches.shape[:2], generator=torch.Generator().manual_seed(seed))
        hidden = self.model.order(noise)[1][:, :, None]
        guessed = torch.where(hidden, self.model.in_pixels(self.model(x, noise), x), patches)
        blank = self.pasted(torch.zeros_like(x), hidden.to(x).expand_as(patches)).movedim(1, -1).numpy() > 0
        seen, whole = (self.preparation.bytes_of(one.numpy()) for one in (x, self.pasted(x, guessed)))
        return list(zip(np.where(blank, np.uint8(BLANK), seen), whole, strict=True))

    def pasted(self, x: Float[Tensor, "B C Y X"], patches: Float[Tensor, "B T P"]) -> Float[Tensor, "B C Y X"]:
        """Pictures with these patches; what the patch does not divide, at the bottom and the right, stays as it is."""
        patch = self.model.config.patch
        rows, columns = grid_of(tuple(x.shape[2:]), patch)
        found = x.clone()
        found[:, :, : rows * patch, : columns * patch] = paste(patches, patch, (rows, columns))
        return found
