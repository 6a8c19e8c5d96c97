"""Recordings over the API: OpenAI's client, its formats, and uploads that are refused."""

import io
import struct
import threading
from types import SimpleNamespace

import numpy as np
import openai
import pytest

import regard
from regard.data.readers.audio_files import from_samples, wav_bytes
from regard.decode.requests import Cancelled
from regard.models import Conformer, ConformerConfig
from regard.serve import audio, guard
from regard.serve.model_store import ServedModel
from regard.serve.multipart import MOST_PARTS, read_form
from regard.tasks.ctc_transcriber import CTCTranscriber
from regard.tasks.transcriber import subtitles
from regard.tokens import Tokenizer
from regard.tokens.mel import LogMel
from tests.serve.running import serving_here
from tests.tasks.whispers import make_whisper

RATE = 16_000


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return make_whisper(tmp_path_factory.mktemp("serve") / "whisper", seed=4)


@pytest.fixture(scope="module")
def server(directory):
    with serving_here({"whisper": str(directory)}, preload=True) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0, timeout=240) as made:
        yield made


@pytest.fixture(scope="module")
def recording():
    samples = np.random.default_rng(0).normal(0, 0.1, 9 * RATE)
    return wav_bytes(samples, RATE)


@pytest.fixture(scope="module")
def wanted(directory, recording):
    return regard.load(directory).transcribe(recording, language="en")


def ask(client, recording, **changes):
    file = ("talk.wav", io.BytesIO(recording))
    return client.audio.transcriptions.create(**dict(model="whisper", file=file, language="en") | changes)


def test_the_text_is_that_of_python(client, recording, wanted):
    found = ask(client, recording)
    assert found.text == wanted.text and found.text
    assert found.usage.seconds == 9
    assert ask(client, recording, response_format="text") == wanted.text + "\n"


@pytest.mark.parametrize("kind", ["srt", "vtt"])
def test_subtitles(client, recording, wanted, kind):
    assert ask(client, recording, response_format=kind) == subtitles(wanted.segments, kind)


def test_phrases_and_how_sure_they_are(client, recording, wanted):
    found = ask(client, recording, response_format="verbose_json", timestamp_granularities=["segment"])
    assert (found.language, found.duration, found.task) == ("en", 9.0, "transcribe")
    for got, own in zip(found.segments, wanted.segments, strict=True):
        assert (got.start, got.end, got.text, tuple(got.tokens)) == (own.start, own.end, own.text, own.ids)
        assert 0 <= got.no_speech_prob <= 1 and got.avg_logprob < 0 and got.compression_ratio > 0


def test_phrases_are_streamed(client, recording, wanted):
    events = list(ask(client, recording, stream=True))
    assert [event.type for event in events[:-1]] == ["transcript.text.delta"] * len(wanted.segments)
    assert [event.delta for event in events[:-1]] == [segment.text for segment in wanted.segments]
    assert events[-1].type == "transcript.text.done" and events[-1].text == wanted.text


def test_translations(client, recording, directory):
    with pytest.warns(DeprecationWarning):  # of the client: OpenAI's own models for it are
        found = client.audio.translations.create(model="whisper", file=("talk.wav", io.BytesIO(recording)))
    assert found.text == regard.load(directory).transcribe(recording, task="translate").text


def test_several_at_once_give_what_each_gives(client, recording, wanted):
    found = []
    threads = [threading.Thread(target=lambda: found.append(ask(client, recording).text)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [wanted.text] * 3


def test_mistakes_are_answered_in_a_line(client, recording, monkeypatch):
    cases = [
        (dict(file=("x.wav", b"no sound")), "file", "is no audio in a format that is known"),
        (dict(file=("x.wav", recording[:44])), "file", "holds no audio"),
        (dict(language="xx"), "file", "language='xx' is none of the model's"),
        (dict(response_format="yaml"), "response_format", "json"),
        (dict(timestamp_granularities=["word"]), "timestamp_granularities.0", "segment"),
        (dict(temperature=7), "temperature", "less than or equal to 2"),
        (dict(extra_body={"tone": "kind"}), "tone", "unknown field"),
    ]
    for changes, param, words in cases:
        with pytest.raises(openai.BadRequestError, match=words) as error:
            ask(client, recording, **changes)
        assert error.value.param == param, changes
    with pytest.raises(openai.NotFoundError, match="did you mean 'whisper'"):
        ask(client, recording, model="wisper")
    monkeypatch.setattr(audio, "MOST_SECONDS", 3)
    with pytest.raises(openai.BadRequestError, match="cut it"):
        ask(client, recording)


def test_a_header_that_claims_days_is_refused_before_anything_is_decoded(client):
    sizes = struct.pack("<IHHIIHH", 16, 1, 1, 1000, 1000, 1, 8)  # a thousand samples a second, of one byte each
    data = bytes(1000 * (audio.MOST_SECONDS + 60))
    file = b"RIFF" + bytes(4) + b"WAVEfmt " + sizes + b"data" + struct.pack("<I", len(data)) + data
    with pytest.raises(openai.BadRequestError, match="4.0 hours, one request may have 4; cut it"):
        ask(client, file)


def test_uploads_have_a_limit_of_their_own(server, client, monkeypatch):
    monkeypatch.setattr(guard, "LARGER", 1)
    with pytest.raises(openai.APIStatusError, match="bytes; send less at once") as error:
        ask(client, bytes(5 * 2**20))
    assert error.value.status_code == 413
    other = server.ask("POST", "/v1/completions", b"x", headers={"Content-Type": "multipart/form-data; boundary=b"})
    assert other.status == 415


def test_hours_of_silence_end_when_nobody_waits():
    """There is no phrase at which a transcription could notice it: reading does."""
    read: list[int] = []

    def listen(recordings, put, **options):
        for start in range(0, recordings[0].length, RATE):
            read.append(len(recordings[0].samples(None, start, start + RATE)))
            listener.gone.set()
        return [None]

    served = ServedModel.__new__(ServedModel)
    served.engine, served.task = None, SimpleNamespace(listen=listen)
    listener = audio.Listener(served, from_samples(np.zeros(9 * RATE, dtype=np.float32), RATE), {})
    with pytest.raises(Cancelled):
        listener()
    assert read == [RATE]


FORM = 'multipart/form-data; boundary="b"'


def form(*parts):
    return b"".join(b"--b\r\n" + head + b"\r\n\r\n" + content + b"\r\n" for head, content in parts) + b"--b--\r\n"


def test_forms():
    name = b'Content-Disposition: form-data; name="file"; filename="a b.wav"'
    data = bytes(range(256)) + b"\r\n--a\r\n"
    (part,) = read_form(form((name, data)), FORM)
    assert (part.name, part.content, part.filename) == ("file", data, "a b.wav")
    for body, type_, words in [
        (form((name, data)), "multipart/form-data", "names no boundary"),
        (form((name, data)), FORM + ';a="' + ";" * 60_000, "names no boundary"),  # parsed in quadratic time
        (b"", FORM, "has no parts"),
        (form((name, data))[:-6], FORM, "is cut short"),
        (form(*[(name, b"")] * (MOST_PARTS + 1)), FORM, "has too many parts"),
        (form((b"X: y", b"")), FORM, "has no name"),
        (form((b"X" * 9999, b"")), FORM, "too long a header"),
    ]:
        with pytest.raises(ValueError, match=words):
            read_form(body, type_)


def test_a_model_without_languages_or_translation(tmp_path, recording):
    tokenizer = Tokenizer.train(texts=["the train leaves at noon"], kind="char", vocab_size=300)
    sizes = dict(dim=16, depth=1, heads=2, ffn_dim=24, channels=2, bands=16)
    model = Conformer(ConformerConfig(**sizes, vocab_size=tokenizer.vocab_size, blank=tokenizer.pad))
    (tmp_path / "ctc").mkdir()
    CTCTranscriber(model, LogMel(style="nemo", fft=512, bands=16), tokenizer).export(tmp_path / "ctc")
    with (
        serving_here({"ctc": str(tmp_path / "ctc")}) as server,
        openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0, timeout=240) as client,
    ):
        found = client.audio.transcriptions.create(model="ctc", file=recording, response_format="verbose_json")
        assert found.duration == 9.0
        refused = pytest.raises(openai.BadRequestError, match="does not translate speech")
        with refused, pytest.warns(DeprecationWarning):  # as above
            client.audio.translations.create(model="ctc", file=recording)
