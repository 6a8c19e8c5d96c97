"""The embedded pairs: right German, one German an English, values that keep to their split, one stream."""

import hashlib
import os
import random
import subprocess
import sys
from collections import Counter
from datetime import date, time

import pytest
from num2words import num2words

from regard.data.generated.phrases import _FRAMES, _KINDS, KINDS, SHOWCASE, SPLITS, Phrase, _item, phrases, split_of

# All expectations in these tables were written by hand.
NUMBERS = {
    0: ("zero", "null"),
    1: ("one", "eins"),
    7: ("seven", "sieben"),
    12: ("twelve", "zwölf"),
    16: ("sixteen", "sechzehn"),
    17: ("seventeen", "siebzehn"),
    21: ("twenty-one", "einundzwanzig"),
    30: ("thirty", "dreißig"),
    76: ("seventy-six", "sechsundsiebzig"),
    100: ("one hundred", "einhundert"),
    101: ("one hundred and one", "einhunderteins"),
    425: ("four hundred and twenty-five", "vierhundertfünfundzwanzig"),
    1000: ("one thousand", "eintausend"),
    1001: ("one thousand and one", "eintausendeins"),
    1100: ("one thousand, one hundred", "eintausendeinhundert"),
    1121: ("one thousand, one hundred and twenty-one", "eintausendeinhunderteinundzwanzig"),
    21_000: ("twenty-one thousand", "einundzwanzigtausend"),
    66_017: ("sixty-six thousand and seventeen", "sechsundsechzigtausendsiebzehn"),
    100_000: ("one hundred thousand", "einhunderttausend"),
    100_001: ("one hundred thousand and one", "einhunderttausendeins"),
    101_000: ("one hundred and one thousand", "einhunderteintausend"),
    701_101: ("seven hundred and one thousand, one hundred and one", "siebenhunderteintausendeinhunderteins"),
    999_999: (
        "nine hundred and ninety-nine thousand, nine hundred and ninety-nine",
        "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
    ),
}
DAY, HOURS = date(2021, 3, 5), ((1, "day"), (21, "hour"), (1, "minute"))
PAIRS = [
    ("number", 42, "The answer is forty-two.", "Die Antwort lautet zweiundvierzig."),
    ("number", 1, "We know that the answer is one.", "Wir wissen, dass die Antwort eins lautet."),
    ("date", DAY, "March 5, 2021", "5. März 2021"),
    ("date", DAY, "Friday, March 5, 2021", "Freitag, 5. März 2021"),
    ("date", DAY, "Mar 5, 2021", "05.03.2021"),
    ("date", DAY, "the fifth of March 2021", "der fünfte März 2021"),
    ("date", date(1990, 10, 3), "Wednesday, October 3, 1990", "Mittwoch, 3. Oktober 1990"),
    ("date", date(1999, 12, 31), "the thirty-first of December 1999", "der einunddreißigste Dezember 1999"),
    ("date", date(2004, 1, 7), "the seventh of January 2004", "der siebte Januar 2004"),
    ("date", date(1984, 5, 1), "May 1, 1984", "1. Mai 1984"),
    ("date", date(1984, 5, 1), "The course starts on May 1, 1984.", "Der Kurs fängt am 1. Mai 1984 an."),
    ("date", DAY, "The contract expires on March 5, 2021.", "Der Vertrag läuft am 5. März 2021 ab."),
    (
        *("date", DAY, "We know that the contract expires on March 5, 2021."),
        "Wir wissen, dass der Vertrag am 5. März 2021 abläuft.",
    ),
    ("time", time(15, 45), "3:45 PM", "15:45 Uhr"),
    ("time", time(3, 5), "3:05 AM", "03:05 Uhr"),
    ("time", time(0, 30), "12:30 AM", "00:30 Uhr"),
    ("time", time(12, 30), "12:30 PM", "12:30 Uhr"),
    ("time", time(0, 0), "12 AM", "0 Uhr"),
    ("time", time(12, 0), "12 PM", "12 Uhr"),
    ("time", time(19, 0), "7 PM", "19 Uhr"),
    ("time", time(19, 0), "7:00 PM", "19:00 Uhr"),
    ("time", time(15, 45), "The train leaves at 3:45 PM.", "Der Zug fährt um 15:45 Uhr ab."),
    ("time", time(6, 0), "She gets up at 6 AM.", "Sie steht um 6 Uhr auf."),
    ("clock", (1, 0), "one o'clock", "ein Uhr"),
    ("clock", (7, 0), "seven o'clock", "sieben Uhr"),
    ("clock", (3, 30), "half past three", "halb vier"),
    ("clock", (12, 30), "half past twelve", "halb eins"),
    ("clock", (1, 15), "a quarter past one", "Viertel nach eins"),
    ("clock", (12, 45), "a quarter to one", "Viertel vor eins"),
    ("clock", (8, 25), "twenty-five past eight", "fünfundzwanzig nach acht"),
    ("clock", (8, 50), "ten to nine", "zehn vor neun"),
    ("clock", (5, 1), "one minute past five", "eine Minute nach fünf"),
    ("clock", (5, 39), "twenty-one minutes to six", "einundzwanzig Minuten vor sechs"),
    ("clock", (3, 30), "The train leaves at half past three.", "Der Zug fährt um halb vier ab."),
    (
        *("clock", (6, 15), "We know that the train leaves at a quarter past six."),
        "Wir wissen, dass der Zug um Viertel nach sechs abfährt.",
    ),
    ("money", 123_450, "€1,234.50", "1.234,50 €"),
    ("money", 99, "$0.99", "0,99 $"),
    ("money", 2500, "£25.00", "25,00 £"),
    ("money", 2500, "25 euros", "25 Euro"),
    ("money", 100, "1 euro", "1 Euro"),
    ("money", 100, "1 US dollar", "1 US-Dollar"),
    ("money", 999_905, "9,999.05 Swiss francs", "9.999,05 Schweizer Franken"),
    ("money", 101, "one euro and one cent", "ein Euro und ein Cent"),
    ("money", 2100, "twenty-one euros", "einundzwanzig Euro"),
    ("money", 50, "fifty cents", "fünfzig Cent"),
    (
        *("money", 2576, "twenty-five US dollars and seventy-six cents"),
        "fünfundzwanzig US-Dollar und sechsundsiebzig Cent",
    ),
    ("money", 950, "The ticket costs €9.50.", "Die Karte kostet 9,50 €."),
    ("money", 1900, "I paid 19 euros for the book.", "Ich habe 19 Euro für das Buch bezahlt."),
    ("money", 950, "We know that the ticket costs $9.50.", "Wir wissen, dass die Karte 9,50 $ kostet."),
    ("duration", HOURS, "1 day, 21 hours, and 1 minute", "1 Tag, 21 Stunden und 1 Minute"),
    ("duration", HOURS, "1 day, 21 hr, 1 min", "1 Tg., 21 Std., 1 Min."),
    (
        *("duration", HOURS, "one day, twenty-one hours, and one minute"),
        "ein Tag, einundzwanzig Stunden und eine Minute",
    ),
    ("duration", ((1, "year"), (1, "month")), "one year and one month", "ein Jahr und ein Monat"),
    ("duration", ((1, "week"),), "one week", "eine Woche"),
    ("duration", ((12, "second"),), "12 sec", "12 Sek."),
    ("duration", ((2, "month"), (3, "week")), "2 months and 3 weeks", "2 Monate und 3 Wochen"),
    ("duration", ((5, "day"),), "They waited for 5 days.", "Sie haben 5 Tage gewartet."),
    (
        *("duration", ((2, "hour"), (5, "minute")), "We know that the journey takes 2 hours and 5 minutes."),
        "Wir wissen, dass die Reise 2 Stunden und 5 Minuten dauert.",
    ),
    ("unit", 25, "2.5 kilometers", "2,5 Kilometer"),
    ("unit", 15_000, "1,500 kg", "1.500 kg"),
    ("unit", 300, "30%", "30 %"),
    ("unit", 205, "20.5°C", "20,5 °C"),
    ("unit", 10, "one metric ton", "eine Tonne"),
    ("unit", 10, "one kilowatt hour", "eine Kilowattstunde"),
    ("unit", 10, "one kilometer per hour", "ein Kilometer pro Stunde"),
    ("unit", 10, "one degree Celsius", "ein Grad Celsius"),
    ("unit", 210, "twenty-one metric tons", "einundzwanzig Tonnen"),
    ("unit", 500, "The device shows 50 km/h.", "Das Gerät zeigt 50 km/h an."),
    (
        *("unit", 70, "We know that the device shows 7 square meters."),
        "Wir wissen, dass das Gerät 7 Quadratmeter anzeigt.",
    ),
]
SHOWN = [
    ("number", 6825, "sechstausendachthundertfünfundzwanzig"),
    ("date", date(2021, 10, 3), "Der Kurs fängt am 3. Oktober 2021 an."),
    ("time", time(17, 25), "Wir wissen, dass der Zug um 17:25 Uhr abfährt."),
    ("money", 2590, "Ich habe 25,90 $ für das Buch bezahlt."),
    ("duration", ((9, "hour"), (25, "minute")), "neun Stunden und fünfundzwanzig Minuten"),
]


def renderings(kind, value):
    """All phrases of the stream for this value, alone and in sentences."""
    for form in _KINDS[kind].forms + _KINDS[kind].alone:
        if pair := _KINDS[kind].say(*form, value):
            for english, german in (("{}", "{}"), *(_FRAMES[kind] if form in _KINDS[kind].forms else ())):
                yield Phrase(english.format(pair[0]), german.format(pair[1]), kind)


@pytest.fixture(scope="module")
def stream() -> dict[str, list]:
    """(value, phrase) of each split; more than 50,000 in all."""
    sizes = {"train": 47_000, "valid": 1_500, "test": 1_500}
    return {split: [_item(split, 0, i) for i in range(size)] for split, size in sizes.items()}


@pytest.fixture(scope="module")
def everything(stream) -> list[tuple]:
    return [item for items in stream.values() for item in items]


@pytest.mark.parametrize("n", NUMBERS)
def test_numbers_in_words(n):
    assert Phrase(*NUMBERS[n], "number") in renderings("number", n)


@pytest.mark.parametrize(("kind", "value", "source", "target"), PAIRS)
def test_hand_written_pairs(kind, value, source, target):
    said = {phrase.source: phrase.target for phrase in renderings(kind, value)}
    assert said.get(source) == target, said


def test_numbers_equal_num2words_except_for_its_einstausend():
    for n in random.Random(3).sample(range(1_000_000), 500):
        english, german = num2words(n, lang="en"), num2words(n, lang="de")
        plain = next(renderings("number", n))
        assert (plain.source, plain.target) == (english, german.replace("einstausend", "eintausend"))


def test_stream_has_random_access():
    whole = phrases("train", 60, seed=5)
    assert phrases("train", 20, seed=5, start=40) == whole[40:]
    assert [phrases("train", 1, seed=5, start=i)[0] for i in range(60)] == whole
    assert phrases("train", 0) == []


def test_streams_differ_by_seed_and_split():
    assert phrases("train", 60, seed=1) != phrases("train", 60, seed=2)
    assert phrases("valid", 60) != phrases("test", 60)


def test_stream_is_the_same_in_another_process_and_needs_no_torch():
    code = (
        "import hashlib, sys; from regard.data.generated.phrases import phrases\n"
        "text = repr([phrases(split, 200, seed=3) for split in ('train', 'test')])\n"
        "assert 'torch' not in sys.modules\n"
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    environment = os.environ | {
        "PYTHONHASHSEED": "12345",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    here = repr([phrases(split, 200, seed=3) for split in ("train", "test")])
    assert done.stdout.strip() == hashlib.sha256(here.encode()).hexdigest(), done.stderr


def test_phrases_are_the_items_of_the_stream(stream):
    assert phrases("test", 100) == [phrase for _, phrase in stream["test"][:100]]


def test_values_and_sources_keep_to_their_split(stream):
    values = {s: {(phrase.kind, value) for value, phrase in items} for s, items in stream.items()}
    sources = {s: {phrase.source for _, phrase in items} for s, items in stream.items()}
    for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
        assert not values[one] & values[other]
        assert not sources[one] & sources[other]
    assert all(split_of(*value) == split for split in SPLITS for value in values[split])


def test_a_source_says_one_value(everything):
    """So a source of one split cannot come up in another, however long the streams are."""
    meant = {}
    for value, phrase in everything:
        assert meant.setdefault(phrase.source, (phrase.kind, value)) == (phrase.kind, value)


def test_numbers_from_a_hundred_on_are_in_words_only_as_numbers(everything):
    others = [phrase.source for _, phrase in everything if phrase.kind != "number"]
    for kind, value in (("money", 10_000), ("money", 10_101), ("unit", 1_000)):
        others += [phrase.source for phrase in renderings(kind, value)]
    assert not [source for source in others if "hundred" in source or "thousand" in source]


def test_the_same_english_never_has_two_germans(everything):
    german = {}
    assert len(everything) >= 50_000
    for _, phrase in everything:
        assert german.setdefault(phrase.source, phrase.target) == phrase.target


def test_the_same_english_never_has_two_germans_whatever_the_form():
    """Every form of every time and clock, and of the values where English and German forms could part."""
    german = {}
    values = [("time", time(h, m)) for h in range(24) for m in range(60)]
    values += [("clock", (h, m)) for h in range(1, 13) for m in range(60)]
    values += [("date", date(year, month, day)) for year in (1900, 2000) for month in range(1, 13) for day in (1, 12)]
    values += [("unit", n) for n in range(1, 130)] + [("money", n) for n in range(1, 130)]
    periods = ("year", "month", "week", "day", "hour", "minute", "second")
    values += [("duration", ((n, period),)) for n in (1, 2) for period in periods]
    for kind, value in values:
        for phrase in renderings(kind, value):
            assert german.setdefault(phrase.source, phrase.target) == phrase.target


def test_shares_of_the_splits():
    shares = Counter(split_of("number", n) for n in range(100, 50_100))
    assert shares["train"] / 50_000 == pytest.approx(0.96, abs=0.005)
    assert shares["valid"] / 50_000 == pytest.approx(0.02, abs=0.003)
    assert shares["test"] / 50_000 == pytest.approx(0.02, abs=0.003)


def test_what_no_other_value_teaches_is_trained_on():
    assert {split_of("number", n) for n in range(100)} == {"train"}
    assert {split_of("clock", (hour, 30)) for hour in range(1, 13)} == {"train"}
    assert split_of("unit", 10) == split_of("clock", (1, 0)) == split_of("time", time(0, 0)) == "train"


@pytest.mark.parametrize("split", SPLITS)
def test_every_kind_occurs_in_every_split(stream, split):
    counts = Counter(phrase.kind for _, phrase in stream[split])
    assert set(counts) == set(KINDS)
    assert min(counts.values()) > 0.04 * len(stream[split])


def test_every_length_of_number_is_equally_frequent(stream):
    lengths = Counter(len(str(value)) for value, phrase in stream["train"] if phrase.kind == "number")
    assert sorted(lengths) == [1, 2, 3, 4, 5, 6]
    assert max(lengths.values()) < 1.2 * min(lengths.values())


def test_plain_spaces_and_full_stops(everything):
    for _, phrase in everything:
        for text in (phrase.source, phrase.target):
            assert " ".join(text.split()) == text and text.isprintable()
            assert "{" not in text and ".." not in text and " ." not in text


def test_showcase_is_held_out_and_right():
    assert len(SHOWCASE) == 5 and any("twenty-five" in source for source in SHOWCASE)
    assert len({kind for kind, *_ in SHOWN}) == 5
    for source, (kind, value, target) in zip(SHOWCASE, SHOWN, strict=True):
        assert split_of(kind, value) == "test"
        assert Phrase(source, target, kind) in renderings(kind, value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: phrases("trian", 1), "unknown split 'trian'; did you mean 'train'?"),
        (lambda: phrases("train", -1), "count=-1"),
        (lambda: phrases("train", 1, start=-2), "start=-2"),
        (lambda: split_of("nummber", 3), "unknown kind 'nummber'; did you mean 'number'?"),
    ],
)
def test_mistakes_name_their_cure(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value)
