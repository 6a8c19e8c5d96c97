"""HDF5 files: plain arrays are read, and hostile files are refused by what they claim."""

import struct
from pathlib import Path

import numpy as np
import pytest

from fuzz.hdf5 import hdf5
from regard.hub.hdf5 import MOST, read_hdf5

ARRAYS = {
    "a": np.arange(6, dtype="float32").reshape(2, 3), "group/b": np.array([1.5, -2.0]),
    "group/inner/c": np.array(3, "float16"),
}  # fmt: skip


def read(tmp_path: Path, data: bytes):
    (tmp_path / "x.hdf5").write_bytes(data)
    return read_hdf5(tmp_path / "x.hdf5")


def test_arrays_by_their_paths(tmp_path):
    found = read(tmp_path, hdf5(ARRAYS))
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name].numpy(), array.astype("float32"))


def test_what_the_library_writes(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "x.hdf5"
    path.write_bytes(hdf5(ARRAYS))
    with h5py.File(path) as file:  # our own files are sound
        assert all(np.array_equal(file[name][()], array) for name, array in ARRAYS.items())
    many = {f"many/{i}": np.full(2, i, "float32") for i in range(200)}
    with h5py.File(path, "w", libver="earliest") as file:
        for name, array in (ARRAYS | many).items():
            file[name] = array
    found = read_hdf5(path)
    assert found.keys() == (ARRAYS | many).keys()
    assert all(np.array_equal(found[name].numpy(), array) for name, array in (ARRAYS | many).items())
    for change in (
        lambda file: file.create_dataset("packed", data=np.zeros(2**20, "float32"), compression="gzip"),
        lambda file: file.create_dataset("outside", (4,), "float32", external=[("/etc/passwd", 0, 16)]),
        lambda file: file.__setitem__("soft", h5py.SoftLink("/a")),
        lambda file: file.__setitem__("elsewhere", h5py.ExternalLink("other.hdf5", "/a")),
        lambda file: file.__setitem__("again", file["a"]),
        lambda file: file["group"].__setitem__("loop", file["/"]),
        lambda file: file.__setitem__("whole", np.zeros(3, "int64")),
    ):
        with h5py.File(path, "w", libver="earliest") as file:
            file["a"] = ARRAYS["a"]
            file.create_group("group")
            change(file)
        with pytest.raises(ValueError, match=r"store the arrays plain") as error:
            read_hdf5(path)
        assert "\n" not in str(error.value)


def test_bombs(tmp_path):
    sound = hdf5(ARRAYS)
    for old, new, message in (
        (struct.pack("<2Q", 2, 3), struct.pack("<2Q", 2**40, 3), "has 24 bytes for the shape"),
        (struct.pack("<2Q", 2, 3), struct.pack("<2Q", 0, 2**60), "has 24 bytes for the shape"),
        (b"\x89HDF", b"\x89hdf", "is no HDF5 file"),
        (b"SNOD\x01\0\x01\0", b"SNOD\x01\0\xff\xff", "is a link, or no name|read twice|it ends before"),
    ):
        assert sound.count(old) == 1
        with pytest.raises(ValueError, match=message):
            read(tmp_path, sound.replace(old, new))
    for end in range(0, len(sound), 7):  # cut short at every place
        with pytest.raises(ValueError, match="x.hdf5"):
            read(tmp_path, sound[:end])


def test_a_loop_of_groups(tmp_path):
    data = bytearray(hdf5({"group/inner/a": ARRAYS["a"]}))
    root = struct.unpack_from("<Q", data, 64)[0]
    nodes = [at for at in range(len(data)) if data[at : at + 4] == b"SNOD"]
    struct.pack_into("<Q", data, nodes[0] + 16, root)  # the innermost group holds the outermost
    with pytest.raises(ValueError, match="is read twice"):
        read(tmp_path, bytes(data))


def test_arrays_in_each_other(tmp_path):
    """Many arrays that lie in the same bytes would take more memory than the file has bytes."""
    size = 2**16
    data = bytearray(hdf5({f"a{i}": np.zeros(size if i == 0 else 1, "float32") for i in range(30)}))
    large = data.index(struct.pack("<2BQ", 3, 1, 0)[:2] + struct.pack("<Q", 96)[:8])
    layout = bytes(data[large : large + 18])
    space = struct.pack("<3B5xQ", 1, 1, 0, 1)
    at = -1
    while (at := data.find(space, at + 1)) > 0:
        data[at : at + 16] = struct.pack("<3B5xQ", 1, 1, 0, size)
        own = data.find(b"\x03\x01", at + 16)
        data[own : own + 18] = layout
    with pytest.raises(ValueError, match="its parts lie in each other"):
        read(tmp_path, bytes(data))


def test_more_arrays_than_any_model_has(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.hub.hdf5.MOST", 5)
    assert MOST > 1000
    with pytest.raises(ValueError, match="more than 5 arrays and groups are not read"):
        read(tmp_path, hdf5({f"a{i}": np.zeros(1, "float32") for i in range(8)}))
