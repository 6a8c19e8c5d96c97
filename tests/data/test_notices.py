"""Progress of long work: how much is done, the time left, one line for work inside work."""

from types import SimpleNamespace

import pytest

from regard.data import notices
from regard.data.notices import Count, listening, notify, track


@pytest.fixture
def heard(monkeypatch):
    """What a listener heard, with a clock that goes on by a second at each look."""
    seconds = iter(range(10_000))
    monkeypatch.setattr(notices, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    lines = []
    with listening(lambda text, passing: lines.append((text, passing))):
        yield lines


def test_progress_names_a_total_and_the_time_left(heard):
    assert list(track("abcde", "letters:", 5)) == list("abcde")
    assert heard[0] == ("letters: 2 of 5, 0:03 left", True)
    assert heard[-2:] == [("letters: 5 of 5, 0:00 left", True), ("", True)]


def test_short_work_is_silent():
    lines = []
    with listening(lambda text, passing: lines.append(text)):
        list(track(range(100), "numbers:", 100))
    assert lines == []


def test_items_may_stand_for_several(heard):
    list(track([[1, 2], [3, 4], [5]], "rows:", 5, len))
    assert heard[-2][0].startswith("rows: 5 of 5")


def test_work_inside_work_is_counted_by_the_outer_one(heard):
    with Count("outer:", 3) as outer:
        for _ in range(3):
            list(track(range(4), "inner:", 4))
            outer.add()
    assert heard and all(text.startswith("outer:") or not text for text, _ in heard)
    list(track(range(4), "later:", 4))
    assert heard[-2][0].startswith("later:")


def test_an_error_ends_the_line(heard):
    with pytest.raises(ValueError, match="stop"), Count("work:", 9) as count:
        count.add(3), count.add(3)
        raise ValueError("stop")
    assert heard[-1] == ("", True)


def test_without_a_listener_only_what_stays_is_printed(capsys):
    notify("a line")
    notify("passing", passing=True)
    assert capsys.readouterr().err == "a line\n"


@pytest.mark.parametrize(("seconds", "text"), [(5.0, "0:05"), (65.0, "1:05"), (3725.0, "1:02:05"), (-1.0, "0:00")])
def test_clock(seconds, text):
    assert notices.clock(seconds) == text
