"""Language identification: names keep to their split, languages are balanced, and the task can be done."""

import builtins
from collections import Counter

import pytest

from regard.data.generated import languages as module
from regard.data.generated.languages import LANGUAGES, SPLITS, _names, languages

pytest.importorskip("emoji")


def test_thirteen_languages_by_their_english_names():
    from babel import Locale

    assert len(LANGUAGES) == 13
    for code, name in LANGUAGES.items():
        assert Locale.parse(code).get_display_name("en") == name


def test_known_names_are_there():
    names = {code: {n for split in SPLITS for n in _names()[split][code]} for code in LANGUAGES}
    assert {"Germany", "Swiss Franc", "grinning face", "Tuesday"} <= names["en"]
    assert {"Deutschland", "grinsendes gesicht", "Dienstag", "Kilometer"} <= names["de"]
    for code, germany in {"fr": "Allemagne", "pt": "Alemanha", "ru": "Германия", "zh": "德国", "ko": "독일"}.items():
        assert germany in names[code]


def test_a_name_has_one_language_and_one_split():
    seen = Counter(name.casefold() for split in SPLITS for pool in _names()[split].values() for name in pool)
    assert set(seen.values()) == {1} and len(seen) > 30_000


@pytest.mark.parametrize("split", SPLITS)
def test_balanced_mixed_and_without_repeats(split):
    texts = languages(split)
    counts = Counter(code for _, code in texts)
    assert set(counts) == set(LANGUAGES) and len(set(counts.values())) == 1
    assert len(set(texts)) == len(texts)
    assert len({code for _, code in texts[:60]}) > 8  # shuffled
    assert len(texts) > {"train": 8000, "valid": 900, "test": 900}[split]


def test_another_seed_joins_the_same_names_anew():
    one, other = languages("test"), languages("test", seed=1)
    assert languages("test") == one and len(one) == len(other)
    assert len(set(one) & set(other)) < 0.05 * len(one)


def test_held_out_names_never_occur_in_training():
    trained = {text for text, _ in languages("train", names=1)}
    assert not trained & {text for text, _ in languages("test", names=1)}


def test_flags_and_skin_tones_do_not_repeat_a_name():
    names = {name for split in SPLITS for name in _names()[split]["ru"]}
    assert not [name for name in names if name.startswith("флаг ") and "Намибия" in name]
    assert not [name for split in SPLITS for name in _names()[split]["en"] if "skin tone" in name and "hand" in name]


def test_a_baseline_of_character_ngrams_solves_it():
    """The task is hard enough to need letters, but not ambiguous: an outside classifier gets nearly all."""
    pytest.importorskip("sklearn")
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    train, test = languages("train"), languages("test")
    model = make_pipeline(TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 3), sublinear_tf=True), LinearSVC())
    model.fit([text for text, _ in train[:4000]], [code for _, code in train[:4000]])
    assert model.score([text for text, _ in test], [code for _, code in test]) > 0.96


def test_mistakes_name_their_cure(monkeypatch):
    with pytest.raises(ValueError, match="did you mean 'train'"):
        languages("tran")
    with pytest.raises(ValueError, match="names=0: a text has at least 1 name"):
        languages("train", names=0)

    def without_emoji(name, *args, **kwargs):
        if name == "emoji":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    real = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", without_emoji)
    with pytest.raises(ImportError, match=r"pip install 'regard\[text\]'"):
        next(module._all_names("en"))
