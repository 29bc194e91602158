from dataclasses import replace

import pytest

from spanfit import files
from spanfit.bench.campaign_file import CampaignFile
from spanfit.bench.case import BenchCase, CaseKind, Concurrency, RankOrder
from spanfit.bench.nccl_tests import Build, command, exit_meaning, misfit, parse_help, split_environment, taken
from spanfit.errors import ConfigError

CASE = BenchCase(
    kind=CaseKind.COLLECTIVE,
    operation="all_reduce",
    size_bytes=4096,
    dtype="float32",
    redop="product",
    in_place=False,
    groups=((0, 1),),
    tier="minipod",
    span=1,
    rank_order=RankOrder.SORTED,
    concurrency=Concurrency.ALONE,
    draw=0,
    arm="",
    warmup=5,
    repetitions=20,
)
OLD = Build(path="/p/all_reduce_perf", options=frozenset("tgbeifnmwpcodrzh"))
NEW = replace(OLD, options=OLD.options | set("GaJT"))
COMMON = "/p/all_reduce_perf -g 1 -b 4096 -e 4096 -n 20 -w 5 -c 1 -d float -o prod"


def test_a_command_has_the_options_that_the_build_knows() -> None:
    assert command(OLD, CASE, ngpus=1, check=True, report="r.json") == COMMON.split()
    asked = command(NEW, CASE, ngpus=1, check=True, report="r.json")
    assert asked == [*COMMON.split(), "-a", "3", "-J", "r.json"]


def test_what_reduces_nothing_gets_no_reduction() -> None:
    for operation, redop in (("broadcast", "none"), ("send_recv", "sum")):
        assert "-o" not in command(OLD, replace(CASE, operation=operation, redop=redop), ngpus=1, check=True, report="")


def test_a_graph_needs_a_build_that_has_them() -> None:
    case = replace(CASE, graph=True)
    assert "no option -G" in misfit(OLD, case)
    assert misfit(NEW, case) == misfit(OLD, CASE) == ""
    words = command(NEW, case, ngpus=8, check=False, report="")
    assert words[words.index("-G") + 1] == "1"
    assert (words[2], words[words.index("-c") + 1]) == ("8", "0")


def test_options_are_read_off_the_answer_to_help() -> None:
    text = "USAGE: all_reduce_perf \n\t[-t,--nthreads <num threads>] \n\t[-J,--output_file <file> write (only json)] \n"
    assert parse_help(text + "\t[-h,--help]\n") == {"t", "J", "h"}
    assert parse_help("usage: ls [OPTION]... [FILE]...") == frozenset()


@pytest.mark.parametrize(("ngroups", "nranks"), [(2, 4), (3, 16), (2, 6), (5, 12)])
def test_a_split_makes_groups_of_ranks_in_a_row(ngroups: int, nranks: int) -> None:
    variables = split_environment(ngroups, nranks)
    ranks = range(ngroups * nranks)
    # The colours that nccl-tests gives the ranks of a world.
    if mask := variables.get("NCCL_TESTS_SPLIT_MASK"):
        colours = [rank & int(mask, 16) for rank in ranks]
    else:
        word, number = variables["NCCL_TESTS_SPLIT"].split()
        assert word == "DIV"
        colours = [rank // int(number) for rank in ranks]
    assert len(set(colours)) == ngroups
    assert all(colours[rank] == colours[rank // nranks * nranks] for rank in ranks)


def test_one_group_is_not_split() -> None:
    assert split_environment(1, 8) == {}


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-9, "ended by signal 9"),
        (137, "ended by signal 9"),
        (3, "an NCCL call failed"),
        (6, "wrong results or a low bandwidth (2.17.3 to 2.17.6)"),
        (255, "a size"),
        (44, "exit code 44"),
    ],
)
def test_an_exit_code_says_what_it_means(code: int, words: str) -> None:
    assert words in exit_meaning(code)


def test_arguments_that_a_case_decides_are_found_in_every_spelling() -> None:
    assert taken(("-b", "8", "-e8G", "--iters=5", "-z", "1", "--cta_policy", "2", "-5")) == ("-b", "-e8G", "--iters=5")


LAUNCH = {"launcher": "mpirun", "ranks_per_node": 8}
SWEEP = {"operations": ["all_reduce"], "sizes": ["1M"], "nodes_per_group": 2, "spans": [1]}
GOOD = {
    "name": "n",
    "cluster": "c.toml",
    "engine": "nccl-tests",
    "backend": "nccl",
    "launch": LAUNCH,
    "collectives": SWEEP,
}


def test_a_campaign_of_programs_is_accepted() -> None:
    assert files.parse(CampaignFile, GOOD, "f").engine == "nccl-tests"
    pairs = {"sizes": ["1M"], "operation": "send_recv", "concurrency": ["alone"]}
    files.parse(CampaignFile, GOOD | {"pairs": pairs}, "f")


def test_all_that_the_programs_cannot_do_is_said_at_once() -> None:
    job = {
        "name": "j",
        "dp": 2,
        "pp": 1,
        "microbatches": 1,
        "activation": 1,
        "gradient": 1,
        "forward": 1,
        "backward": 1,
    }
    bad = GOOD | {
        "backend": "gloo",
        "launch": LAUNCH | {"launcher": "ssh", "exclude_sick": True, "local_environment": [{}] * 8},
        "collectives": SWEEP | {"operations": ["all_reduce", "barrier", "all_to_all_v", "exchange"], "rails": True},
        "startup": {"nodes_per_group": [2]},
        "overlap": {"nodes_per_group": 2},
        "pairs": {"sizes": ["1M"], "rails": True},
        "jobs": [job],
        "nccl_tests": {"arguments": ["-b", "8"]},
    }
    with pytest.raises(ConfigError) as error:
        files.parse(CampaignFile, bad, "f")
    lines = str(error.value).splitlines()
    for start in (
        "f: nccl_tests.arguments: found '-b', which the campaign sets by itself",
        "f: backend: engine nccl-tests measures NCCL, found gloo",
        "f: launch.launcher: engine nccl-tests is not started by ssh; expected one of mpirun, srun, local",
        "f: launch.exclude_sick:",
        "f: launch.local_environment:",
        "f: startup:",
        "f: overlap:",
        "f: jobs:",
        "f: collectives.operations: nccl-tests cannot do barrier, all_to_all_v, exchange; expected any of all_reduce",
        "f: collectives.rails:",
        "f: pairs.operation: nccl-tests cannot do send",
        "f: pairs.concurrency:",
        "f: pairs.rails:",
    ):
        assert sum(line.startswith(start) for line in lines) == 1, f"{start!r} is not in {lines}"


def test_one_process_stays_on_one_node() -> None:
    local = GOOD | {"launch": LAUNCH | {"launcher": "local"}}
    with pytest.raises(ConfigError, match=r"collectives.nodes_per_group: found 2; expected 1"):
        files.parse(CampaignFile, local, "f")
    files.parse(CampaignFile, local | {"collectives": SWEEP | {"nodes_per_group": 1}}, "f")


def test_our_own_engine_refuses_what_only_programs_read() -> None:
    own = GOOD | {"engine": "spanfit", "launch": LAUNCH | {"launcher": "local"}, "nccl_tests": {"folder": "x"}}
    with pytest.raises(ConfigError, match=r"launch.launcher: local starts(?s:.*)nccl_tests: only engine"):
        files.parse(CampaignFile, own, "f")


def test_a_group_of_one_node_needs_a_second_rank() -> None:
    alone = GOOD | {"launch": LAUNCH | {"ranks_per_node": 1}, "collectives": SWEEP | {"nodes_per_group": 1}}
    with pytest.raises(ConfigError, match=r"collectives.nodes_per_group: found 1, which gives groups of one rank"):
        files.parse(CampaignFile, alone, "f")
