"""What tests need from the machine, and how they say that it is not there."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from spanfit.launch import testbed as beds
from spanfit.launch.fabric import Fabric, LinkClass, LinkShape
from spanfit.launch.testbed import Testbed


def pytest_configure(config: pytest.Config) -> None:
    # The machines that run this are shared and slow at times: a slow example is no failure.
    hypothesis.settings.register_profile("spanfit", deadline=None, derandomize=True, max_examples=25)
    hypothesis.settings.load_profile("spanfit")
    # Ranks and programs that tests start must find this checkout's spanfit and nothing of the working folder.
    os.environ["PYTHONSAFEPATH"] = "1"


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skip where the machine refuses network namespaces."""
    if refusal := beds.refusal():
        pytest.skip(refusal)


@pytest.fixture
def bring_up(namespaces: None) -> Iterator[Callable[[Fabric], Testbed]]:
    """Give a function that brings a testbed up; it ends with the test."""
    running: list[Testbed] = []

    def up(fabric: Fabric) -> Testbed:
        running.append(beds.up(fabric, attached=True))
        return running[-1]

    yield up
    for bed in running:
        bed.down()


def make_fabric(
    name: str, *, minipods: int = 2, hosts_per_leaf: int = 4, host: float = 4e8, uplink: float = 4e8
) -> Fabric:
    """Return a fat tree with one leaf a minipod, rates in bits per second."""
    return Fabric(
        name=f"{name}-{os.getpid()}",
        minipods=minipods,
        leaves_per_minipod=1,
        hosts_per_leaf=hosts_per_leaf,
        links={
            LinkClass.HOST: LinkShape(rate_bits_per_s=host),
            LinkClass.MINIPOD: LinkShape(rate_bits_per_s=uplink),
        },
    )


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Give the folder of larger inputs; skip where it is absent."""
    folder = Path(os.environ.get("SPANFIT_SHARED", Path(__file__).parents[2] / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}; set SPANFIT_SHARED to where the larger inputs are")
    return folder
