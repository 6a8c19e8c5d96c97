import numpy as np
import pytest
import torch
from transformers import ASTFeatureExtractor, Wav2Vec2FeatureExtractor, WhisperFeatureExtractor
from transformers.audio_utils import mel_filter_bank
from transformers.feature_extraction_sequence_utils import SequenceFeatureExtractor
from transformers.models.parakeet.feature_extraction_parakeet import ParakeetFeatureExtractor

from regard.hub.feature_extractor import load_features, save_features
from regard.tokens.mel import LogMel, Waveform

WHISPER, WHOLE = LogMel(), LogMel(length=3000)
NEMO = LogMel(style="nemo", fft=512, preemphasis=0.97)
KALDI = LogMel(style="kaldi", bands=128, fft=512, preemphasis=0.97, length=1024, mean=-4.2677393, std=4.5689974)


def sounds():
    """Noise that swells, a pure tone, a click in silence, and less than a frame."""
    rng, time = np.random.default_rng(0), np.arange(50_001)
    click = np.zeros(20_000)
    click[7_000] = 0.9
    noise = rng.normal(size=70_003) * np.sin(np.arange(70_003) / 3000) / 10
    return [x.astype(np.float32) for x in (noise, np.sin(time * 0.3) / 2, click, rng.normal(size=333) / 10)]


@pytest.mark.parametrize("sound", sounds(), ids=["noise", "tone", "click", "short"])
def test_frames_equal_whispers(sound):
    theirs = WhisperFeatureExtractor()(sound, sampling_rate=16_000, return_tensors="np")["input_features"][0].T
    assert np.abs(WHOLE(sound).numpy() - theirs).max() < 1e-5
    large = WhisperFeatureExtractor(feature_size=128)(sound, sampling_rate=16_000, padding="do_not_pad")
    if len(sound) > 400:
        frames = LogMel(bands=128)(sound).numpy()
        assert frames.shape[0] == WHISPER.frames(len(sound))
        assert np.abs(frames - large["input_features"][0].T).max() < 1e-5


@pytest.mark.parametrize("sound", sounds()[:3], ids=["noise", "tone", "click"])
def test_frames_equal_those_of_spectrogram_transformers(sound):
    theirs = ASTFeatureExtractor()(sound, sampling_rate=16_000, return_tensors="np")["input_values"][0]
    assert np.abs(KALDI(sound).numpy() - theirs).max() < 1e-5


def parakeet():
    """Their extractor without librosa, which it asks only for the filters."""
    extractor = ParakeetFeatureExtractor.__new__(ParakeetFeatureExtractor)
    SequenceFeatureExtractor.__init__(extractor, feature_size=80, sampling_rate=16_000, padding_value=0.0)
    extractor.hop_length, extractor.n_fft, extractor.win_length, extractor.preemphasis = 160, 512, 400, 0.97
    filters = mel_filter_bank(257, 80, 0.0, 8000.0, 16_000, norm="slaney", mel_scale="slaney")
    extractor.mel_filters = torch.from_numpy(filters.T).float()
    return extractor


def test_frames_equal_parakeets_in_a_batch_too():
    noise, other = sounds()[0], sounds()[0][::-1][:40_000].copy()
    theirs = parakeet()([noise, other], sampling_rate=16_000, return_tensors="pt")
    for sound, frames, mask in zip((noise, other), theirs["input_features"], theirs["attention_mask"], strict=True):
        assert (NEMO(sound) - frames[mask.bool()]).abs().max() < 1e-4
        assert NEMO.frames(len(sound)) == mask.sum()


def test_samples_are_scaled_as_wav2vec_does():
    theirs = Wav2Vec2FeatureExtractor()(sounds()[0], sampling_rate=16_000, return_tensors="np")["input_values"][0]
    assert np.abs(Waveform()(sounds()[0]).numpy() - theirs).max() < 1e-5


def test_pieces_join_without_a_seam(monkeypatch):
    whole = [features(sounds()[0]) for features in (WHISPER, NEMO, KALDI)]
    monkeypatch.setattr("regard.tokens.mel.PIECE", 13)
    for features, frames in zip((WHISPER, NEMO, KALDI), whole, strict=True):
        assert torch.allclose(features(sounds()[0]), frames, atol=1e-5)


@pytest.mark.parametrize("features", [WHISPER, WHOLE, NEMO, KALDI], ids=["whisper", "whole", "nemo", "kaldi"])
@pytest.mark.parametrize("samples", [0, 1, 159, 160, 399, 401])
def test_very_short_sounds_have_frames(features, samples):
    frames = features(np.zeros(samples, dtype=np.float32))
    assert len(frames) == features.frames(samples) >= 1 and frames.isfinite().all()


@pytest.mark.parametrize("features", [WHOLE, NEMO, KALDI, Waveform(normalize=False)])
def test_settings_are_read_as_they_were_written(features, tmp_path):
    save_features(tmp_path, features)
    assert load_features(tmp_path) == features


def test_their_files_are_read(tmp_path):
    WhisperFeatureExtractor(feature_size=128, chunk_length=20).save_pretrained(tmp_path)
    assert load_features(tmp_path) == LogMel(bands=128, length=2000)
    ASTFeatureExtractor(max_length=512).save_pretrained(tmp_path)
    assert load_features(tmp_path) == LogMel(
        style="kaldi", bands=128, fft=512, preemphasis=0.97, length=512, mean=-4.2677393, std=4.5689974
    )
    save_features(tmp_path, LogMel(length=1500))
    assert WhisperFeatureExtractor.from_pretrained(tmp_path).n_samples == 240_000


def test_settings_that_cannot_be_are_one_line(tmp_path):
    with pytest.raises(ValueError, match="preprocessor_config.json is missing"):
        load_features(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text('{"feature_extractor_type": "EncodecFeatureExtractor"}')
    with pytest.raises(ValueError, match="known: WhisperFeatureExtractor"):
        load_features(tmp_path)
    with pytest.raises(ValueError, match="window=400"):
        LogMel(fft=256)


@pytest.mark.parametrize("fields", [
    dict(bands=5000, fft=16384, window=400), dict(hop=1), dict(fft=1 << 16), dict(length=1 << 22), dict(length=10**30),
])  # fmt: skip
def test_settings_that_would_take_gigabytes_are_one_line(fields):
    with pytest.raises(ValueError, match="may be at most|is too large") as error:
        LogMel(**fields)
    assert "\n" not in str(error.value)
