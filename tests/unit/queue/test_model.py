import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.queue.model.nodes import Ground, indices
from tests.unit.queue.factory import ground, job

sets = st.sets(st.integers(0, 200))


def bits(nodes: set[int]) -> int:
    return sum(1 << node for node in nodes)


@given(sets)
def test_indices_are_the_members_smallest_first(nodes: set[int]) -> None:
    assert indices(bits(nodes)) == tuple(sorted(nodes))


def test_a_ground_knows_its_minipods_models_and_names() -> None:
    given_ground = Ground(
        names=("x", "y", "z"), minipods=(0, 1, 0), labels=("a", "b"), gpu_models=("H100", None, "H100")
    )
    assert given_ground.masks == (0b101, 0b010)
    assert given_ground.of_model("H100") == 0b101
    assert given_ground.of_model("H200") == 0
    assert given_ground.node_set(("z", "y")) == 0b110
    assert given_ground.members(0b110) == ("y", "z")
    with pytest.raises(KeyError):
        given_ground.node_set(("w",))


def test_only_a_job_with_an_expected_start_is_announced() -> None:
    assert not job("a", 1).is_announced
    assert job("a", 1, expected_start_s=0.0).is_announced


def test_grounds_of_the_tests_name_their_nodes_by_minipod() -> None:
    assert ground(2, 1).names == ("a0", "a1", "b0")
    assert ground(2, 1).everything == 0b111
