import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.topology.hostlist import expand_hostlist, fold_hostlist, is_plain_name

SHARED = Path(os.environ.get("SPANFIT_SHARED", Path(__file__).parents[4] / "shared"))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ""),
        ("a,b c\td\ne", "a b c d e"),
        (" node1 , node2 ", "node1 node2"),
        ("n[1,1,2]", "n1 n1 n2"),
        ("n[3,1-2]", "n3 n1 n2"),
        ("node[01-3]", "node01 node02 node03"),
        ("node[1-03]", "node1 node2 node3"),
        ("node[99-101]", "node99 node100 node101"),
        ("node[099-101]", "node099 node100 node101"),
        ("node[1-2][3-4]", "node13 node14 node23 node24"),
        ("a[0-1]x[0-1]y[0-1]", "a0x0y0 a0x0y1 a0x1y0 a0x1y1 a1x0y0 a1x0y1 a1x1y0 a1x1y1"),
        ("n[1,3-4].dom.ain", "n1.dom.ain n3.dom.ain n4.dom.ain"),
        ("n[1-2]-ib,@all", "n1-ib n2-ib @all"),
        ("6f84b74219aa22869602735141708147", "6f84b74219aa22869602735141708147"),
    ],
)
def test_expands_as_slurm_does(text: str, names: str) -> None:
    assert expand_hostlist(text) == tuple(names.split())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("node[3-1]", "'3-1' in 'node\\[3-1\\]', which runs backwards"),
        ("node[1-", "'\\[1-' at position 4"),
        ("node[]", "found '' in 'node\\[\\]'"),
        ("node[[1-2]]", "'\\[\\[1-2\\]\\]' at position 4"),
        ("ok,node1]", "'\\]' at position 8"),
        ("node[1 - 3]", "'1 - 3'"),
        ("node[1-10/2]", "'1-10/2'"),
        ("node[1-3]!node2", "'!node2' at position 9"),
        ("switch{s0}", "'{s0}' at position 6"),
        ("node[a-b]", "'a-b'"),
        ("node[1,]", "found ''"),
        ("node[٣]", "found '٣'"),
        ("node[0-999999999]", "stands for 1000000000 names; expected at most 262144"),
        ("n[0-999][0-999]", "stands for 1000000 names"),
        (f"node[{'1' * 5000}]", "expected a number or low-high, up to 18 digits each"),
    ],
)
def test_says_what_is_wrong(text: str, found: str) -> None:
    with pytest.raises(ValueError, match=found):
        expand_hostlist(text)


def test_a_short_text_fills_no_memory() -> None:
    with pytest.raises(ValueError, match="found more than 1048576 names"):
        expand_hostlist("n[0-262143]," * 1000)


def test_longest_range_is_read() -> None:
    assert len(expand_hostlist("n[1-262144]")) == 262_144
    with pytest.raises(ValueError, match="262145"):
        expand_hostlist("n[1-262145]")


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("n08 n09 n10 n3 n3 login", "n[08-10,3,3],login"),
        ("n2 n1 n1", "n[2,1,1]"),
        ("m0l0h0 m0l0h1 m0l1h0", "m0l0h[0-1],m0l1h0"),
        ("n1.rack2 n2.rack2 n2.rack3", "n[1-2].rack2,n2.rack3"),
        ("10.0.0.1 10.0.0.2", "10.0.0.[1-2]"),
        ("n99 n100 n0101", "n[99-100,0101]"),
        ("n n1 n n2", "n,n1,n,n2"),
        ("a-1 b-2", "a-1,b-2"),
        ("", ""),
    ],
)
def test_folds_neighbours(names: str, text: str) -> None:
    assert fold_hostlist(names.split()) == text


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a[1]", "a]", "a\n", "s{1}", "!a"])
def test_refuses_to_fold_what_no_hostlist_carries(name: str) -> None:
    assert not is_plain_name(name)
    with pytest.raises(ValueError, match="cannot stand in a hostlist"):
        fold_hostlist(["fine", name])


plain = st.text(min_size=1, max_size=8).filter(is_plain_name)
numbered = st.builds(
    lambda prefix, number, width, suffix: f"{prefix}{number:0{width}}{suffix}",
    st.sampled_from(["n", "rack1-n", "10.0.0.", "", "é"]),
    st.one_of(st.integers(0, 12), st.integers(95, 105), st.integers(0, 10**20)),
    st.integers(1, 4),
    st.sampled_from(["", "", "-ib", ".dom1"]),
)


@given(st.lists(st.one_of(numbered, plain)))
def test_folding_keeps_order_and_duplicates(names: list[str]) -> None:
    assert expand_hostlist(fold_hostlist(names)) == tuple(names)


@given(st.integers(0, 120), st.integers(1, 40), st.integers(1, 4))
def test_a_run_folds_to_one_range(low: int, length: int, width: int) -> None:
    names = [f"n{number:0{width}}" for number in range(low, low + length)]
    folded = fold_hostlist(names)
    assert folded == (names[0] if length == 1 else f"n[{low:0{width}}-{low + length - 1:0{width}}]")


@pytest.mark.corpus
def test_agrees_with_every_case_of_the_corpus() -> None:
    """All cases apply: since 23.11 Slurm reads text after a bracket too, and so do we; none is left out."""
    path = SHARED / "data/topology/dev/nasty_hostlists.json.expected.json"
    if not path.exists():
        pytest.skip(f"no {path}")
    cases = json.loads(path.read_text())["cases"]
    assert len(cases) >= 17
    for case in cases:
        if case["expect"] is None:
            with pytest.raises(ValueError, match="expected"):
                expand_hostlist(case["expr"])
        else:
            assert list(expand_hostlist(case["expr"])) == case["expect"], case["expr"]
