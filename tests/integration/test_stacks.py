"""Ranks that nobody can send a signal to save the stacks of a launch that hangs by themselves."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from spanfit.errors import TimedOutError
from spanfit.launch.fabric import Fabric
from spanfit.launch.testbed import Testbed
from spanfit.profiler.campaign import Campaign
from tests.conftest import make_fabric
from tests.integration.factory import SMALL, write_campaign
from tests.integration.test_campaign import Saboteur


def test_stacks_of_the_ranks_that_wait_are_kept_under_torchrun(
    bring_up: Callable[[Fabric], Testbed], tmp_path: Path
) -> None:
    fabric = make_fabric("stacks", hosts_per_leaf=2)
    bed = bring_up(fabric)
    path = write_campaign(tmp_path, fabric, SMALL, launcher="testbed-torchrun", timeout="5s")
    campaign = Campaign(path, tmp_path / "runs")
    with pytest.raises(TimedOutError, match="rank 2 on m1l0h0"):
        campaign.run(Saboteur(bed, "m1l0h0", signal.SIGSTOP, after=5))
    (kept,) = (tmp_path / "runs" / f"{campaign.run_id}.failures").iterdir()
    for rank in (0, 1, 3):
        text = (kept / f"stacks-{rank}.txt").read_text()
        assert text.startswith("Timeout")
        assert "run_launch" in text
    assert not (kept / "stacks-2.txt").exists()
