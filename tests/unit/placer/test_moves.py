from itertools import combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from spanfit.placer.model import column_spreads, row_spreads
from spanfit.placer.moves import Damage, Plan, is_sound, plan_moves


def fewest(damage: Damage) -> int | None:
    """Return the moves of the shortest plan of at most three, tried one by one."""
    cells = list(product(range(len(damage.grid)), range(len(damage.grid[0]))))
    for size in range(len(damage.failed), 4):
        for chosen in combinations(cells, size):
            for minipods in product(range(len(damage.spare)), repeat=size):
                if is_sound(damage, dict(zip(chosen, minipods, strict=True))):
                    return size
    return None


@st.composite
def damages(draw: st.DrawFn) -> Damage:
    nrows, ncolumns, nminipods = draw(st.integers(2, 4)), draw(st.integers(1, 3)), draw(st.integers(2, 3))
    grid = tuple(tuple(draw(st.integers(0, nminipods - 1)) for _ in range(ncolumns)) for _ in range(nrows))
    cells = list(product(range(nrows), range(ncolumns)))
    failed = tuple(draw(st.lists(st.sampled_from(cells), min_size=1, max_size=2, unique=True)))
    spare = tuple(draw(st.integers(0, 2)) for _ in range(nminipods))
    return Damage(grid=grid, failed=failed, spare=spare, a=max(column_spreads(grid)), b=max(row_spreads(grid)))


@settings(max_examples=60, deadline=None)
@given(damages())
def test_plans_are_sound_and_seldom_longer_than_the_shortest(damage: Damage) -> None:
    plan = plan_moves(damage)
    shortest = fewest(damage)
    if plan is not None:
        assert is_sound(damage, plan)
        assert shortest is None or len(plan) >= shortest
        if len(plan) == len(damage.failed):
            assert shortest == len(plan)


def damage(grid: tuple[tuple[int, ...], ...], spare: tuple[int, ...], *failed: tuple[int, int]) -> Damage:
    return Damage(grid=grid, failed=failed, spare=spare, a=max(column_spreads(grid)), b=max(row_spreads(grid)))


def test_a_free_neighbour_is_one_move() -> None:
    assert plan_moves(damage(((0, 1), (0, 1)), (1, 0), (0, 0))) == {(0, 0): 0}


def test_a_chain_carries_the_lack_to_where_nodes_are_free() -> None:
    """Minipod 2 has a node, but the failed cell's row and column touch two minipods already."""
    hurt = damage(((0, 1), (0, 1), (1, 2)), (0, 0, 1), (0, 0))
    plan = plan_moves(hurt)
    assert plan is not None and is_sound(hurt, plan)
    assert len(plan) == 2


def test_a_whole_row_moves_where_groups_may_not_be_split() -> None:
    hurt = damage(((0, 0), (0, 0), (1, 1)), (0, 2), (0, 1))
    assert plan_moves(hurt) == {(0, 0): 1, (0, 1): 1}


def test_two_failures_share_the_room() -> None:
    assert plan_moves(damage(((0,), (0,)), (1, 0), (0, 0), (1, 0))) is None
    plan: Plan | None = plan_moves(damage(((0,), (1,)), (1, 1), (0, 0), (1, 0)))
    assert plan == {(0, 0): 0, (1, 0): 1}
