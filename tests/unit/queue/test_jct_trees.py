"""Trees as arrays; that they give what scikit-learn gives is tested among the slow ones."""

from dataclasses import replace

import numpy as np
import pytest

from spanfit.queue.jct.trees import CATEGORY_WORDS, Forest, forest_from

WORDS = np.zeros((1, CATEGORY_WORDS), dtype=np.uint32)


def stump(**changes: object) -> Forest:
    """One split on feature 1 at 5: 10 to the left, 20 to the right; missing goes right."""
    known = Forest(
        baseline=np.array([0.5]),
        roots=np.array([0], dtype=np.int32),
        feature=np.array([1, 0, 0], dtype=np.int32),
        threshold=np.array([5.0, 0.0, 0.0]),
        left=np.array([1, -1, -1], dtype=np.int32),
        right=np.array([2, -1, -1], dtype=np.int32),
        missing_left=np.array([False, False, False]),
        value=np.array([0.0, 10.0, 20.0]),
        categories=np.array([-1, -1, -1], dtype=np.int32),
        bits=WORDS,
        known=np.repeat(WORDS, 2, axis=0),
    )
    return replace(known, **changes)  # type: ignore[arg-type]


def test_a_numeric_split() -> None:
    table = np.array([[0, 5.0], [0, 5.1], [0, np.nan], [0, -np.inf]])
    assert stump().predict(table).tolist() == [10.5, 20.5, 20.5, 10.5]
    assert stump(missing_left=np.array([True, False, False])).predict(table)[2] == 10.5


def test_a_categorical_split() -> None:
    bits, known = WORDS.copy(), np.repeat(WORDS, 2, axis=0)
    bits[0, 0], bits[0, 1] = 1 << 3, 1 << 8  # codes 3 and 40 go left
    known[1, 0], known[1, 1] = (1 << 3) | (1 << 4), 1 << 8
    forest = stump(categories=np.array([0, -1, -1], dtype=np.int32), bits=bits, known=known)
    table = np.array([[0, code] for code in (3.0, 40.0, 4.0, 5.0, np.nan, -1.0, 999.0)])
    assert forest.predict(table).tolist() == [10.5, 10.5, 20.5, 20.5, 20.5, 20.5, 20.5]
    unknown = replace(forest, missing_left=np.array([True, False, False])).predict(table)
    assert unknown.tolist() == [10.5, 10.5, 20.5, 10.5, 10.5, 10.5, 10.5]


def test_arrays_come_back_as_they_went() -> None:
    forest = stump()
    again = forest_from(forest.arrays("mean"), "mean", 2)
    for name, array in forest.arrays("x").items():
        np.testing.assert_array_equal(array, again.arrays("x")[name])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"left": np.array([0, -1, -1], dtype=np.int32)}, "child is not behind it"),
        ({"right": np.array([9, -1, -1], dtype=np.int32)}, "child is not behind it"),
        ({"feature": np.array([2, 0, 0], dtype=np.int32)}, "features below 2"),
        ({"categories": np.array([1, -1, -1], dtype=np.int32)}, "features below 2"),
        ({"roots": np.array([3], dtype=np.int32)}, "root that is no node"),
        ({"value": np.array([0.0, np.inf, 1.0])}, "leaf that is no number"),
        ({"value": np.array([0.0, 1.0])}, "different lengths"),
        ({"threshold": np.array([0, 1, 2])}, "found type int64, expected float64"),
        ({"known": WORDS}, "another shape"),
        ({"bits": np.zeros((1, 3), dtype=np.uint32)}, "another shape"),
    ],
)
def test_arrays_that_no_walk_would_end_in_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        forest_from(stump(**changes).arrays("mean"), "mean", 2)


def test_a_missing_array_is_named() -> None:
    with pytest.raises(ValueError, match=r"found no array mean\.baseline"):
        forest_from({}, "mean", 2)
