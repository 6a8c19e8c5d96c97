"""The training loop: configuration, optimizers, schedules, checkpoints and progress."""
