from importlib.resources import as_file
from importlib.resources import files as resources

from spanfit.results.store import Store
from spanfit.weights.fit import fit_weights


def test_jobs_of_opposite_volumes_on_the_testbed_weigh_on_opposite_sides() -> None:
    with as_file(resources("spanfit.cli") / "demo_data") as folder:
        info, frame = Store(folder).read("recorded-demo")
    entries = {entry.job: entry for entry in fit_weights(info, frame, created_at="2026-01-01T00:00:00+00:00").entries}
    dp_heavy, pp_heavy = entries["dp-heavy"], entries["pp-heavy"]
    assert dp_heavy.volumes and pp_heavy.volumes and dp_heavy.volumes.r2 > 1 > pp_heavy.volumes.r2
    assert dp_heavy.alpha.ci_low is not None and dp_heavy.alpha.ci_low > 0.5
    assert pp_heavy.alpha.ci_high is not None and pp_heavy.alpha.ci_high < 0.5
    assert not (dp_heavy.is_flat or pp_heavy.is_flat or dp_heavy.is_provisional or pp_heavy.is_provisional)
