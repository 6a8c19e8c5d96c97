"""The settings of a training run."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """Budget, optimisation, checkpoints and validation of a run."""

    steps: int = 100_000
    """Updates of the weights."""
    minutes: float | None = None
    """Time budget instead of `steps`: the schedule then follows the clock, so two runs are not bit for bit equal."""
    clock: Literal["wall", "cpu"] = "wall"
    """Seconds that are counted: those that pass, or those of the processor, which other programs do not lengthen."""
    epochs: float | None = None
    """Passes over the data instead of `steps`, where the data has an end."""
    min_steps: int = 0
    """Least number of updates with `epochs`; a small data set is passed over more often."""
    device: str = "auto"
    """Device that computes: auto (CUDA if there is any, else the CPU), cpu, cuda, cuda:1, mps …"""
    precision: Literal["float32", "bfloat16", "float16", "fp8-emulated"] = "float32"
    """Numbers of matrix products: bfloat16 and float16 by autocast, the latter with a scaled loss; fp8-emulated rounds
    to what an FP8 GPU would read. Weights and optimizer stay in float32."""
    checkpoint_blocks: bool = False
    """Keep only the input of each block, and compute the block once more in the backward pass: less memory."""
    compile: bool = False
    """Compile the blocks by torch.compile: a minute or more at the start, faster steps after it."""
    batch_tokens: int = 4096
    """Tokens in a batch, padding included (the longer side of a pair counts)."""
    accumulate: int = 1
    """Batches whose gradients are summed before an update."""
    optimizer: Literal["adamw", "muon", "muon-conv"] = "adamw"
    """AdamW, or Muon for the matrices inside the blocks and AdamW for the rest; muon-conv: for kernels of convolutions,
    too."""
    lr: float | None = None
    """Peak learning rate (none: (dim · warmup)^−½, the 2017 paper's)."""
    schedule: Literal["inverse-sqrt", "cosine", "linear", "trapezoid", "constant"] = "inverse-sqrt"
    """Learning rate after the warm-up."""
    warmup: int | float = 4000
    """Linear warm-up: a number of steps, or below 1 a share of the run."""
    beta1: float = 0.9
    """AdamW's decay of the mean."""
    beta2: float = 0.98
    """AdamW's decay of the square."""
    weight_decay: float = 0.01
    """Decoupled decay of matrices."""
    clip: float = 1.0
    """Largest norm of the gradient; 0 never clips."""
    smoothing: float = 0.1
    """Label smoothing."""
    eval_every: int = 500
    """Steps between validations."""
    save_every: int = 500
    """Steps between checkpoints."""
    average: int = 1
    """The final model is the mean of this many last checkpoints; 1 keeps the best by validation loss."""
    select: Literal["loss", "metric"] = "loss"
    """The weights to keep: those of the lowest validation loss, or of the best metric where the task has one."""
    patience: int = 0
    """Stop after this many validations without improvement; 0 never stops early."""
    watch: int = 50
    """Steps between the doctor's measurements of gradients, updates and attention; 0 measures none."""
    seed: int = 0
    """Random seed of the weights, the order of batches and dropout."""
    parallel: str = "data"
    """Work that the processes of torchrun share: data, shard, tensor, pipeline, or numbers (shard=4,tensor=2)."""
    noise: Literal["counted", "generator"] = "counted"
    """Dropout's random numbers: a function of seed, step, layer and row, or a generator's, as runs had them before."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_tokens", "accumulate", "eval_every", "save_every", "average"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        for name in ("warmup", "min_steps", "weight_decay", "clip", "patience", "watch"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must not be negative")
        for name in ("lr", "minutes", "epochs"):
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be positive, or none")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing={self.smoothing} is not in [0, 1)")
        if self.lr is None and not self.warmup:
            raise ValueError("the default peak (dim · warmup)^−½ needs a warm-up; set lr or warmup")

    @property
    def warmup_steps(self) -> int:
        """The steps of warm-up in a run of `steps`."""
        if not 0 < self.warmup < 1:
            return int(self.warmup)
        return max(1, round(self.warmup * self.steps))
