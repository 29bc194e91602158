"""A step beside other jobs on a testbed: what crosses the core slows it, and its campaign says so."""

from pathlib import Path

from spanfit.profiler import statistics
from spanfit.profiler.campaign import Campaign
from spanfit.profiler.sensitivity import fit_sensitivity
from spanfit.profiler.steps import step_times
from spanfit.profiler.sweep import swept_jobs
from spanfit.results.schema import Estimate
from tests.conftest import make_fabric
from tests.integration.factory import write_campaign

RATE = 4e8
BODY = """launches = 6
[[jobs]]
name = "step"
dp = 2
pp = 2
microbatches = 2
activation = "64K"
gradient = "1M"
forward = "1ms"
backward = "2ms"
warmup = 3
repetitions = 5
[[noise]]
name = "across"
mix = "equal"
nodes = [2]
placement = ["core"]
utilisation = 1.0
gradient = "1M"
[[noise]]
name = "inside"
mix = "equal"
nodes = [2]
placement = ["leaf"]
utilisation = 1.0
gradient = "1M"
"""


def test_a_step_that_crosses_the_core_is_slower_beside_jobs_that_do(namespaces: None, tmp_path: Path) -> None:
    fabric = make_fabric("noise", hosts_per_leaf=4, host=RATE, uplink=RATE)
    campaign = Campaign(write_campaign(tmp_path, fabric, BODY), tmp_path / "runs")
    campaign.run(lambda _: None)
    info, frame = campaign.store.read(campaign.run_id)
    assert (frame["status"] == "ok").all()
    noise = info.spec["noise"]
    assert isinstance(noise, list)
    spans = {table["name"]: [len({node[:2] for node in nodes}) for nodes in table["drawn"].values()] for table in noise}
    assert spans == {"across": [2, 2], "inside": [1, 1]}
    assert [table["used"] for table in noise] == [1.0, 1.0]
    by_job = {steps.job: steps for steps in step_times(frame)}

    def slowdown(noise: str, arm: str) -> Estimate:
        """Return by how much more log time a step takes beside a noise than alone, paired by launch."""
        return statistics.interval((by_job[noise].table[arm] - by_job["step"].table[arm]).dropna())

    across, inside = slowdown("step+across", "misaligned-00"), slowdown("step+inside", "misaligned-00")
    assert across.ci_low is not None and across.ci_low > 0
    # As much traffic that stays under its leaf takes this machine's cores as well, and no uplink.
    assert inside.ci_high is not None and inside.ci_high < across.ci_low
    jobs = [job for job in swept_jobs([(info, frame)]) if job.steps.job != "step+inside"]
    found = fit_sensitivity(jobs)
    assert (found.thing, found.per) == ("noise.used", "range")
