import tomllib

import pytest

from spanfit import files
from spanfit.bench.campaign_file import CampaignFile, Launcher
from spanfit.errors import ConfigError

CAMPAIGN = """
name = "c"
cluster = "cluster.toml"
backend = "mpi"
[launch]
launcher = "mpirun"
[collectives]
operations = ["all_reduce"]
sizes = ["1M"]
nodes_per_group = 4
spans = [1]
"""
PAIRS = """
[pairs]
sizes = ["1M"]
dtype = "float16"
"""
JOB = """
[[jobs]]
name = "j"
dp = 4
pp = 2
microbatches = 4
activation = "64K"
gradient = "2M"
forward = "6ms"
backward = "12ms"
"""


def parse(text: str) -> CampaignFile:
    return files.parse(CampaignFile, tomllib.loads(text), "c.toml")


@pytest.mark.parametrize("launcher", ["mpirun", "srun"])
def test_mpi_measures_collectives_under_what_starts_mpi(launcher: str) -> None:
    assert parse(CAMPAIGN.replace('"mpirun"', f'"{launcher}"')).backend == "mpi"


def test_everything_that_mpi_cannot_do_is_told_at_once() -> None:
    text = CAMPAIGN.replace('"mpirun"', '"ssh"') + 'dtypes = ["bfloat16"]\nredops = ["avg"]\n' + PAIRS + JOB
    with pytest.raises(ConfigError) as error:
        parse(text)
    assert str(error.value).splitlines() == [
        "c.toml: collectives.redops: backend mpi has no avg; expected sum, product, min or max",
        "c.toml: launch.launcher: ssh cannot start backend mpi; expected one of testbed-mpirun, mpirun, srun",
        "c.toml: jobs: backend mpi measures no steps, so not those of j; expected backend gloo or nccl",
        "c.toml: collectives.dtypes: MPI has no bfloat16; expected another",
        "c.toml: pairs.dtype: MPI has no float16; expected another",
    ]


@pytest.mark.parametrize("launcher", [one for one in Launcher if one is not Launcher.LOCAL])
def test_a_launcher_needs_a_testbed_file_if_it_starts_ranks_in_one(launcher: Launcher) -> None:
    text = CAMPAIGN.replace('"mpirun"', f'"{launcher}"').replace('"mpi"', '"gloo"')
    if launcher.startswith("testbed"):
        with pytest.raises(ConfigError, match=f"launch.testbed: missing; launcher {launcher} needs a testbed file"):
            parse(text)
    else:
        assert parse(text).launch.testbed is None
