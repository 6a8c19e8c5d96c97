"""Language identification in 13 languages: names of countries, currencies, units … (Babel) and of emoji (emoji).

A name belongs to one split, whatever the text around it, and what several languages write alike is left out.
A text is a few names of one language, because a single one is often good in two: "penguin", "colón".
"""

from collections import Counter
from collections.abc import Iterator
from functools import cache, lru_cache

from babel import Locale
from babel.units import get_unit_name

from regard.data.generated.phrases import SPLITS, check_stream, hashed, split_by_hash

LANGUAGES = {code: Locale("en").languages[code] for code in "ar de en es fa fr it ja ko pt ru tr zh".split()}
"""The English name of each language, by its code."""
# One name for a waving hand, not six; and a flag's name says its country's.
_LEFT_OUT = {chr(code) for code in (*range(0x1F3FB, 0x1F400), *range(0x1F1E6, 0x1F200))}


def languages(split: str, *, seed: int = 0, names: int = 3) -> list[tuple[str, str]]:
    """(text, language code): every language equally often, every name at most once.

    Another seed joins other names to texts, in another order, so that each epoch can have a seed of its own.
    """
    check_stream(split)
    if names < 1:
        raise ValueError(f"names={names}: a text has at least 1 name")
    return list(_texts(split, seed, names))


@lru_cache(maxsize=8)
def _texts(split: str, seed: int, names: int) -> tuple[tuple[str, str], ...]:
    pools = _names()[split]
    count = min(map(len, pools.values())) // names
    texts = []
    for language, pool in pools.items():
        pool = sorted(pool, key=lambda name: hashed(f"{seed} {name}"))
        texts += [(", ".join(pool[i * names : (i + 1) * names]), language) for i in range(count)]
    return tuple(sorted(texts, key=lambda text: hashed(f"{seed} {text}")))


@cache
def _names() -> dict[str, dict[str, list[str]]]:
    """The names by split and language; names that differ only in case count as one."""
    by_language = {code: {name.casefold(): name for name in _all_names(code)} for code in LANGUAGES}
    languages_of = Counter(key for names in by_language.values() for key in names)
    pools: dict[str, dict[str, list[str]]] = {split: {code: [] for code in LANGUAGES} for split in SPLITS}
    for code, names in by_language.items():
        for key, name in names.items():
            if languages_of[key] == 1:
                pools[split_by_hash(key, 80)][code].append(name)
    return pools


def _all_names(code: str) -> Iterator[str]:
    try:
        import emoji
    except ImportError:
        raise ImportError("the names of emoji need a package: pip install 'regard[text]'") from None
    locale = Locale.parse(code)
    names = [*locale.territories.values(), *locale.languages.values(), *locale.scripts.values()]
    names += [*locale.currencies.values(), *locale.months["format"]["wide"].values()]
    names += [*locale.days["format"]["wide"].values()]
    names += [get_unit_name(str(unit), "long", locale) for unit in locale.unit_display_names]
    names += [name for zone in locale.meta_zones.values() for name in zone.get("long", {}).values()]
    emoji.config.load_language(code)
    for character, translations in emoji.EMOJI_DATA.items():
        if not _LEFT_OUT & set(character):
            names.append(translations[code].strip(":").replace("_", " "))
    for name in names:
        if isinstance(name, str) and sum(letter.isalpha() for letter in name) > 1:
            yield " ".join(name.split())
