"""Writes small HDF5 files in the first layout, so that tests and fuzzers need no library for them."""

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from regard.hub.hdf5 import FLOATS, SIGNATURE

NOWHERE = 2**64 - 1
LEAF, INNER = 16, 2
"""Half of what a table of a group, or a node of its tree, has room for."""


def hdf5(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return a file with these arrays by their paths, such as `group/name`."""
    data = bytearray(96)

    def put(part: bytes) -> int:
        data.extend(part + bytes(-len(part) % 8))
        return len(data) - len(part) - -len(part) % 8

    def put_object(*messages: tuple[int, bytes]) -> int:
        bodies = [
            struct.pack("<2HB3x", kind, len(body) + -len(body) % 8, 0) + body + bytes(-len(body) % 8)
            for kind, body in messages
        ]
        size = sum(map(len, bodies))
        return put(struct.pack("<BxH2I4x", 1, len(bodies), 1, size) + b"".join(bodies))

    def put_array(array: np.ndarray) -> int:
        (kind,) = [pattern for pattern, dtype in FLOATS.items() if dtype == array.dtype]
        space = struct.pack(f"<3B5x{array.ndim}Q", 1, array.ndim, 0, *array.shape)
        values = put(array.tobytes())
        return put_object((1, space), (3, kind), (8, struct.pack("<2B2Q", 3, 1, values, array.nbytes)))

    def put_group(tree: dict[str, Any]) -> int:
        places = {name: (put_group if isinstance(tree[name], dict) else put_array)(tree[name]) for name in sorted(tree)}
        names, table = bytearray(8), b""
        for name, place in places.items():
            table += struct.pack("<2Q2I16x", len(names), place, 0, 0)
            names += name.encode() + bytes(8 - len(name.encode()) % 8)
        leaf = put(b"SNOD" + struct.pack("<BxH", 1, len(places)) + table.ljust(2 * LEAF * 40, b"\0"))
        heap = put(b"HEAP" + struct.pack("<B3x3Q", 0, len(names), 1, put(bytes(names))))  # 1: no free room in it
        last = len(names) - 8 - len(max(places, default="").encode()) // 8 * 8
        node = struct.pack("<2BH2Q", 0, 0, 1, NOWHERE, NOWHERE) + struct.pack("<3Q", 0, leaf, last)
        return put_object((17, struct.pack("<2Q", put(b"TREE" + node + bytes(16 * (2 * INNER - 1))), heap)))

    root: dict[str, Any] = {}
    for path, array in arrays.items():
        *groups, name = path.split("/")
        tree = root
        for group in groups:
            tree = tree.setdefault(group, {})
        tree[name] = array
    address = put_group(root)
    sizes = struct.pack("<8B2HI", 0, 0, 0, 0, 0, 8, 8, 0, LEAF, INNER, 0)
    data[:96] = SIGNATURE + sizes + struct.pack("<6Q2I16x", 0, NOWHERE, len(data), NOWHERE, 0, address, 0, 0)
    return bytes(data)
