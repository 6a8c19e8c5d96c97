"""Transcripts of recordings of any length, with a model that answers from a script."""

import json

import numpy as np
import pytest
import torch

import regard
from regard.cli.look import save_page
from regard.data.readers.audio_files import from_samples, wav_bytes
from regard.decode.requests import Ticket
from regard.inside.views import find_view
from regard.tasks import Segment, Transcript
from regard.tasks.transcriber import clock, line, subtitles
from regard.tasks.whisper_transcriber import AT_ONCE, SAMPLES, TEMPERATURES, together
from regard.tokens.mel import LogMel
from regard.tokens.windows import FrameWindows
from tests.tasks.whispers import SECONDS, make_whisper

RATE = 16_000


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return regard.load(make_whisper(tmp_path_factory.mktemp("whisper")))


def noise(seconds, loud=0.1, seed=0):
    return np.random.default_rng(seed).normal(0, loud, int(seconds * RATE)).astype(np.float32)


class Script:
    """Answers requests in order: ids with the log-probability of each; what was asked is kept."""

    def __init__(self, task, *answers):
        self.task, self.answers, self.asked = task, iter(answers), []

    def __call__(self, requests):
        tickets = []
        for request in requests:
            ids, log_prob = next(self.answers)
            ticket = Ticket(request)
            ticket.ids, ticket.log_probs = [*ids, self.task.tokens.end], [log_prob] * (len(ids) + 1)
            ticket.finish()
            tickets.append(ticket)
        self.asked += requests
        return tickets

    def run(self, recording, **options):
        segments = []
        work = self.task.steps(recording, self.task.options(**options), segments.append)
        return together([work], self), segments


def said(task, *parts):
    """Ids of times (numbers) and texts."""
    first = task.tokens.first_time
    ids = []
    for part in parts:
        ids += task.tokenizer.encode(part) if isinstance(part, str) else [first + round(part / 0.02)]
    return ids


def test_timestamps_decide_where_the_next_window_begins(task):
    script = Script(
        task,
        (said(task, 0.0, " one", 1.5, 1.5, " two", 2.5, 2.5, " cut of"), -0.1),
        (said(task, 0.3, " cut off", 1.0), -0.1),
        (said(task, 0.0, " end", 0.2), -0.1),
    )
    recording = from_samples(noise(7), RATE)
    language, segments = script.run(recording, language="en")
    assert language == ["en"]
    assert [(s.start, s.end, s.text) for s in segments] == [
        (0.0, 1.5, " one"), (1.5, 2.5, " two"), (2.5, 3.5, " cut off"), (6.5, 6.7, " end")
    ]  # fmt: skip
    windows = FrameWindows(recording, task.mel)
    for request, first in zip(script.asked, (0, 250, 650), strict=True):
        count = min(SECONDS * 100, windows.length - first)
        assert torch.equal(request.inputs["frames"], windows.window(first, count, SECONDS * 100))


def test_the_text_before_is_the_context(task):
    hot = TEMPERATURES.index(0.6)
    answers = [(said(task, 0.0, " aa", 4.0), -0.1), *[(said(task, 0.0, " bb", 4.0), -5.0)] * (1 + SAMPLES * (hot - 1))]
    # Before the second window is given up, it is asked whether somebody speaks.
    answers.insert(2, ([5], -0.1))
    answers += [(said(task, 0.0, " cc", 4.0), -0.2)] * SAMPLES + [(said(task, 0.0, " dd", 4.0), -0.1)]
    script = Script(task, *answers)
    _, segments = script.run(from_samples(noise(12), RATE), language="de")
    assert [s.text for s in segments] == [" aa", " cc", " dd"]
    assert [s.temperature for s in segments] == [0.0, 0.6, 0.0]
    tokens = task.tokens
    plain = [tokens.start, tokens.languages["de"], tokens.tasks["transcribe"]]
    assert script.asked[0].prompt == plain
    assert script.asked[1].prompt == [tokens.previous, *said(task, 0.0, " aa", 4.0), *plain]
    assert script.asked[-1].prompt == plain  # what was sampled warm is no context


def test_repetitions_are_sampled_again(task):
    script = Script(
        task, (said(task, 0.0, " la la la la" * 12, 3.0), -0.01), *[(said(task, 0.0, " la", 3.0), -0.3)] * SAMPLES
    )
    _, segments = script.run(from_samples(noise(4), RATE), language="en")
    assert [s.text for s in segments] == [" la"]
    assert [r.sampling.temperature if r.sampling else None for r in script.asked] == [None, *[0.2] * SAMPLES]
    assert [r.row for r in script.asked] == [0, *range(SAMPLES)]


def test_of_bad_answers_the_most_probable_is_kept(task):
    bad = [(said(task, 0.0, f" {letter}", 3.0), -2.0 - 0.1 * i) for i, letter in enumerate("abcdef")]
    script = Script(task, bad[0], ([5], 0.0), *[answer for answer in bad[1:] for _ in range(SAMPLES)])
    _, segments = script.run(from_samples(noise(4), RATE), language="en")
    assert [s.text for s in segments] == [" a"]


def test_no_speech(task, monkeypatch):
    monkeypatch.setattr("regard.tasks.whisper_transcriber.SILENT", -1.0)  # the script's probe has no probability
    script = Script(task, (said(task, 0.0, " you", 3.0), -2.0), ([5], 0.0))
    _, segments = script.run(from_samples(noise(4), RATE), language="en")
    assert segments == [] and len(script.asked) == 2
    front = script.asked[1]
    assert front.max_len == 1 and front.prompt == [task.tokens.start]


def test_ten_minutes_of_silence_ask_nothing(task):
    samples = np.zeros(600 * RATE, dtype=np.float32)
    script = Script(task)
    assert script.run(from_samples(samples, RATE), language="en") == (["en"], [])
    dither = np.random.default_rng(1).uniform(-1, 1, 60 * RATE).astype(np.float32) / 2**16
    assert script.run(from_samples(dither, RATE)) == ([None], [])
    assert script.asked == []


def test_a_model_in_a_loop_comes_to_an_end(task):
    """A model that ends every phrase at once would stay where it is for ever."""
    stuck = (said(task, 0.0, " a", 0.02, 0.02, " b"), -0.1)
    script = Script(task, *[stuck] * 1000)
    _, segments = script.run(from_samples(noise(20), RATE), language="en")
    assert len(script.asked) == 20 / SECONDS
    assert all(one.end <= other.start for one, other in zip(segments, segments[1:], strict=False))


def test_random_weights_come_to_an_end_too(task):
    transcript = task.transcribe(noise(9), language="en")
    times = [time for segment in transcript.segments for time in (segment.start, segment.end)]
    assert times == sorted(times) and all(0 <= time <= 9 for time in times)
    assert transcript.seconds == 9 and transcript.language == "en"


def test_the_language_is_heard(task):
    transcript = task.transcribe(noise(1), temperature=0.0)
    assert transcript.language in ("en", "de")


def test_recordings_together_give_what_each_gives(task):
    several = [noise(2 + index, seed=index) for index in range(AT_ONCE + 2)]
    heard = []
    together_ = task.transcribe(several, temperature=0.0, each=lambda index, segment: heard.append(index))
    assert together_ == [task.transcribe(samples, temperature=0.0) for samples in several]
    assert sorted(heard) == [i for i, transcript in enumerate(together_) for _ in transcript.segments]


def test_beams_and_samples(task):
    assert isinstance(task.transcribe(noise(3), beams=3, temperature=0.0), Transcript)
    assert isinstance(task.transcribe(noise(3), temperature=0.7), Transcript)


@pytest.mark.parametrize("options, words", [
    (dict(language="xx"), "language='xx' is none of the model's"),
    (dict(task="sing"), "task='sing' is no task of this model; use transcribe or translate"),
    (dict(beams=99), "beams=99 must be 1 to 8"),
])  # fmt: skip
def test_wrong_options_are_named(task, options, words):
    with pytest.raises(ValueError, match=words):
        task.transcribe(noise(1), **options)


def test_what_is_exported_is_loaded(task, tmp_path):
    task.export(tmp_path)
    again = regard.load(tmp_path)
    assert again.tokens == task.tokens and again.mel == task.mel
    assert again.transcribe(noise(3), temperature=0.0) == task.transcribe(noise(3), temperature=0.0)


def test_windows_are_parts_of_the_whole():
    mel = LogMel(bands=80)
    samples = noise(10.003) * np.linspace(0, 1, int(10.003 * RATE), dtype=np.float32)
    windows = FrameWindows(from_samples(samples, RATE), mel)
    whole = mel(np.concatenate([samples, np.zeros(160, np.float32)]))
    assert windows.length == 1000
    for first, count in ((0, 300), (217, 400), (900, 100)):
        got = windows.window(first, count, 400)
        assert (got[:count] - whole[first : first + count]).abs().max() < 1e-4
        assert (got[count:] == 0).all()


SEGMENTS = (
    Segment(start=0.0, end=1.25, text=" Hello\n --> there"), Segment(start=3661.5, end=3662.0, text=" Bye"),
)  # fmt: skip


def test_subtitles():
    assert subtitles(SEGMENTS, "srt") == (
        "1\n00:00:00,000 --> 00:00:01,250\nHello -> there\n\n2\n01:01:01,500 --> 01:01:02,000\nBye\n"
    )
    assert subtitles(SEGMENTS, "vtt") == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.250\nHello -> there\n\n01:01:01.500 --> 01:01:02.000\nBye\n"
    )
    assert line(SEGMENTS[1]) == "[01:01:01.500 → 01:01:02.000]  Bye"
    assert clock(59.9996) == "00:01:00.000"


def test_a_recording_is_looked_into(task, tmp_path):
    file = tmp_path / "x.wav"
    file.write_bytes(wav_bytes(noise(1.5), RATE))
    prepared = task.read(str(file))
    sound, text = prepared.sequences
    assert len(sound) == 75 and sound.tokens[:3] == ["0.00", "0.02", "0.04"]
    assert text.tokens[:1] == ["<|startoftranscript|>"] and text.tokens[3].endswith("|>")  # a timestamp
    assert prepared.logits().shape == (1, len(text), task.model.config.vocab_size)
    for kind, shape in {"cross": (len(text), 75), "encoder": (75, 75), "decoder": (len(text),) * 2}.items():
        data, _ = find_view(prepared, "heads").show(prepared, kind=kind)
        assert (len(data["rows"]), len(data["columns"])) == shape
    given = task.read(str(file), target="hi")
    assert given.sequences[1].tokens[3:] == ["·", "h", "i"] and given.request["text"] == " hi"
    weights, _ = find_view(given, "alignment").show(given)
    assert weights["columns"] == sound.tokens
    page = tmp_path / "page.html"
    save_page(str(file), task, (str(file),), None, page)
    assert "1.48" in page.read_text()
    with pytest.raises(ValueError, match="silent for its first 1.00 s"):
        task.read(np.zeros(RATE, dtype=np.float32))


def test_only_the_first_seconds_are_looked_into(task, monkeypatch):
    monkeypatch.setattr("regard.tasks.prepared_speech.LOOKED_AT", 1)
    assert len(task.read(noise(3), target="a").sequences[0]) == 50


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"suppress_tokens": list(range(2000))}, "none is left to write"),
        ({"begin_suppress_tokens": list(range(2000))}, "none is left to write"),
        ({"no_timestamps_token_id": 2**40}, "is outside of a vocabulary of 467"),
        ({"no_timestamps_token_id": -5}, "is outside of a vocabulary of 467"),
        ({"max_initial_timestamp_index": -7}, "is outside of a vocabulary of 467"),
    ],
)
def test_rules_that_leave_nothing_to_write_are_refused(tmp_path, fields, words):
    """They reached the engine, where the most probable of no tokens has an index outside of the vocabulary."""
    path = make_whisper(tmp_path / "whisper") / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    with pytest.raises(ValueError, match=words):
        regard.load(path.parent)
