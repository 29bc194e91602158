import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit import units

BINARY = {"": 1, "B": 1, "K": 2**10, "KiB": 2**10, "kb": 2**10, "M": 2**20, "MiB": 2**20, "G": 2**30, "TiB": 2**40}


@given(st.integers(0, 2**70), st.sampled_from(sorted(BINARY)))
def test_parse_size_is_exact_in_powers_of_1024(count: int, unit: str) -> None:
    assert units.parse_size(f"{count}{unit}") == count * BINARY[unit]


@given(st.integers(1, 1023), st.sampled_from(["B", "KiB", "MiB", "GiB", "TiB"]))
def test_what_format_size_prints_parse_size_reads(count: int, unit: str) -> None:
    size_bytes = units.parse_size(f"{count} {unit}")
    assert units.format_size(size_bytes) == f"{count} {unit}"


def test_sizes_are_binary_and_rates_are_decimal() -> None:
    assert units.parse_size("1.5K") == 1536
    assert units.parse_size(" 1 GiB ") == 1073741824
    assert units.parse_link_rate("1.6Gbit/s") == 1_600_000_000
    assert units.parse_link_rate("400mbit") == 400_000_000
    assert units.parse_link_rate("8 kbit") == 8_000
    assert units.format_bandwidth(1e9) == "1 GB/s"
    assert units.format_bandwidth(2.5e6) == "2.5 MB/s"
    assert units.format_bandwidth(1500) == "1.5 kB/s"
    assert units.format_bandwidth(12) == "12 B/s"


@given(st.integers(1, 999), st.sampled_from([("bit/s", 1), ("kbit/s", 10**3), ("Mbit/s", 10**6), ("Gbit/s", 10**9)]))
def test_link_rates_survive_a_round_trip(count: int, unit: tuple[str, int]) -> None:
    name, scale = unit
    assert units.format_link_rate(count * scale) == f"{count} {name}"
    assert units.parse_link_rate(units.format_link_rate(count * scale)) == count * scale


@given(st.integers(1, 999), st.sampled_from([("us", 1e-6), ("ms", 1e-3)]))
def test_times_survive_a_round_trip(count: int, unit: tuple[str, float]) -> None:
    name, scale = unit
    assert units.format_time(units.parse_time(f"{count}{name}")) == f"{count} {name}"
    assert units.parse_time(f"{count}{name}") == pytest.approx(count * scale, rel=1e-12)


@pytest.mark.parametrize("text", ["", "M", "-4M", "4X", "4 m b", "4Mbit", "1e6", "four", "4M4", "4,5M", "nan", "inf"])
def test_a_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError) as error:
        units.parse_size(text)
    assert str(error.value) == f"{text!r} is not a size; expected a number with K, M, G or T, such as 4M"


@pytest.mark.parametrize("text", ["0.1K", "1.5", "0.0001M"])
def test_a_part_of_a_byte_is_refused(text: str) -> None:
    with pytest.raises(ValueError) as error:
        units.parse_size(text)
    assert str(error.value) == f"{text!r} is no whole number of bytes; expected one, such as 4M"


@pytest.mark.parametrize("text", ["", "400", "0mbit", "-1gbit", "4M", "4MB/s", "400 mbits", "mbit"])
def test_a_link_rate_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError) as error:
        units.parse_link_rate(text)
    expected = "expected a positive number with kbit, mbit or gbit, such as 400mbit"
    assert str(error.value) == f"{text!r} is not a link rate; {expected}"


@pytest.mark.parametrize("text", ["", "6", "-6ms", "6 minutes", "ms", "6m"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError) as error:
        units.parse_time(text)
    assert str(error.value) == f"{text!r} is not a time; expected a number with us, ms or s, such as 6ms"


@pytest.mark.parametrize(
    ("time_s", "text"),
    [
        (0.0, "0 us"),
        (2.5e-6, "2.5 us"),
        (0.9999, "1000 ms"),
        (1.0, "1 s"),
        (89.9, "89.9 s"),
        (90.0, "1 min 30 s"),
        (3599.0, "59 min 59 s"),
        (5400.0, "1 h 30 min"),
        (86400.0, "24 h 00 min"),
        (-0.25, "-250 ms"),
    ],
)
def test_a_time_is_printed_as_people_read_it(time_s: float, text: str) -> None:
    assert units.format_time(time_s) == text


@given(st.floats(1e-3, 1e15))
def test_no_bandwidth_or_time_is_printed_with_an_exponent(value: float) -> None:
    assert "e" not in units.format_bandwidth(value)
    assert "e" not in units.format_time(value)


def test_percent_has_a_proper_minus() -> None:
    assert units.format_percent(-0.0325) == "−3.2%"
    assert units.format_percent(0.5) == "50.0%"


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [
        ("45s", 45),
        ("90m", 5400),
        ("2h", 7200),
        ("1.5h", 5400),
        ("1d12h", 129600),
        (" 1H30M ", 5400),
        ("1-12:00:00", 129600),
        ("04:00:00", 14400),
        ("10:30", 630),
    ],
)
def test_durations(text: str, duration_s: float) -> None:
    assert units.parse_duration(text) == duration_s


@pytest.mark.parametrize("text", ["", "h", "2", "2 parsecs", "1h2d", "-1h", "UNLIMITED"])
def test_what_is_no_duration_is_said_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration such as 45s"):
        units.parse_duration(text)
