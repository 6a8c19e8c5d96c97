"""Datasets by name: `hf:owner/name`, `hf:owner/name/config:split`, fetched as parquet from the Hugging Face Hub."""

import re
from functools import cache
from pathlib import Path
from typing import NoReturn

from regard.data.notices import notify

HUB = "hf:"
NAME = re.compile(r"hf:(?P<name>[\w.-]+(/[\w.-]+)?)(/(?P<config>[\w.-]+))?(:(?P<split>[\w.-]+))?", re.ASCII)
BRANCH = "refs/convert/parquet"
"""The branch in which the Hub keeps every public dataset as parquet, CONFIG/SPLIT/0000.parquet."""


def fetch_set(source: str) -> list[Path]:
    """The local parquet files of a dataset; without a split, those of the training set. No code of it is run."""
    match = NAME.fullmatch(source)
    if match is None:
        raise ValueError(f"{source}: datasets are named hf:owner/name, hf:owner/name:test, hf:owner/name/config:train")
    try:
        from huggingface_hub import HfApi, errors, hf_hub_download
    except ImportError:
        raise ImportError(f"{source}: datasets of the Hub need extras: pip install 'regard[hub,tables]'") from None
    name, split = match["name"], match["split"] or "train"
    try:
        listed = list(HfApi().list_repo_files(name, repo_type="dataset", revision=BRANCH))
    except errors.GatedRepoError:
        refuse(source, "is kept behind terms on the Hub", "accept them on its page and run: hf auth login")
    except errors.RevisionNotFoundError:
        refuse(source, "is not kept as parquet by the Hub", "save it with `datasets` as parquet, and name the file")
    except errors.RepositoryNotFoundError:
        refuse(source, "is no dataset on the Hub", "check the spelling, or run: hf auth login")
    except Exception as error:  # of whatever library speaks to the network
        refuse(source, out_of_reach(error), "try with a connection, or name a local file")
    files = choose(listed, match["config"], split, source)
    try:
        return [Path(hf_hub_download(name, file, repo_type="dataset", revision=BRANCH)) for file in files]
    except Exception as error:
        refuse(source, out_of_reach(error), "try with a connection, or name a local file")


def out_of_reach(error: Exception) -> str:
    """A network error as a part of an error message."""
    return f"could not be fetched from the Hub ({' '.join(str(error).split())[:100] or type(error).__name__})"


def refuse(source: str, fact: str, cure: str) -> NoReturn:
    """Raise the error for a dataset that cannot be downloaded."""
    raise ValueError(f"{source} {fact}; {cure}") from None


def choose(listed: list[str], config: str | None, split: str, source: str) -> list[str]:
    """The files of a configuration and a split; an error that names those that exist where there is doubt."""
    parts = [(*file.split("/"), file) for file in sorted(listed) if file.endswith(".parquet") and file.count("/") == 2]
    configs = list(dict.fromkeys(part[0] for part in parts))
    if config is None:
        config = "default" if "default" in configs else configs[0] if len(configs) == 1 else None
    if config is None or config not in configs:
        raise ValueError(f"{source}: its configurations are {', '.join(configs) or 'none'}; write hf:owner/name/CONFIG")
    splits = {part[1].removeprefix("partial-"): part[1] for part in parts if part[0] == config}
    if split not in splits:
        raise ValueError(f"{source}: no split {split!r}, only {', '.join(splits)}; write it behind a colon, as :train")
    if splits[split] != split:
        partial_notice(source, split)
    return [part[3] for part in parts if part[:2] == (config, splits[split])]


@cache
def partial_notice(source: str, split: str) -> None:
    """Say once that a large split is read in part."""
    notify(f"{source}: the Hub keeps only the first part of {split!r} as parquet; the rest is not read")
