"""Values for generated English sentences: persons, places, dates and amounts, and the styles to write each in.

A value has a kind and a key; a key belongs to one split in whatever style it is written, so no held-out value is
trained on.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Any

from babel import Locale
from babel.core import get_global
from babel.dates import format_date
from babel.numbers import format_currency, format_decimal, get_currency_name, get_currency_symbol
from babel.units import format_unit
from num2words import num2words

from regard.data.generated.phrases import ENGLISH, PLAIN_SPACES, Sampler, split_by_hash

# Written before a value, but no part of it.
PREFIXES = ("the ", "Dr. ", "Professor ")
# No name here is also that of a country or a city below.
_FIRST = tuple(
    "Adam Agnes Ahmed Aisha Albert Alice Amara Amir Andrew Anna Anton Astrid Bella Benjamin Bianca Boris "
    "Brigitte Bruno Camila Carlos Cecilia Chloe Clara Claude Daniel Daria David Deepa Diana Dieter Dmitri "
    "Edith Eduardo Elena Elias Emil Emma Erik Esther Fatima Felix Femi Fiona Frank Gabriel Gerda Giulia Greta "
    "Gustav Hannah Harald Hassan Helen Henry Hiroshi Hugo Ibrahim Ida Igor Ines Ingrid Isaac Ivan Jacob Jana "
    "Javier Jean Joanna Johan Jonas Julia Kamala Karim Karin Kenji Kwame Lars Laura Leila Leon Linda Louis "
    "Lucas Lucy Magnus Malik Marco Maria Martha Mateo Mei Michael Mira Naomi Nadia Niels Nina Noah Nora Oleg "
    "Olga Oscar Otto Pablo Patricia Paul Pedro Petra Pierre Priya Rachel Rafael Rashid Rebecca Robert Rosa "
    "Ruth Samuel Sanjay Sara Sergei Simon Stefan Susan Sven Tariq Teresa Thomas Tomas Ursula Valentina Vera "
    "Victor Vikram Walter Wanda Wei Xavier Yara Yasmin Yusuf Zoe".split()
)
_LAST = tuple(
    "Abbott Adeyemi Ahmadi Almeida Andersson Bailey Baker Banerjee Barbosa Becker Bennett Bergman Bianchi "
    "Bishop Brandt Carter Castillo Chen Clarke Cooper Costa Cruz Dahl Dalton Delgado Diallo Dubois Duarte "
    "Eriksen Evans Farouk Fernandez Ferrari Fischer Foster Fournier Fuentes Garcia Gibson Gonzalez Graham "
    "Gupta Haddad Hansen Harper Hoffmann Holm Hughes Ibarra Ivanov Iyer Jansen Jensen Johnson Joshi Kaplan "
    "Kaya Keller Khan Kim Kowalski Kumar Lambert Larsen Laurent Lindqvist Lopez Marino Martin Mbeki Mendes "
    "Meyer Mitchell Moreau Morris Murphy Nakamura Nguyen Novak Nowak Okafor Olsen Ortega Osman Parker Patel "
    "Pereira Petrov Popescu Quinn Rahman Reyes Ricci Rossi Roy Salazar Sanders Santos Sato Schmidt Schneider "
    "Shah Silva Singh Sokolov Suzuki Takahashi Tanaka Thompson Torres Turner Ueda Varga Vogel Volkov Wagner "
    "Walker Weber Wilson Wright Yamada Yilmaz Zhang Zimmermann".split()
)
_CURRENCIES = ("USD", "EUR", "GBP", "CHF", "CAD", "AUD", "INR", "SEK", "BRL")
# Units, and from what number to what number an amount of that kind goes.
_UNITS = {
    "length": (("length-meter", "length-foot"), 3, 900),
    "distance": (("length-kilometer", "length-mile"), 1, 2000),
    "mass": (("mass-kilogram", "mass-pound"), 1, 60),
    "load": (("mass-tonne", "mass-kilogram"), 2, 5000),
    "dose": (("mass-gram", "mass-ounce"), 5, 900),
    "area": (("area-hectare", "area-square-kilometer", "area-acre"), 1, 5000),
    "floor": (("area-square-meter", "area-square-foot"), 15, 250),
    "speed": (("speed-kilometer-per-hour", "speed-mile-per-hour"), 3, 250),
    "volume": (("volume-milliliter", "volume-fluid-ounce"), 2, 900),
    "temperature": (("temperature-celsius", "temperature-fahrenheit"), 1, 99),
    "share": (("concentr-percent",), 1, 99),
}


def _article(country: str) -> str:
    needed = country.endswith(("Islands", "Netherlands", "Philippines", "Maldives", "Bahamas", "Comoros", "Republic"))
    return f"the {country}" if needed or country.startswith(("United", "Gambia", "Isle of")) else country


def _is_plain(name: str) -> bool:
    return name.replace(" ", "").isalpha()


_NO_COUNTRY = {"European Union", "Eurozone", "United Nations", "Unknown Region", "Outlying Oceania"}
_COUNTRIES = tuple(
    _article(name)
    for code, name in sorted(ENGLISH.territories.items())
    if len(code) == 2
    and _is_plain(name)
    and name not in _NO_COUNTRY
    and not any(w in name for w in ("SAR", "Territor"))
)


def _cities() -> tuple[str, ...]:
    """The cities after which time zones are named."""
    cities = set()
    for zone in get_global("zone_territories"):
        city = ENGLISH.time_zones.get(zone, {}).get("city") or zone.rpartition("/")[2].replace("_", " ")
        if "/" in zone and not zone.startswith(("Etc/", "Antarctica/")) and _is_plain(city):
            cities.add(city)
    countries = {name.removeprefix("the ") for name in _COUNTRIES}  # islands give their zone its name, too
    return tuple(sorted(cities - countries - {name.removesuffix(" Islands") for name in countries}))


_CITIES = _cities()


# From here on, how a value is drawn.
def _sample_person(rng: Sampler) -> tuple[str, ...]:
    first, last = rng.of(_FIRST), rng.of(_LAST)
    return rng.of(((first, last),) * 8 + ((first,), (rng.of(("Dr.", "Professor")), last)))


def _sample_price(rng: Sampler) -> tuple[str, int]:
    """An amount in cents."""
    return rng.of(_CURRENCIES), rng.cents()


def _sample_fund(rng: Sampler) -> tuple[str, int]:
    """An amount in cents, of which every third is some millions."""
    return _sample_price(rng) if rng.below(3) else (rng.of(_CURRENCIES[:3]), 10**7 * (10 + rng.below(990)))


def _sample_measure(kind: str) -> Callable[[Sampler], tuple[str, int]]:
    """An amount in tenths of a unit; every third is no whole number."""
    units, low, high = _UNITS[kind]
    return lambda rng: (rng.of(units), 10 * (low + rng.below(high - low)) + (not rng.below(3)) * rng.below(10))


# From here on, how it is written: None where a style does not fit the value.
@lru_cache(maxsize=1 << 16)
def _babel(formatter: Callable[..., str], *args: Hashable) -> str:
    return formatter(*args, locale=ENGLISH).translate(PLAIN_SPACES)


@lru_cache(maxsize=1 << 12)
def _words(n: int, to: str = "cardinal") -> str:
    return num2words(n, lang="en", to=to)


def write_day(style: str, day: date) -> str:
    """A date in one of DAY_STYLES: those of CLDR by their pattern, others by their example."""
    if style in _PATTERNS:
        return _babel(format_date, day, style)
    ordinal = _words(day.day, "ordinal_num" if "5th" in style else "ordinal")
    month, year = _babel(format_date, day, "MMMM"), _words(day.year, "year") if "ninety" in style else day.year
    return f"the {ordinal} of {month} {year}" if style.startswith("the") else f"{month} {ordinal}, {year}"


_PATTERNS = (
    *("MMMM d, y", "d MMMM y", "EEEE, MMMM d, y", "EEEE, d MMMM y", "dd MMMM y"),
    *("MMM d, y", "d MMM y", "EEE, MMM d, y", "EEE, d MMM y", "d-MMM-y"),
    *("y-MM-dd", "y/MM/dd", "M/d/y", "MM/dd/y"),  # "3/5/2021" is in March, as CLDR's English has it
)
DAY_STYLES = (
    *(*_PATTERNS, "March 5th, 1990", "March fifth, 1990", "the 5th of March 1990", "the fifth of March 1990"),
    "the fifth of March nineteen ninety",
)


def _write_month(style: str, month: tuple[int, int]) -> str:
    return _babel(format_date, date(*month, 1), style)


def _write_person(style: str, names: tuple[str, ...]) -> str | None:
    if style == "initial":
        return f"{names[0][0]}. {names[1]}" if names[0] in _FIRST and len(names) == 2 else None
    return " ".join(names)


def _format_currency(amount: float, code: str, pattern: str, locale: Locale) -> str:
    return format_currency(amount, code, pattern, locale, currency_digits=False)


def _write_price(style: str, price: tuple[str, int]) -> str | None:
    code, cents = price
    whole, rest = divmod(cents, 100)
    name = _babel(get_currency_name, code, cents / 100)
    if whole >= 10**6:
        millions = f"{whole / 10**6:g} million"
        return f"{_babel(get_currency_symbol, code)}{millions}" if style == "symbol" else f"{millions} {name}"
    if style == "words":
        return None if rest or whole >= 100 else f"{_words(whole)} {name}"
    if style == "symbol":
        return _babel(_format_currency, cents / 100, code, "¤#,##0.00" if rest else "¤#,##0")
    return f"{_babel(format_decimal, cents / 100, '#,##0.00' if rest else '#,##0')} {name}"


def _write_measure(style: str, measure: tuple[str, int]) -> str | None:
    unit, tenths = measure
    number = tenths / 10 if tenths % 10 else tenths // 10
    if style != "words":
        return _babel(format_unit, number, unit, style)
    if tenths % 10 or number >= 100:
        return None
    return f"{_words(int(number))} {_babel(format_unit, number, unit, 'long').split(' ', 1)[1]}"


@dataclass(frozen=True, slots=True)
class _Kind:
    label: str
    sample: Callable[[Sampler], Any]
    write: Callable[[str, Any], str | None]
    styles: tuple[str, ...]


_KINDS = {
    "person": _Kind("NAME", _sample_person, _write_person, ("full",) * 4 + ("initial",)),
    "country": _Kind("PLACE", lambda rng: rng.of(_COUNTRIES), lambda _, name: name, ("",)),
    "city": _Kind("PLACE", lambda rng: rng.of(_CITIES), lambda _, name: name, ("",)),
    "day": _Kind("DATE", Sampler.day, write_day, DAY_STYLES),
    "month": _Kind("DATE", lambda rng: (1900 + rng.below(200), 1 + rng.below(12)), _write_month, ("MMMM y", "MMM y")),
    "year": _Kind("DATE", lambda rng: 1800 + rng.below(300), lambda _, year: str(year), ("",)),
    "price": _Kind("AMOUNT", _sample_price, _write_price, ("symbol", "symbol", "name", "words")),
    "fund": _Kind("AMOUNT", _sample_fund, _write_price, ("symbol", "symbol", "name", "words")),
}
_KINDS |= {kind: _Kind("AMOUNT", _sample_measure(kind), _write_measure, ("long", "short", "words")) for kind in _UNITS}
# The label of every kind of value.
LABEL_OF = {name: kind.label for name, kind in _KINDS.items()}


def value_split(kind: str, value: Any) -> str:
    """The one split where this value may occur: about 80 % of all values train, 10 % valid, 10 % test."""
    if kind == "person":  # "A. Keller" must not be two people in two splits, nor Keller both Dr. and Professor
        first, *last = value
        value = (*first[: 1 if first in _FIRST and last else 0], *last) or first
    return split_by_hash(f"{LABEL_OF[kind]} {value}", 80)


def sample_value(kind: str, split: str, rng: Sampler) -> Any:
    while value_split(kind, value := _KINDS[kind].sample(rng)) != split:
        pass
    return value


def write_value(kind: str, value: Any, rng: Sampler) -> str:
    """The value in one of its styles; PREFIXES are in front of it, but no part of it."""
    while (text := _KINDS[kind].write(rng.of(_KINDS[kind].styles), value)) is None:
        pass
    return text
