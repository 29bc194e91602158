"""The campaigns under ``examples/sweeps`` are valid, and differ in what they say that they sweep."""

from pathlib import Path

import pytest

from spanfit.profiler.campaign import Campaign

SWEEPS = Path(__file__).parents[3] / "examples" / "sweeps"


@pytest.mark.parametrize(
    ("name", "jobs"),
    [
        ("layers", ["deep-4", "deep-8", "deep-16"]),
        ("mixture", ["dense", "mixture"]),
        ("noise", ["step", "step+one", "step+two", "step+inside"]),
        ("ctas", ["step", "step@cta-4", "step@cta-8", "step@cta-16"]),
    ],
)
def test_a_sweep_times_each_of_its_jobs_in_the_same_arms(tmp_path: Path, name: str, jobs: list[str]) -> None:
    campaign = Campaign(SWEEPS / f"{name}.toml", tmp_path)
    arms: dict[str, list[str]] = {}
    for case in campaign.cases:
        arms.setdefault(case.operation, []).append(case.arm)
    assert list(arms) == jobs
    assert len({tuple(each) for each in arms.values()}) == 1
    assert {"dp-aligned", "pp-aligned", "misaligned-00"} <= set(arms[jobs[0]])
    assert campaign.run_id.startswith(f"sweep-{name}-"), "the prefix by which its commands name the run"


def test_the_noise_of_the_example_crosses_the_core_or_does_not(tmp_path: Path) -> None:
    campaign = Campaign(SWEEPS / "noise.toml", tmp_path)
    spans = {
        case.operation: [len({campaign.minipods[node] for node in group}) for group in case.groups[1:]]
        for case in campaign.cases
    }
    assert spans == {"step": [], "step+one": [2], "step+two": [2, 2], "step+inside": [1, 1]}
