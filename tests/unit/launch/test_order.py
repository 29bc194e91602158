import json
import subprocess
import sys
from pathlib import Path

import pytest

from spanfit.launch.order import Expected, StartError, order_fault, read_placement

PLACED = Expected(node_names=("n2", "n10", "n3"), ngpus_per_node=2)
RIGHT = {0: "n2", 1: "n2", 2: "n10", 3: "n10", 4: "n3", 5: "n3"}


def test_ranks_that_run_where_they_were_placed_are_right() -> None:
    assert order_fault(PLACED, RIGHT, 6) == ""
    assert order_fault(PLACED, {rank: f"{host}.cluster.example" for rank, host in RIGHT.items()}, 6) == ""
    full = Expected(node_names=("n2.a", "n10.a", "n3.a"), ngpus_per_node=2)
    assert order_fault(full, RIGHT, 6) == ""


def test_swapped_nodes_are_named_with_their_ranks() -> None:
    swapped = RIGHT | {0: "n10", 1: "n10", 2: "n2", 3: "n2"}
    assert order_fault(PLACED, swapped, 6).startswith(
        "ranks are not where the placement put them: ranks 0-1 on n10, expected on n2; ranks 2-3 on n2, expected on "
        "n10; start them in the placed order"
    )


def test_hosts_of_one_short_name_in_two_domains_are_two() -> None:
    placed = Expected(node_names=("n1.east", "n1.west"), ngpus_per_node=1)
    assert "rank 0 on n1.west, expected on n1.east" in order_fault(placed, {0: "n1.west", 1: "n1.east"}, 2)


def test_addresses_are_compared_whole() -> None:
    placed = Expected(node_names=("10.0.0.1",), ngpus_per_node=1)
    assert "rank 0 on 10.0.0.2" in order_fault(placed, {0: "10.0.0.2"}, 1)


def test_ranks_that_split_a_node_or_did_not_come_are_named() -> None:
    found = order_fault(PLACED, {rank: host for rank, host in RIGHT.items() if rank != 5} | {2: "n9"}, 6)
    assert "rank 2 on n9, expected on n10; rank 5 did not come, expected on n3" in found
    four = Expected(node_names=("a",), ngpus_per_node=4)
    assert "ranks 0, 2 on b, expected on a" in order_fault(four, {0: "b", 1: "a", 2: "b", 3: "a"}, 4)


def test_a_world_of_another_size_is_told_as_such() -> None:
    assert order_fault(PLACED, RIGHT, 12) == (
        "the world has 12 ranks, the placement 6 (3 nodes of 2); start as many as were placed"
    )


def test_of_many_faults_some_are_told() -> None:
    many = Expected(node_names=tuple(f"n{index}" for index in range(1000)), ngpus_per_node=8)
    found = order_fault(many, dict.fromkeys(range(8000), "elsewhere"), 8000)
    assert "ranks 72-79 on elsewhere, expected on n9; and 990 more such" in found
    assert len(found) < 900


def test_the_placement_file_says_where_ranks_belong(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"schema_version": 1, "rank_map": {"node_names": ["b", "a"], "ngpus_per_node": 8}}))
    assert read_placement(path) == Expected(node_names=("b", "a"), ngpus_per_node=8)
    for wrong in ("", "[]", "{}", '{"rank_map": {"node_names": ["a"]}}', '{"rank_map": 3}'):
        path.write_text(wrong)
        with pytest.raises(StartError, match=r"p\.json: no rank_map in it; expected the file that 'spanfit place -o'"):
            read_placement(path)
    with pytest.raises(StartError, match=r"none\.json: No such file or directory; expected the file"):
        read_placement(tmp_path / "none.json")


def test_a_script_whose_order_cannot_be_checked_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('trained')")
    (tmp_path / "p.json").write_text('{"rank_map": {"node_names": ["a"], "ngpus_per_node": 1}}')
    for placement, text in (("none.json", "none.json: No such file"), ("p.json", "RANK, WORLD_SIZE, MASTER_ADDR")):
        done = subprocess.run(
            [sys.executable, "-m", "spanfit.launch.order", placement, "train.py"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"spanfit: {text}")


def test_the_check_needs_nothing_but_python_and_torch() -> None:
    code = "import sys; before = set(sys.modules); import spanfit.launch.order; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded <= {*sys.stdlib_module_names, "spanfit"}
