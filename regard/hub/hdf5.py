"""Arrays of HDF5 files, as far as published weights need them: groups of plain arrays of floats, in the first layout.

HDF5's own library is a large parser in C, in which files of strangers have found errors of memory for years; nothing
here reads a byte outside of the file. Each part of a file is read once, so loops and arrays under many names are
refused, and all that is read is little more than twice the file.
Layout: https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html
"""

import mmap
import struct
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.config import one_line
from regard.files import check_regular

SIGNATURE = b"\x89HDF\r\n\x1a\n"
DATASPACE, DATATYPE, EXTERNAL, LAYOUT, FILTERS, CONTINUATION, GROUP = 0x01, 0x03, 0x07, 0x08, 0x0B, 0x10, 0x11
"""Kinds of messages in the header of an object; others say nothing about its values."""
SHARED, SOFT, CONTIGUOUS = 2, 2, 1
FLOATS = {
    struct.pack("<BBHI2H4BI", 0x11, 0x20, bits - 1, bits // 8, 0, bits, digits, bits - digits - 1, 0, digits, bias):
        np.dtype(f"<f{bits // 8}")
    for bits, digits, bias in ((16, 10, 15), (32, 23, 127), (64, 52, 1023))
}  # fmt: skip
"""IEEE 754, the least significant byte first."""
DEEPEST, LONGEST, MOST = 16, 256, 10_000
"""Groups in each other, bytes of a name, and arrays and groups together."""


def read_hdf5(path: Path) -> dict[str, Tensor]:
    """Every array of an HDF5 file by its path in there, as float32."""
    check_regular(path)
    with path.open("rb") as file:
        if file.read(8) != SIGNATURE:
            raise ValueError(f"{path} is no HDF5 file; give the one that was published with the options")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return dict(Arrays(data).walk())
            except ValueError as error:
                fact = f"{path}: {one_line(error, 500)}"
                raise ValueError(f"{fact}; store the arrays plain, with h5py.File(…, libver='earliest')") from None


class Arrays:
    """The arrays of a file that lies in memory."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.seen = data, set[int]()
        self.left = 2 * len(data) + LONGEST * MOST
        """Bytes that may still be read."""

    def walk(self) -> Iterator[tuple[str, Tensor]]:
        """Yield paths and arrays."""
        version, offsets, lengths = self.at(8, "<B4x2B")
        if version > 1 or (offsets, lengths) != (8, 8):
            raise ValueError(f"layout {version} of HDF5 is not read, only the first")
        start = 24 + 4 * version
        if self.at(start, "<Q") != (0,):
            raise ValueError("HDF5 inside of another file is not read")
        waiting = [("", *self.at(start + 40, "<Q"))]
        while waiting:
            name, address = waiting.pop()
            if len(self.seen) > 4 * MOST or len(waiting) > MOST:
                raise ValueError(f"more than {MOST:,} arrays and groups are not read")
            messages = dict[int, bytes]()
            for kind, flags, body in self.messages(address):
                if kind in (DATASPACE, DATATYPE, EXTERNAL, LAYOUT, FILTERS, GROUP):
                    if flags & SHARED or kind in messages:
                        raise ValueError(f"{name} is described elsewhere or twice")
                    messages[kind] = body
            if GROUP not in messages:
                yield name, self.array(name, messages)
            elif name.count("/") >= DEEPEST:
                raise ValueError(f"groups lie too deep in each other, {name[:80]}")
            else:
                front = f"{name}/" if name else ""
                waiting += [(front + child, place) for child, place in self.children(*unpack("<2Q", messages[GROUP]))]

    def array(self, name: str, messages: dict[int, bytes]) -> Tensor:
        """The values of an array; what is packed, lies in another file or is no float is refused."""
        if EXTERNAL in messages or FILTERS in messages or not {DATASPACE, DATATYPE, LAYOUT} <= messages.keys():
            raise ValueError(f"{name} is packed, lies in another file or is no array")
        kind = FLOATS.get(messages[DATATYPE][:20])
        version, layout, address, size = unpack("<2B2Q", messages[LAYOUT])
        if kind is None or (version, layout) != (3, CONTIGUOUS):
            raise ValueError(f"{name} is no plain array of floats")
        version, rank = unpack("<2B", messages[DATASPACE])
        shape = unpack(f"<{8 if version == 1 else 4}x{rank}Q", messages[DATASPACE])
        if prod(shape) * kind.itemsize != size or size == 0:
            raise ValueError(f"{name} has {size:,} bytes for the shape {shape}")
        return torch.from_numpy(np.frombuffer(self.take(address, size), kind).astype("float32").reshape(shape))

    def messages(self, address: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield kind, flags and content of each message in the header of an object."""
        version, count, size = self.at(self.first(address), "<Bx H 4x I")
        if version != 1:
            raise ValueError("a later layout of HDF5 is not read")
        blocks = [(address + 16, size)]
        while blocks and count:
            start, size = blocks.pop(0)
            block, at = self.take(start, size), 0
            while count and at + 8 <= size:
                kind, length, flags = struct.unpack_from("<2HB", block, at)
                body, at, count = block[at + 8 : at + 8 + length], at + 8 + length, count - 1
                if kind == CONTINUATION:
                    start, more = unpack("<2Q", body)
                    blocks.append((self.first(start), more))
                else:
                    yield kind, flags, body

    def children(self, tree: int, heap: int) -> Iterator[tuple[str, int]]:
        """Yield names and addresses of what a group holds: its tree's leaves are tables of them, the heap has names."""
        size, names = self.signed(heap, b"HEAP", "<4x Q 8x Q")
        nodes = [tree]
        while nodes:
            address = nodes.pop()
            if self.take(address, 4) == b"TREE":
                kind, level, used = self.signed(self.first(address), b"TREE", "<2BH")
                if kind:
                    raise ValueError("a tree of pieces in place of a group")
                nodes += [self.at(address + 32 + 16 * i, "<Q")[0] for i in range(used)]
                continue
            (used,) = self.signed(self.first(address), b"SNOD", "<2xH")
            for i in range(used):
                name, place, kind = self.at(address + 8 + 40 * i, "<2QI")
                text, end, _ = self.take(names + name, max(0, min(LONGEST, size - name))).partition(b"\0")
                if kind == SOFT or not text or not end or b"/" in text:
                    raise ValueError(f"{text!r} is a link, or no name")
                yield text.decode(), place

    def first(self, address: int) -> int:
        """An address that has not been read before."""
        if address in self.seen:
            raise ValueError(f"byte {address} is read twice, as in a loop of groups or an array with two names")
        self.seen.add(address)
        return address

    def signed(self, address: int, signature: bytes, form: str) -> tuple[Any, ...]:
        """The fields behind the signature of a part."""
        if self.take(address, 4) != signature:
            raise ValueError(f"no {signature.decode()} at byte {address}")
        return self.at(address + 4, form)

    def at(self, address: int, form: str) -> tuple[Any, ...]:
        """The fields at an address."""
        return struct.unpack(form, self.take(address, struct.calcsize(form)))

    def take(self, address: int, size: int) -> bytes:
        """The bytes at an address."""
        self.left -= size
        if address + size > len(self.data) or self.left < 0:
            raise ValueError(f"it ends before byte {address + size}, or its parts lie in each other")
        return self.data[address : address + size]


def unpack(form: str, body: bytes) -> tuple[Any, ...]:
    """The fields at the beginning of a message."""
    if len(body) < struct.calcsize(form):
        raise ValueError("a message is cut short")
    return struct.unpack_from(form, body)
