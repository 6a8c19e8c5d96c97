"""Uploads of recordings to a server with a tiny model: forms behind their content type; the first byte chooses."""

import atexit
import json
from functools import cache
from typing import Any

import numpy as np

from fuzz.harnesses.forms import TYPE
from fuzz.harnesses.requests import LOOP, send
from fuzz.scratch import FOLDER
from regard.data.readers.audio_files import wav_bytes
from regard.models import build, preset
from regard.serve.app import build_app
from regard.serve.model_store import ModelStore
from regard.serve.settings import Settings
from regard.tasks.ctc_transcriber import CTCTranscriber
from regard.tokens import Tokenizer
from regard.tokens.mel import LogMel

READS = ("regard.serve.audio", "regard.serve.multipart")
ROUTES = ("/v1/audio/transcriptions", "/v1/audio/translations")
FIELDS = dict(
    model="ctc", language="en", prompt="a bird", response_format="verbose_json", temperature="0", stream="true",
    **{"timestamp_granularities[]": "segment"},
)  # fmt: skip
HEAD = "\r\n--b\r\nContent-Disposition: form-data; name="
WORDS = [f'{HEAD}"{name}"\r\n\r\n{value}'.encode() for name, value in FIELDS.items()]


@cache
def served() -> Any:
    """Return the application of a server with a model that writes by CTC."""
    letters = Tokenizer.train(texts=["a red bird"], kind="char", vocab_size=300)
    sizes = dict(dim=8, depth=1, heads=2, ffn_dim=8, channels=2, bands=16)
    model = build("conformer", preset("conformer", "tiny", **sizes, vocab_size=letters.vocab_size, blank=letters.pad))
    CTCTranscriber(model, LogMel(style="nemo", fft=512, bands=16), letters).export(FOLDER / "models" / "ctc")
    settings = Settings(timeout=20)
    store = ModelStore({"ctc": str(FOLDER / "models" / "ctc")}, settings)
    atexit.register(store.close)
    return build_app(store, settings)


def seeds() -> list[bytes]:
    """Return uploads that are answered."""
    noise = wav_bytes(np.random.default_rng(0).uniform(-0.3, 0.3, 4000), 8_000)
    file = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n' + noise
    plain = [WORDS[0], WORDS[0] + WORDS[3], WORDS[0] + WORDS[5], WORDS[0] + WORDS[4] + WORDS[6]]
    return [b"\x00" + TYPE + file + fields + b"\r\n--b--\r\n" for fields in plain]


def run(data: bytes) -> None:
    """Send the form; an answer of 4xx is a refusal, one of 5xx a finding."""
    type_, _, body = data[1:].partition(b"\n")
    path = ROUTES[data[0] % len(ROUTES)] if data else ROUTES[0]
    status, answer = LOOP.run_until_complete(send(served(), "POST", path, body, type_))
    assert status < 500, f"{path}: {status} {answer[:200]!r}"
    if status >= 400:
        raise ValueError(json.loads(answer)["error"]["message"])
