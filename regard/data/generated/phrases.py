"""The embedded pairs: an endless, seeded stream of English → German phrases, from CLDR (Babel) and num2words.

A phrase expresses one *value* (a number, a date, an amount …). Within its kind a value belongs to one split,
whatever the format, currency, unit or sentence around it: no value of the test ever occurs in training.
The same English never has two Germans. Nothing is stored, nothing is downloaded.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import date, time
from functools import cache, lru_cache
from itertools import product

from babel import Locale
from babel.dates import format_date, format_time, get_month_names
from babel.lists import format_list
from babel.numbers import format_currency, format_decimal, get_currency_name
from babel.units import format_unit
from num2words import num2words

from regard.config import nearest
from regard.data.generated.splits import (  # noqa: F401  some are imported from here
    SHOWCASE,
    SPLITS,
    Duration,
    Sampler,
    check_stream,
    hashed,
    split_by_hash,
)

Pair = tuple[str, str]

ENGLISH, _GERMAN = Locale.parse("en"), Locale.parse("de")
PLAIN_SPACES = {0xA0: " ", 0x202F: " "}
# Units whose CLDR names are right for 1, too: its short German mile is "1 Meilen".
_UNITS = (
    *("length-kilometer", "length-centimeter", "mass-kilogram", "mass-tonne", "area-square-meter"),
    *("speed-kilometer-per-hour", "temperature-celsius", "energy-kilowatt-hour", "concentr-percent"),
)
_FEMININE = "mass-tonne energy-kilowatt-hour duration-week duration-hour duration-minute duration-second".split()


@dataclass(frozen=True, slots=True)
class Phrase:
    """An English phrase, its German translation, and the kind of its value."""

    source: str
    target: str
    kind: str


# From here on, values in words: (English, German), or None where a style does not fit the value.
@lru_cache(maxsize=1 << 17)
def _babel(formatter: Callable[..., str], *args: Hashable) -> Pair:
    english, german = (formatter(*args, locale=locale).translate(PLAIN_SPACES) for locale in (ENGLISH, _GERMAN))
    return english, german


@cache
def _words(n: int, to: str = "cardinal") -> Pair:
    return num2words(n, lang="en", to=to), num2words(n, lang="de", to=to)


def _join(parts: list[Pair]) -> Pair:
    english, german = zip(*parts, strict=True)
    return format_list(english, locale=ENGLISH), format_list(german, locale=_GERMAN)


def _counted(n: int, noun: Pair, feminine: bool = False) -> Pair:
    """A number in words before its noun, in the nominative; below 100 only "eins" changes there."""
    english, german = _words(n)
    if n == 1:
        german = "eine" if feminine else "ein"
    return f"{english} {noun[0]}", f"{german} {noun[1]}"


def _measured(style: str, unit: str, n: int | float) -> Pair:
    if style != "words":
        return _babel(format_unit, n, unit, style)
    english, german = _babel(format_unit, n, unit, "long")
    return _counted(int(n), (english.split(" ", 1)[1], german.split(" ", 1)[1]), unit in _FEMININE)


def _number(n: int) -> Pair:
    """A number in words, joined from words below a thousand: fast, and right where num2words is not."""
    thousands, rest = divmod(n, 1000)
    if not thousands:
        return _words(rest)
    english, german = _words(thousands)
    english, german = f"{english} thousand", f"{german}tausend".replace("einstausend", "eintausend")
    if rest:
        english += (", " if rest >= 100 else " and ") + _words(rest)[0]
        german += _words(rest)[1]
    return english, german


def _date(style: str, day: date) -> Pair | None:
    if style == "medium" and day.month == 5:
        return None  # "May 5, 2021" is English for two CLDR formats: "5. Mai 2021" and "05.05.2021"
    if style != "words":
        return _babel(format_date, day, style)
    english, german = _words(day.day, "ordinal")
    months = [get_month_names("wide", locale=locale)[day.month] for locale in (ENGLISH, _GERMAN)]
    return f"the {english} of {months[0]} {day.year}", f"der {german} {months[1]} {day.year}"


@cache
def _time(style: str, at: time) -> Pair | None:
    if style == "hour" and at.minute:
        return None
    english, german = ("h a", "H 'Uhr'") if style == "hour" else ("short", "HH:mm 'Uhr'")
    english = format_time(at, english, locale=ENGLISH).translate(PLAIN_SPACES)
    return english, format_time(at, german, locale=_GERMAN)


def _clock(at: tuple[int, int]) -> Pair:
    """A time as the twelve-hour clock is read aloud; "half past three" is "halb vier"."""
    hour, minute = at
    this, following = _words(hour), _words(hour % 12 + 1)
    if minute == 0:
        return f"{this[0]} o'clock", "ein Uhr" if hour == 1 else f"{this[1]} Uhr"
    if minute == 30:
        return f"half past {this[0]}", f"halb {following[1]}"
    gap = min(minute, 60 - minute)
    if gap == 15:
        english, german = "a quarter", "Viertel"
    else:
        english, german = _words(gap) if gap % 5 == 0 else _measured("words", "duration-minute", gap)
    if minute < 30:
        return f"{english} past {this[0]}", f"{german} nach {this[1]}"
    return f"{english} to {following[0]}", f"{german} vor {following[1]}"


def _money(style: str, code: str, cents: int) -> Pair | None:
    whole, rest = divmod(cents, 100)
    amount = cents / 100 if rest else whole
    if style == "symbol":
        return _babel(format_currency, amount, code)
    if style == "name":
        number = _babel(format_decimal, amount, "#,##0.00" if rest else "#,##0")
        name = _babel(get_currency_name, code, amount)
        return f"{number[0]} {name[0]}", f"{number[1]} {name[1]}"
    if whole >= 100:  # the number may be held out, and "einhunderteins Euro" is disputed German
        return None
    parts = [_counted(whole, _babel(get_currency_name, code, whole))] if whole else []
    return _join(parts + ([_counted(rest, ("cent" if rest == 1 else "cents", "Cent"))] if rest else []))


def _duration(style: str, parts: Duration) -> Pair | None:
    if style == "short" and len(parts) == 1 and parts[0][1] == "day":
        return None  # English has no shorter word for it, German has
    pairs = [_measured(style, f"duration-{period}", n) for n, period in parts]
    if style != "short":
        return _join(pairs)
    # CLDR joins short units by commas in both languages, but Babel lacks the German pattern for three.
    return ", ".join(english for english, _ in pairs), ", ".join(german for _, german in pairs)


def _unit(style: str, unit: str, tenths: int) -> Pair | None:
    if style == "words" and (tenths % 10 or tenths >= 1000):
        return None
    return _measured(style, unit, tenths / 10 if tenths % 10 else tenths // 10)


@dataclass(frozen=True, slots=True)
class _Kind:
    weight: int
    sample: Callable[[Sampler], Hashable]
    say: Callable[..., Pair | None]
    forms: tuple[tuple[str, ...], ...]
    """Arguments of `say` before the value that give a phrase which fits any sentence."""
    alone: tuple[tuple[str, ...], ...] = ()
    """Arguments of `say` for phrases that only stand alone: others would need another case ("einen Tag"), or end in a
    full stop."""


_PRICES = (*product(["symbol"], ["EUR", "USD", "GBP"]), *product(["name"], ["EUR", "USD", "CHF"]))
_MEASURES = tuple(product(["long", "short"], _UNITS))
_KINDS = {
    "number": _Kind(3, lambda rng: rng.sized(6), _number, ((),)),
    "date": _Kind(3, Sampler.day, _date, (("long",),), (("full",), ("medium",), ("words",))),
    "time": _Kind(2, lambda rng: time(rng.below(24), rng.minute()), _time, (("minute",), ("hour",))),
    "clock": _Kind(1, lambda rng: (1 + rng.below(12), rng.minute()), _clock, ((),)),
    "money": _Kind(3, Sampler.cents, _money, _PRICES, (("words", "EUR"), ("words", "USD"))),
    "duration": _Kind(2, Sampler.duration, _duration, (("long",),), (("short",), ("words",))),
    "unit": _Kind(2, Sampler.tenths, _unit, _MEASURES, tuple(product(["words"], _UNITS))),
}
KINDS = tuple(_KINDS)
_MENU = tuple(kind for kind in KINDS for _ in range(_KINDS[kind].weight))
# In a main clause German splits the verb around the value ("fährt … ab"); after "dass" the verb comes last.
_SENTENCES = (
    ("number", "The answer is {}.", "Die Antwort lautet {}."),
    ("number", "We know that the answer is {}.", "Wir wissen, dass die Antwort {} lautet."),
    ("date", "The course starts on {}.", "Der Kurs fängt am {} an."),
    ("date", "The contract expires on {}.", "Der Vertrag läuft am {} ab."),
    ("date", "We know that the contract expires on {}.", "Wir wissen, dass der Vertrag am {} abläuft."),
    ("time clock", "The train leaves at {}.", "Der Zug fährt um {} ab."),
    ("time clock", "She gets up at {}.", "Sie steht um {} auf."),
    ("time clock", "We know that the train leaves at {}.", "Wir wissen, dass der Zug um {} abfährt."),
    ("money", "The ticket costs {}.", "Die Karte kostet {}."),
    ("money", "I paid {} for the book.", "Ich habe {} für das Buch bezahlt."),
    ("money", "We know that the ticket costs {}.", "Wir wissen, dass die Karte {} kostet."),
    ("duration", "They waited for {}.", "Sie haben {} gewartet."),
    ("duration", "We know that the journey takes {}.", "Wir wissen, dass die Reise {} dauert."),
    ("unit", "The device shows {}.", "Das Gerät zeigt {} an."),
    ("unit", "We know that the device shows {}.", "Wir wissen, dass das Gerät {} anzeigt."),
)
_FRAMES = {kind: tuple(frame for kinds, *frame in _SENTENCES if kind in kinds.split()) for kind in KINDS}
# What no other value teaches is always learnt, never asked: the number words below a hundred (all kinds use
# them; larger ones occur only as numbers), singulars, "0 Uhr", "ein Uhr", and the hour after "halb".
_BLOCKS = {f"number {n}" for n in range(100)} | {f"clock {(hour, 30)}" for hour in range(1, 13)}
_BLOCKS |= {"unit 10", "money 100", "time 00:00:00", "clock (1, 0)"}


def split_of(kind: str, value: Hashable) -> str:
    """The one split where this value may occur: about 96 % of all values train, 2 % valid, 2 % test.

    A value is the number, `date`, `time`, (hour, minute) of the clock, amount in cents, measure in tenths, or
    the ((count, period), …) of a duration. Currency, unit, format and sentence are no part of it.
    """
    if kind not in _KINDS:
        raise ValueError(f"unknown kind {kind!r}; {nearest(kind, KINDS)}")
    key = f"{kind} {value}"
    return "train" if key in _BLOCKS else split_by_hash(key, 96)


def _item(split: str, seed: int, index: int) -> tuple[Hashable, Phrase]:
    rng = Sampler(f"{split} {seed} {index}")
    kind = _KINDS[name := rng.of(_MENU)]
    while split_of(name, value := kind.sample(rng)) != split:
        pass
    while (pair := kind.say(*(form := rng.of(kind.forms + kind.alone)), value)) is None:
        pass
    framed = form in kind.forms and rng.below(3) == 0
    english, german = rng.of(_FRAMES[name]) if framed else ("{}", "{}")
    return value, Phrase(english.format(pair[0]), german.format(pair[1]), name)


def phrases(split: str, count: int, *, seed: int = 0, start: int = 0) -> list[Phrase]:
    """Items start … start + count of an endless stream; item i depends only on (split, seed, i)."""
    check_stream(split, count, start)
    return [_item(split, seed, index)[1] for index in range(start, start + count)]
