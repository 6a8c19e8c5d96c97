"""Reading regular files of a limited size only, and writing files so that a crash or a full disk leaves the old one or
the new one, never half of one."""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


KINDS = {
    stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}  # fmt: skip


def check_regular(path: Path, most: int | None = None) -> int:
    """The size of a file in bytes. A ValueError for what has no end or blocks whoever opens it (devices, FIFOs), for
    directories, for links in a loop or to nothing, and for a file of more than `most` bytes; FileNotFoundError for a
    missing one."""
    try:
        state = os.stat(path)
    except FileNotFoundError:
        if os.path.islink(path):
            raise ValueError(f"{path} is a link to a file that is not there; fetch that, or remove the link") from None
        raise
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        loops = isinstance(error, OSError) and error.errno == errno.ELOOP
        reason = "is a loop of links" if loops else f"cannot be read ({getattr(error, 'strerror', None) or error})"
        raise ValueError(f"{path} {reason}; give a regular file") from None
    if not stat.S_ISREG(state.st_mode):
        kind = KINDS.get(stat.S_IFMT(state.st_mode), "of an unknown kind")
        raise ValueError(f"{path} is {kind}; give a regular file")
    if most is not None and state.st_size > most:
        raise ValueError(f"{path} has {state.st_size:,} bytes, at most {most:,} are read; give a smaller file")
    return state.st_size


def missing(path: Path) -> str:
    """The rest of an error about a file that is not there: the name of one beside it that is nearly the same."""
    if os.path.islink(path):
        return "it is a link in a loop, or to nothing; mend it, or name the file itself"
    beside = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
    close = get_close_matches(path.name[:100], beside, n=1, cutoff=0.8)
    return f"did you mean {path.with_name(close[0])}?" if close else "check the path"


def read_bytes(path: Path, most: int) -> bytes:
    """The bytes of a regular file of at most so many; one that grows while it is read is read up to its size before."""
    size = check_regular(path, most)
    with path.open("rb") as file:
        return file.read(size)


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Lets `write` fill a new file beside `path`, then renames it. The new file keeps the suffix of the old."""
    draft = path.with_name(f".{path.stem}-{os.getpid()}{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(draft)
        sync(draft)
        draft.replace(path)
        sync(path.parent)
    except OSError as error:
        kept = "; the old file is as it was" if path.exists() else ""
        reason = error.strerror or error
        raise OSError(f"could not write {path}: {reason}; free some space or choose another place{kept}") from None
    finally:
        draft.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text as UTF-8, whole or not at all."""
    write_atomically(path, lambda draft: draft.write_text(text, encoding="utf-8"))


def write_tensors(path: Path, tensors: Mapping[str, Any]) -> None:
    """Write a safetensors file; errors of the file system are raised as OSError."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(whole, path, metadata={"format": "pt"})
    except SafetensorError as error:
        raise OSError(f"could not write {path}: {error}") from None
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)  # the library keeps its files to their owner


def same_file(first: Any, second: Any) -> bool:
    """Whether two paths name the same file or folder."""
    return isinstance(first, str) and isinstance(second, str) and Path(first).resolve() == Path(second).resolve()


def sync(path: Path) -> None:
    """Flush a file, or a directory's entries, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Context manager: lock a directory against other training processes; the lock ends with the process."""
    if fcntl is None:
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        _lock(handle, directory)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, directory: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(f"another process trains in {directory}; wait for its end, or choose another --out") from None
    except OSError:  # a file system that knows no locks
        pass


def own_tensors(model: Any) -> dict[str, Any]:
    """Return parameters and persistent buffers by name; tied tensors are listed once, under their first name."""
    names: dict[int, str] = {}
    state = model.state_dict(keep_vars=True)
    for name, tensor in state.items():
        names.setdefault(id(tensor), name)
    return {name: state[name] for name in names.values()}


def trained_tensors(model: Any) -> dict[str, Any]:
    """Return those of `own_tensors` that are trained; all of them unless some are frozen."""
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    return {name: tensor for name, tensor in own_tensors(model).items() if name not in frozen}
