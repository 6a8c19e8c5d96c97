"""The settings of audio beside a model: `preprocessor_config.json` of a feature extractor, in and out."""

from pathlib import Path
from typing import Any

from regard.config import parse, read_json, reading
from regard.hub.files import write_json
from regard.hub.preprocessor import PREPROCESSOR, PROCESSOR
from regard.tokens.mel import LogMel, Waveform

KINDS: dict[str, dict[str, Any]] = {
    "Whisper": dict(style="whisper", bands=80, window=400, fft=400, hop=160, length=3000),
    "Parakeet": dict(style="nemo", bands=80, window=400, fft=512, hop=160, preemphasis=0.97),
    "AST": dict(
        style="kaldi", bands=128, window=400, fft=512, hop=160, preemphasis=0.97, length=1024, mean=-4.2677393,
        std=4.5689974,
    ),
}  # fmt: skip
"""The frames of each of their feature extractors; what a file says replaces them."""
NAMES = {
    "Whisper": dict(bands="feature_size", fft="n_fft", window="n_fft", hop="hop_length"),
    "Parakeet": dict(
        bands="feature_size", fft="n_fft", window="win_length", hop="hop_length", preemphasis="preemphasis"
    ),
    "AST": dict(bands="num_mel_bins", length="max_length", mean="mean", std="std"),
}
"""Their names of our settings."""
RAW = "Wav2Vec2"


def load_features(directory: str | Path, config: Any = None) -> LogMel | Waveform:
    """The settings of audio beside a model."""
    path, whole = Path(directory) / PREPROCESSOR, Path(directory) / PROCESSOR
    fields = read_json(path) if path.is_file() else None
    if fields is None and whole.is_file():
        path, fields = whole, read_json(whole).get("feature_extractor")
    if fields is None and (bands := getattr(config, "mels", None)) is not None:  # CTranslate2 writes none
        return LogMel(bands=bands, length=config.frames)
    if not isinstance(fields, dict):
        raise ValueError(f"{directory} does not say how it reads audio: {PREPROCESSOR} is missing; copy it there")
    with reading(path):
        return read_features(fields)


def read_features(fields: dict[str, Any]) -> LogMel | Waveform:
    """Their fields as settings of ours; ValueError for what we cannot express."""
    kind = str(fields.get("feature_extractor_type")).removesuffix("FeatureExtractor")
    rate = parse(fields.get("sampling_rate", 16_000), int, "sampling_rate")
    if kind == RAW:
        return Waveform(rate=rate, normalize=parse(fields.get("do_normalize", True), bool, "do_normalize"))
    if kind not in KINDS:
        known = ", ".join(f"{name}FeatureExtractor" for name in [*KINDS, RAW])
        raise ValueError(
            f"feature_extractor_type={fields.get('feature_extractor_type')!r} is not known; known: {known}"
        )
    settings = dict(KINDS[kind])
    for name, theirs in NAMES[kind].items():
        if fields.get(theirs) is not None:
            settings[name] = parse(fields[theirs], float if name in ("preemphasis", "mean", "std") else int, theirs)
    if kind == "Parakeet" and "preemphasis" in fields and fields["preemphasis"] is None:
        settings["preemphasis"] = 0.0
    if kind == "Whisper" and fields.get("chunk_length") is not None:
        settings["length"] = parse(fields["chunk_length"], int, "chunk_length") * rate // max(1, settings["hop"])
    if kind == "AST" and not parse(fields.get("do_normalize", True), bool, "do_normalize"):
        settings |= dict(mean=0.0, std=0.5)
    return LogMel(rate=rate, **settings)


def save_features(directory: str | Path, features: LogMel | Waveform) -> None:
    """Write settings so that other projects read the same frames."""
    fields: dict[str, Any] = {"sampling_rate": features.rate, "padding_value": 0.0}
    if isinstance(features, Waveform):
        fields |= {"feature_extractor_type": f"{RAW}FeatureExtractor", "feature_size": 1}
        fields |= {"do_normalize": features.normalize, "return_attention_mask": True}
    else:
        kind = next(name for name, defaults in KINDS.items() if defaults["style"] == features.style)
        fields["feature_extractor_type"] = f"{kind}FeatureExtractor"
        fields |= {theirs: getattr(features, name) for name, theirs in NAMES[kind].items()}
        if kind == "Whisper":
            seconds = (features.length or KINDS[kind]["length"]) * features.hop // features.rate
            fields |= {"chunk_length": seconds, "n_samples": seconds * features.rate}
        if kind == "AST":
            fields |= {"do_normalize": True, "feature_size": 1}
    write_json(Path(directory) / PREPROCESSOR, fields)
