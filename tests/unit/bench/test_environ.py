import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.bench.environ import STARTERS, by_local_rank, rank_environment, set_local

OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "PMIX_RANK": "5",
}
MPICH = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0"}
SRUN = {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "6", "SLURM_LOCALID": "1", "SLURM_NTASKS": "9"}
BATCH_SCRIPT = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "7"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (OPEN_MPI, ("5", "8", "1")),
        (MPICH, ("3", "4", "0")),
        (SRUN, ("2", "6", "1")),
        (OPEN_MPI | BATCH_SCRIPT, ("5", "8", "1")),
        (OPEN_MPI | SRUN, ("5", "8", "1")),
        (MPICH | SRUN, ("3", "4", "0")),
    ],
)
def test_the_innermost_starter_says_who_a_rank_is(environment: dict[str, str], expected: tuple[str, str, str]) -> None:
    assert tuple(rank_environment(environment).values()) == expected


@given(st.sets(st.sampled_from([name for names in STARTERS.values() for name in names])))
def test_torchrun_wins_and_no_starter_is_mixed_with_another(names: set[str]) -> None:
    environment = {name: f"value of {name}" for name in names}
    complete = [variables for variables in STARTERS.values() if names.issuperset(variables)]
    if not complete:
        with pytest.raises(ValueError, match="does not know its rank; start it by torchrun, Open MPI, MPICH, srun"):
            rank_environment(environment)
        return
    found = rank_environment(environment)
    assert list(found) == ["RANK", "WORLD_SIZE", "LOCAL_RANK"]
    assert list(found.values()) == [f"value of {name}" for name in complete[0]]


DEVICES = ({"GLOO_SOCKET_IFNAME": "eth0"}, {"GLOO_SOCKET_IFNAME": "eth1", "NCCL_ALGO": "Ring"})


@pytest.mark.parametrize("starter", [OPEN_MPI, SRUN, {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}])
def test_a_rank_takes_the_variables_of_its_local_rank_over_the_launchs(starter: dict[str, str]) -> None:
    environment = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_DEBUG": "WARN", **starter}
    set_local(environment, DEVICES)
    assert environment == {"GLOO_SOCKET_IFNAME": "eth1", "NCCL_ALGO": "Ring", "NCCL_DEBUG": "WARN", **starter}


def test_without_tables_nobody_asks_which_rank_this_is() -> None:
    environment = {"GLOO_SOCKET_IFNAME": "lo"}
    set_local(environment, ())
    assert environment == by_local_rank(environment, ()) == {"GLOO_SOCKET_IFNAME": "lo"}


def test_what_differs_by_local_rank_is_told_of_all_of_them() -> None:
    environment = {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_DEBUG": "WARN"}
    assert by_local_rank(environment, DEVICES) == {
        "GLOO_SOCKET_IFNAME": "eth0 | eth1",
        "NCCL_ALGO": " | Ring",
        "NCCL_DEBUG": "WARN",
    }


def test_a_batch_script_alone_is_no_rank() -> None:
    with pytest.raises(ValueError, match="does not know its rank"):
        rank_environment(BATCH_SCRIPT)
