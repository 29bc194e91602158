from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.queue.when import format_moment, parse_moment

NOON_S = datetime(2026, 12, 1, 12, 0, tzinfo=UTC).timestamp()
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", "2026-12-01T12:00:00+00:00"),
        ("now+4h", "2026-12-01T16:00:00+00:00"),
        ("now + 30m", "2026-12-01T12:30:00+00:00"),
        ("22:00", "2026-12-01T22:00:00+00:00"),
        ("12:00", "2026-12-02T12:00:00+00:00"),
        ("9:15", "2026-12-02T09:15:00+00:00"),
        ("2026-12-24T18:00", "2026-12-24T18:00:00+00:00"),
        ("2026-12-24 18:00:30+02:00", "2026-12-24T16:00:30+00:00"),
    ],
)
def test_moments(text: str, moment: str) -> None:
    assert parse_moment(text, NOON_S, UTC) == datetime.fromisoformat(moment).timestamp()


@pytest.mark.parametrize("text", ["", "tomorrow", "now-1h", "now+soon", "24:00", "22:60"])
def test_what_is_no_moment_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="expected a"):
        parse_moment(text, NOON_S, UTC)


def test_a_moment_before_all_time_is_said() -> None:
    with pytest.raises(ValueError, match="expected a moment"):
        parse_moment("0001-01-01", NOON_S)


def test_a_date_in_summer_typed_in_winter_has_the_summer_offset() -> None:
    july = datetime(2027, 7, 1, 20, 0, tzinfo=UTC).timestamp()
    assert parse_moment("2027-07-01T22:00", NOON_S, BERLIN) == july
    assert format_moment(july, BERLIN) == "2027-07-01 22:00:00+02:00"


def test_a_time_of_day_that_the_clock_skips_is_refused() -> None:
    evening = datetime(2027, 3, 27, 20, 0, tzinfo=BERLIN).timestamp()
    with pytest.raises(ValueError, match="02:30 does not exist on 2027-03-28"):
        parse_moment("2:30", evening, BERLIN)


@given(st.integers(0, 4_000_000_000), st.integers(-12, 14))
def test_a_printed_moment_reads_as_itself(time_s: int, offset_h: int) -> None:
    zone = timezone(timedelta(hours=offset_h))
    assert parse_moment(format_moment(time_s, zone), NOON_S, UTC) == time_s


def test_an_unknown_moment_prints_as_nothing() -> None:
    assert format_moment(None) == ""
