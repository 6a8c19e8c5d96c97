"""Values for generated English sentences: persons, places, dates and amounts, and the many ways to write each.

A value has a kind and a key; a key belongs to one split whatever way it is written, so no held-out value is trained on.
"""

import hashlib
from collections.abc import Callable, Hashable
from datetime import date
from functools import cache, lru_cache
from itertools import product
from typing import Any

from babel import Locale
from babel.core import get_global
from babel.dates import format_date
from babel.numbers import format_currency, format_decimal, get_currency_name
from babel.units import format_unit
from num2words import num2words

from regard.data.phrases import Draw

_ENGLISH = Locale.parse("en")
_PLAIN_SPACES = {0xA0: " ", 0x202F: " "}
# Written before a value, but no part of it.
PREFIXES = ("the ", "Dr. ", "Professor ")
# No name here is also that of a country or a city below.
_FIRST = tuple(
    "Adam Agnes Ahmed Aisha Albert Alice Amara Amir Andrew Anna Anton Astrid Bella Benjamin Bianca Boris Brigitte Bruno "
    "Camila Carlos Cecilia Chloe Clara Claude Daniel Daria David Deepa Diana Dieter Dmitri Edith Eduardo Elena Elias "
    "Emil Emma Erik Esther Fatima Felix Femi Fiona Frank Gabriel Gerda Giulia Greta Gustav Hannah Harald Hassan Helen "
    "Henry Hiroshi Hugo Ibrahim Ida Igor Ines Ingrid Isaac Ivan Jacob Jana Javier Jean Joanna Johan Jonas Julia Kamala "
    "Karim Karin Kenji Kwame Lars Laura Leila Leon Linda Louis Lucas Lucy Magnus Malik Marco Maria Martha Mateo Mei "
    "Michael Mira Naomi Nadia Niels Nina Noah Nora Oleg Olga Oscar Otto Pablo Patricia Paul Pedro Petra Pierre Priya "
    "Rachel Rafael Rashid Rebecca Robert Rosa Ruth Samuel Sanjay Sara Sergei Simon Stefan Susan Sven Tariq Teresa Thomas "
    "Tomas Ursula Valentina Vera Victor Vikram Walter Wanda Wei Xavier Yara Yasmin Yusuf Zoe".split()
)
_LAST = tuple(
    "Abbott Adeyemi Ahmadi Almeida Andersson Bailey Baker Banerjee Barbosa Becker Bennett Bergman Bianchi Bishop Brandt "
    "Carter Castillo Chen Clarke Cooper Costa Cruz Dahl Dalton Delgado Diallo Dubois Duarte Eriksen Evans Farouk "
    "Fernandez Ferrari Fischer Foster Fournier Fuentes Garcia Gibson Gonzalez Graham Gupta Haddad Hansen Harper Hassan "
    "Hoffmann Holm Hughes Ibarra Ivanov Iyer Jansen Jensen Johnson Joshi Kaplan Kaya Keller Khan Kim Kowalski Kumar "
    "Lambert Larsen Laurent Lindqvist Lopez Marino Martin Mbeki Mendes Meyer Mitchell Moreau Morris Murphy Nakamura "
    "Nguyen Novak Nowak Okafor Olsen Ortega Osman Parker Patel Pereira Petrov Popescu Quinn Rahman Reyes Ricci Rossi "
    "Roy Salazar Sanders Santos Sato Schmidt Schneider Shah Silva Singh Sokolov Suzuki Takahashi Tanaka Thompson Torres "
    "Turner Ueda Varga Vogel Volkov Wagner Walker Weber Wilson Wright Yamada Yilmaz Zhang Zimmermann".split()
)
_CURRENCIES = ("USD", "EUR", "GBP", "USD", "EUR", "CHF", "CAD", "AUD", "INR", "SEK", "BRL")
_UNITS = {
    "length": ("length-meter", "length-centimeter", "length-foot"),
    "distance": ("length-kilometer", "length-mile"),
    "mass": ("mass-kilogram", "mass-gram", "mass-pound", "mass-tonne"),
    "area": ("area-square-meter", "area-hectare", "area-square-kilometer", "area-acre"),
    "speed": ("speed-kilometer-per-hour", "speed-mile-per-hour"),
    "volume": ("volume-liter", "volume-milliliter"),
    "temperature": ("temperature-celsius", "temperature-fahrenheit"),
    "share": ("concentr-percent",),
}
# Kinds of value and the label that a tagger gives them.
LABELS = {"person": "NAME", "place": "PLACE", "day": "DATE", "month": "DATE", "year": "DATE", "price": "AMOUNT"}
LABELS |= dict.fromkeys(_UNITS, "AMOUNT")


@cache
def _places() -> dict[str, tuple[str, ...]]:
    """Countries, and cities that have a time zone; what has marks or remarks in its name is left out."""
    plain = {name for code, name in _ENGLISH.territories.items() if len(code) == 2 and name.replace(" ", "").isalpha()}
    plain -= {"European Union", "Eurozone", "United Nations", "Unknown Region", "Outlying Oceania"}
    plain = {name for name in plain if "SAR" not in name and "Territor" not in name}
    cities = set()
    for zone in get_global("zone_territories"):
        city = _ENGLISH.time_zones.get(zone, {}).get("city") or zone.rpartition("/")[2].replace("_", " ")
        if "/" in zone and not zone.startswith(("Etc/", "Antarctica/")) and city.replace(" ", "").isalpha():
            cities.add(city)
    bare = {name for name in plain if _article(name) == name}
    return {"country": tuple(sorted(map(_article, plain))), "city": tuple(sorted(cities - bare))}


def _article(country: str) -> str:
    plural = country.endswith(("Islands", "Netherlands", "Philippines", "Maldives", "Bahamas", "Comoros", "Republic"))
    return f"the {country}" if plural or country.startswith(("United", "Gambia", "Isle of")) else country


def _day(style: str, day: date) -> str:
    """A date in one of many styles; CLDR's patterns by their letters, the others by name."""
    if style not in _SPELLED:
        return _format_date(day, style)
    month, year = _format_date(day, "MMMM"), str(day.year)
    ordinal = _words(day.day, "ordinal_num" if style in ("5th", "the 5th") else "ordinal")
    if style == "year":
        year = _words(day.year, "year")
    if style in ("5th", "fifth"):
        return f"{month} {ordinal}, {year}"
    return f"the {ordinal} of {month} {year}"


_SPELLED = ("5th", "fifth", "the 5th", "the fifth", "year")
_SHORT = ("MMM d, y", "d MMM y", "EEE, MMM d, y", "EEE, d MMM y", "d-MMM-y", "y-MM-dd", "M/d/y", "MM/dd/y", "y/MM/dd")
_LONG = ("MMMM d, y", "d MMMM y", "EEEE, MMMM d, y", "EEEE, d MMMM y", "dd MMMM y")
# "3/5/2021" is the fifth of March, as CLDR's English has it.
DAY_STYLES = _LONG + _SHORT + _SPELLED


def day_in(style: str, day: date) -> str:
    """A date in one of DAY_STYLES: "March 5, 2021", "the fifth of March 2021", "2021-03-05" …"""
    return _day(style, day)


def _person(style: str, names: tuple[str, ...]) -> str | None:
    first, last = names[0], names[-1]
    if style == "initial":
        return f"{first[0]}. {last}" if first in _FIRST and len(names) == 2 else None
    return " ".join(names)


def _price(style: str, price: tuple[str, int]) -> str | None:
    """An amount in cents; from a million on, in millions with one digit behind the point."""
    code, cents = price
    whole, rest = divmod(cents, 100)
    if whole >= 1_000_000:
        millions = f"{whole / 1_000_000:g} million"
        symbol = _format_currency(1, code, "¤").strip()
        name = _format_name(code, 2)
        return {"symbol": f"{symbol}{millions}", "name": f"{millions} {name}"}.get(style) if symbol != code else (
            f"{millions} {name}" if style == "name" else None
        )
    if style == "words":
        return None if rest or not 1 < whole < 100 else f"{_words(whole)} {_format_name(code, whole)}"
    if style == "symbol":
        return _format_currency(cents / 100, code, None if rest else "¤#,##0")
    number = _format_decimal(cents / 100, "#,##0.00" if rest else "#,##0")
    return f"{number} {_format_name(code, cents / 100)}"
