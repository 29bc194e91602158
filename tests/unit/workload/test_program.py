from hypothesis import given
from hypothesis import strategies as st

from spanfit.workload.program import LARGEST_COUNT, Compute, Direction, Product, Timer, merged, split


@given(st.integers(0, 2**40), st.integers(1, 2**31))
def test_calls_add_up_and_none_is_too_large(count: int, limit: int) -> None:
    if count // limit > 1000:
        limit = count // 1000 + 1
    parts = split(count, limit)
    assert sum(parts) == count
    assert max(parts) <= limit
    assert max(parts) - min(parts) <= 1
    assert len(parts) == max(1, -(-count // limit))


def test_a_count_that_fits_is_one_call() -> None:
    assert split(LARGEST_COUNT) == (LARGEST_COUNT,)
    assert len(split(LARGEST_COUNT + 1)) == 2
    assert split(0) == (0,)


def test_backward_products_do_twice_the_work() -> None:
    product = Product(3, 5, 7, 2)
    assert product.flops == 2 * 3 * 5 * 7 * 2
    assert [each.flops for each in product.backward()] == [product.flops] * 2
    assert product.backward() == (Product(3, 7, 5, 2), Product(5, 3, 7, 2))


def test_computes_of_one_timer_become_one() -> None:
    def compute(microbatch: int) -> Compute:
        timer = Timer("compute", 0, microbatch, Direction.FORWARD)
        return Compute(timer=timer, products=(Product(2, 3, 4), Product(5, 6, 7)), time_s=0.5)

    one, other = merged([compute(0), compute(0), compute(1)])
    assert one == Compute(timer=compute(0).timer, products=(Product(2, 3, 4, 2), Product(5, 6, 7, 2)), time_s=1.0)
    assert other == compute(1)
