import pytest

from spanfit.bench.variants import Variant, parse_variant


@pytest.mark.parametrize(
    ("variant", "name"),
    [
        (Variant(), "job-1.a"),
        (Variant(noise="cta-8"), "job-1.a+cta-8"),
        (Variant(cta=8), "job-1.a@cta-8"),
        (Variant(noise="busy", cta=16), "job-1.a+busy@cta-16"),
    ],
)
def test_a_name_tells_its_variant(variant: Variant, name: str) -> None:
    assert variant.name("job-1.a") == name
    assert parse_variant(name) == variant
    assert variant.is_plain == (name == "job-1.a")


@pytest.mark.parametrize(
    "name", ["a@cta-b", "a@cta-", "a@cta-8x", "a@cta-0", "@cta-8", "a+", "a@b", "a@cta-\u0663", ""]
)
def test_a_name_of_another_form_is_plain(name: str) -> None:
    assert parse_variant(name).is_plain
