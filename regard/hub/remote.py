"""Checkpoints by path, or as `hf:owner/name[@revision]` from the Hugging Face Hub, fetched into its cache."""

import re
from difflib import get_close_matches
from pathlib import Path

from regard.hub.files import CONFIG, WEIGHTS

# No pickles: what is not fetched cannot be loaded by mistake.
PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.model", "*.spm", "*.jinja"]
HUB = "hf:"
NAME = re.compile(r"hf:(?P<name>\w[\w.-]*(/\w[\w.-]*)?)(@(?P<revision>\w[\w./-]*))?", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{40}")


def find(where: str | Path) -> Path:
    """The path of a checkpoint. Only `hf:owner/name`, or `hf:owner/name@revision`, is fetched from the Hub: a path that
    does not exist never is.

    The Hub's cache is used first, and `HF_HUB_OFFLINE=1` keeps the network out of it.
    """
    path, name = Path(where), str(where)
    if path.exists():
        return path
    if name.startswith(HUB):
        match = NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"{name}: models of the Hub are named hf:owner/name, or hf:owner/name@revision")
        return _fetch(match["name"], match["revision"])
    beside = sorted(path.parent.iterdir()) if path.parent.is_dir() else []
    if close := get_close_matches(path.name, [other.name for other in beside if (other / CONFIG).exists()], n=1):
        raise ValueError(f"no such directory: {name}; did you mean {path.with_name(close[0])}?")
    named = NAME.fullmatch(HUB + name) if isinstance(where, str) else None
    hub = f"a model of the Hub is named {HUB}{name if named else 'owner/name'}"
    raise ValueError(f"no such directory: {name}; give the directory that holds {CONFIG} and {WEIGHTS}; {hub}")


def revision_of(path: Path) -> str | None:
    """The commit that a checkpoint in the Hub's cache is of; None for any other directory."""
    return path.name if path.parent.name == "snapshots" and COMMIT.fullmatch(path.name) else None


def pinned(where: str) -> str:
    """The name of a model of the Hub with the revision that it stands for now; paths as they are."""
    if not where.startswith(HUB) or Path(where).exists():
        return where
    revision = revision_of(find(where))
    return where if revision is None else f"{where.partition('@')[0]}@{revision}"


def _fetch(name: str, revision: str | None) -> Path:
    try:
        from huggingface_hub import errors, snapshot_download
    except ImportError:
        raise ValueError(f"{HUB}{name}: models of the Hub need an extra: pip install 'regard[hub]'") from None
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=PATTERNS))
    except errors.GatedRepoError:
        fact, cure = "is kept behind terms on the Hub", "accept them on its page and run: hf auth login"
    except errors.RevisionNotFoundError:
        fact, cure = f"has no revision {revision} on the Hub", "check the spelling, or leave it out"
    except errors.RepositoryNotFoundError:
        fact, cure = "is no model on the Hub", "check the spelling, or run: hf auth login"
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled):
        fact = "is not in the Hub's cache, and the Hub is out of reach or HF_HUB_OFFLINE is set"
        cure = "fetch it once with a connection, or give a local directory"
    except (OSError, ValueError) as error:
        fact, cure = f"could not be fetched from the Hub ({' '.join(str(error).split())})", "give a local directory"
    raise ValueError(f"{HUB}{name} {fact}; {cure}")
