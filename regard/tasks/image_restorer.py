"""Masked autoencoding: some patches of an image in, the whole image out."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.patches import cut, grid_of, paste
from regard.tasks.base import EvalSet, Option, Samples, Verb, register_task
from regard.tasks.image_encoder import EMBED_IMAGES, ImageEncoder, ImageInput, opened
from regard.tasks.pixel_model import BLANK, sheet
from regard.tasks.single import one_or_many


@register_task("restore-images")
class ImageRestorer(ImageEncoder):
    """Reconstructs masked patches of images, and embeds images."""

    verbs: ClassVar[tuple[Verb, ...]] = (
        Verb(
            name="complete", does="completes images", ability=None,
            options=(
                Option(name="count", kind=int, default=1, limits=(1, 1024), help="Completions of each image."),
                Option(name="seed", kind=int, default=0, help="Of the random mask."),
            ),
        ),
        EMBED_IMAGES,
    )  # fmt: skip

    @one_or_many
    def complete(
        self, images: Sequence[ImageInput] | np.ndarray, *, count: int = 1, seed: int = 0
    ) -> list[list[tuple[np.ndarray, np.ndarray]]]:
        """For each image `count` pairs of uint8 arrays (rows, columns, channels): the image with a random mask, and
        with the masked patches as the model reconstructs them."""
        arrays = self.numbers(images) if isinstance(images, np.ndarray) else self.pixels(images)
        return [self.restored(pixels, count, seed) for pixels in arrays]

    def completions(self, images: Sequence[ImageInput], *, count: int = 1, seed: int = 0) -> list[list[np.ndarray]]:
        """For each image a row for `pixel_model.sheet`: masked and reconstructed versions, and the image itself."""
        if not images:
            raise ValueError("a masked autoencoder restores images; give an IMAGE")
        arrays = np.stack([self.preprocessing.fit(image) for image in opened(images)])
        pairs = self.complete(arrays, count=count, seed=seed)
        return [[*(array for pair in row for array in pair), whole] for row, whole in zip(pairs, arrays, strict=True)]

    def samples(self, test: EvalSet, run: Path) -> Samples:
        """A few held-out images, most patches of which are masked, each restored twice."""
        arrays = test.data.held_out().take(slice(6)).pixels
        pairs = self.complete(arrays, count=2)
        rows = [[*first, *second, whole] for (first, second), whole in zip(pairs, arrays, strict=True)]
        plain = super().samples(test, run)
        commands = [f"regard complete {run} image.png --out done.png", *plain.commands]
        return replace(plain, commands=commands, images={"done.png": sheet(rows)})

    @torch.inference_mode()
    def restored(self, pixels: np.ndarray, count: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """`count` masked and reconstructed versions of one preprocessed image."""
        patch, like = self.model.config.patch, next(self.model.parameters())
        x = torch.from_numpy(pixels).to(like).expand(count, *pixels.shape)
        patches = cut(x, patch)
        noise = torch.rand(patches.shape[:2], generator=torch.Generator().manual_seed(seed)).to(like)
        hidden = self.model.order(noise)[1][:, :, None]
        guessed = torch.where(hidden, self.model.in_pixels(self.model(x, noise), x), patches)
        blank = self.pasted(torch.zeros_like(x), hidden.to(x).expand_as(patches)).movedim(1, -1).cpu().numpy() > 0
        seen, whole = (self.preprocessing.bytes_of(one.cpu().numpy()) for one in (x, self.pasted(x, guessed)))
        return list(zip(np.where(blank, np.uint8(BLANK), seen), whole, strict=True))

    def masks(self, patches: int) -> Float[Tensor, "K T"]:
        """Noise of masks that show each patch once, so that all latent vectors together stand for a whole image; if
        patches do not divide, some are shown twice."""
        seen = self.model.config.seen(patches)
        order = torch.randperm(patches, generator=torch.Generator().manual_seed(0))
        noise = torch.ones(-(-patches // seen), patches)
        for number, row in enumerate(noise):
            row[order[torch.arange(number * seen, (number + 1) * seen) % patches]] = 0.0
        return noise

    @torch.inference_mode()
    def latents(self, images: Sequence[ImageInput]) -> Float[Tensor, "N L"]:
        """One long vector for each image: the encoder's outputs under masks that together show all patches."""
        rows, like = [], next(self.model.parameters())
        for pixels in self.pixels(images):
            x = torch.from_numpy(pixels).to(like)[None]
            noise = self.masks(cut(x, self.model.config.patch).shape[1])
            rows.append(self.model.features(x.expand(len(noise), *x.shape[1:]), noise.to(like)).flatten())
        return torch.stack(rows).float()

    @torch.inference_mode()
    def decoded(self, latents: Float[Tensor, "N L"], image: ImageInput) -> np.ndarray:
        """Images from vectors as `latents` gives them, uint8 (number, rows, columns, channels): each patch is the mean
        of what the decoder predicts where it is masked. Of `image` come the size and whatever is not predicted."""
        like = next(self.model.parameters())
        x = torch.from_numpy(self.pixels([image])[0]).to(like)[None]
        grid = grid_of(tuple(x.shape[2:]), self.model.config.patch)
        noise = self.masks(grid[0] * grid[1]).to(like)
        hidden = self.model.order(noise)[1][:, :, None].to(like)
        images = []
        for row in latents.to(like).unflatten(1, (len(noise), -1, self.model.config.dim)):
            guesses = self.model.in_pixels(self.model.decode(row, noise, grid), x.expand(len(noise), *x.shape[1:]))
            images.append((guesses * hidden).sum(0) / hidden.sum(0))
        whole = self.pasted(x.expand(len(images), *x.shape[1:]), torch.stack(images))
        return self.preprocessing.bytes_of(whole.float().numpy())

    def pasted(self, x: Float[Tensor, "B C Y X"], patches: Float[Tensor, "B T P"]) -> Float[Tensor, "B C Y X"]:
        """Images with these patches pasted in; rows and columns beyond the last whole patch stay as they are."""
        patch = self.model.config.patch
        rows, columns = grid_of(tuple(x.shape[2:]), patch)
        images = x.clone()
        images[:, :, : rows * patch, : columns * patch] = paste(patches, patch, (rows, columns))
        return images
