"""The command line. Results go to stdout, progress to stderr; a user's mistake is one line, never a traceback."""

# Importing adds their commands, in this order.
from regard.cli import training, launch, data, verbs, images, audio, series  # noqa: F401, I001
from regard.cli import serve, tokens, sample, inside, attend  # noqa: F401
from regard.cli import look, latent, bench, bench_models, why, decide, doctor, claims  # noqa: F401
from regard.cli.base import main, overrides, regard

__all__ = ["main", "overrides", "regard"]
