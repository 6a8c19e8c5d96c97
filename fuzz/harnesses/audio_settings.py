"""preprocessor_config.json of audio, and a recording of a quarter second of an odd rate read by it."""

import json

import numpy as np

from fuzz.scratch import FOLDER, put
from regard.data.readers.audio_files import from_samples
from regard.hub.feature_extractor import KINDS, RAW, load_features

READS = ("regard.hub.feature_extractor", "regard.tokens.mel")
RATE = 7350


def seeds() -> list[bytes]:
    """Return the settings of each kind of feature extractor."""
    fields = {
        "sampling_rate": 16_000, "feature_size": 80, "hop_length": 160, "n_fft": 400, "chunk_length": 2,
        "win_length": 400, "preemphasis": 0.97, "num_mel_bins": 80, "max_length": 100, "mean": -4.0, "std": 4.5,
        "do_normalize": True,
    }  # fmt: skip
    return [
        json.dumps({"feature_extractor_type": f"{kind}FeatureExtractor"} | fields).encode() for kind in (*KINDS, RAW)
    ]


def run(data: bytes) -> None:
    """Read the settings, and frames by them."""
    put("audio_settings/preprocessor_config.json", data)
    features = load_features(FOLDER / "audio_settings")
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, RATE // 4).astype(np.float32)
    features(from_samples(noise, RATE).samples(features.rate))
