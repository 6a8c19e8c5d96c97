"""Lists of recordings with what was said, or with their classes: tables, *.trans.txt; the first byte chooses."""

import shutil

import numpy as np

from fuzz.scratch import FOLDER, put
from regard.data.readers.audio_files import wav_bytes
from regard.data.readers.recordings import list_sounds, list_spoken

READS = ("regard.data.readers.recordings",)
NAMES = ("train.tsv", "metadata.csv", "all.jsonl", "said.trans.txt", "a.txt", "classes/list.csv")
WAV = wav_bytes(np.full(160, 0.1), 16_000)
WORDS = [b"path", b"text", b"sentence", b"label", b"a.wav", b"clips/b.wav", b"../recordings/a.wav", b"|", b"\t"]


def seeds() -> list[bytes]:
    """Return a list of each kind."""
    return [
        b"\x00client_id\tpath\tsentence\nx\ta.wav\tHello there.\ny\tb\tBye.\n",
        b"\x01a|HELLO THERE.|Hello there.\nb|BYE.|Bye.\n",
        b'\x02{"audio_filepath": "a.wav", "text": "Hello there."}\n{"audio_filepath": "b.wav", "text": "Bye."}\n',
        b"\x03a GO DO YOU HEAR\nb\n",
        b"\x04what was said\n",
        b"\x05path,label\n../a.wav,cat\n../clips/b.wav,dog\n",
    ]


def run(data: bytes) -> None:
    """Read the list, and open its recordings."""
    choice = data[0] % len(NAMES) if data else 0
    shutil.rmtree(FOLDER / "recordings", ignore_errors=True)
    for name in ("a.wav", "clips/b.wav", "b.wav") if choice != 1 else ("a.wav", "wavs/b.wav"):
        put(f"recordings/{name}", WAV)
    path = put(f"recordings/{NAMES[choice]}", data[1:])
    for file in list_sounds(path) if choice == 5 else list_spoken(path.parent):
        file.open()
