"""Checkpoints by path, or by a name on the Hugging Face Hub, fetched into its cache."""

import re
from pathlib import Path

from regard.hub.files import CONFIG, WEIGHTS

# No pickles: what is not fetched cannot be loaded by mistake.
PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.model", "*.spm", "*.jinja"]
HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)
# The models from before the Hub had owners.
BARE_ID = re.compile(r"(distil)?(gpt2|bert|roberta|albert|t5)(-\w+)*", re.ASCII)


def find(where: str | Path) -> Path:
    """The path of a checkpoint; a name such as `gpt2` or `owner/name` that is no path is fetched from the Hub.

    The Hub's cache is used first, and `HF_HUB_OFFLINE=1` keeps the network out of it.
    """
    path, name = Path(where), str(where)
    if path.exists():
        return path
    # "runs/first" with a directory "runs" is a path with a mistake in it, not a model of the owner "runs".
    is_id = BARE_ID.fullmatch(name) or (HUB_ID.fullmatch(name) and not path.parent.exists())
    if isinstance(where, Path) or not is_id:
        cure = f"give the directory that holds {CONFIG} and {WEIGHTS}, or a name on the Hub such as owner/name"
        raise ValueError(f"no such directory: {name}; {cure}")
    return _fetch(name)


def _fetch(name: str) -> Path:
    try:
        from huggingface_hub import errors, snapshot_download
    except ImportError:
        raise ValueError(f"no such directory: {name}; for models of the Hub: pip install 'regard[hub]'") from None
    try:
        return Path(snapshot_download(name, allow_patterns=PATTERNS))
    except errors.GatedRepoError:
        fact, cure = "is kept behind terms on the Hub", "accept them on its page and run: hf auth login"
    except errors.RepositoryNotFoundError:
        fact, cure = "is neither a directory nor a model on the Hub", "check the spelling, or run: hf auth login"
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled):
        fact = "is no directory and not in the Hub's cache, and the Hub is out of reach or HF_HUB_OFFLINE is set"
        cure = "fetch it once with a connection, or give a local directory"
    except (OSError, ValueError) as error:
        fact, cure = f"could not be fetched from the Hub ({' '.join(str(error).split())})", "give a local directory"
    raise ValueError(f"{name} {fact}; {cure}")
