import pytest

from spanfit.bench.variants import Variant, parse_variant


@pytest.mark.parametrize(
    ("variant", "name"),
    [
        (Variant(), "job-1.a"),
        (Variant(noise="cta-8"), "job-1.a+cta-8"),
        (Variant(cta=8), "job-1.a@cta-8"),
    ],
)
def test_a_name_tells_its_variant(variant: Variant, name: str) -> None:
    assert variant.name("job-1.a") == name
    assert parse_variant(name) == variant
