"""Regard: every Transformer, from one attention core. Train it, run it, look inside it, on your own machine."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from regard.decode.sample import Sampling as Sampling
    from regard.inside.capture.weights import look as look
    from regard.nn.attention import Attention as Attention
    from regard.nn.attention import AttentionConfig as AttentionConfig
    from regard.recipes import Recipe as Recipe
    from regard.recipes import fit as fit
    from regard.recipes import recipe as recipe
    from regard.registry import register_kernel as register_kernel
    from regard.registry import register_modality as register_modality
    from regard.registry import register_model as register_model
    from regard.registry import register_position as register_position
    from regard.registry import register_recipe as register_recipe
    from regard.tasks import LanguageModel as LanguageModel
    from regard.tasks import Task as Task
    from regard.tasks import Translation as Translation
    from regard.tasks import Translator as Translator
    from regard.tasks import load as load
    from regard.tasks import register_task as register_task
    from regard.tasks.streaming import Engine as Engine
    from regard.tokens import Tokenizer as Tokenizer

# Where each public name lives: `import regard` itself imports nothing heavy.
_HOMES = {
    "Attention": "regard.nn.attention",
    "AttentionConfig": "regard.nn.attention",
    "Engine": "regard.tasks.streaming",
    "Recipe": "regard.recipes",
    "Sampling": "regard.decode.sample",
    "Task": "regard.tasks",
    "Tokenizer": "regard.tokens",
    "Translation": "regard.tasks",
    "Translator": "regard.tasks",
    "LanguageModel": "regard.tasks",
    "fit": "regard.recipes",
    "load": "regard.tasks",
    "look": "regard.inside.capture.weights",
    "masks": "regard.nn",
    "recipe": "regard.recipes",
    "register_kernel": "regard.registry",
    "register_modality": "regard.registry",
    "register_model": "regard.registry",
    "register_position": "regard.registry",
    "register_recipe": "regard.registry",
    "register_task": "regard.tasks",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("regard")
        except PackageNotFoundError:  # a checkout that nobody installed
            return "unknown"
    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    import importlib

    home = importlib.import_module(_HOMES[name])
    return getattr(home, name, None) or importlib.import_module(f"{_HOMES[name]}.{name}")


def __dir__() -> list[str]:
    return __all__
