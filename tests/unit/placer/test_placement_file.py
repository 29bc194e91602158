"""placement.json: its schema is the published one, and what is written is read back equal."""

from pathlib import Path

from spanfit import files
from spanfit.placer.model import SCHEMA_VERSION, Placement
from spanfit.placer.place import place
from spanfit.placer.rules import OneModel, Rules
from spanfit.workload.layout import ParallelLayout
from tests.unit.placer.test_place import cluster, job
from tests.unit.placer.test_rules import experts

SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "placement.json"


def test_the_published_schema_is_current() -> None:
    assert SCHEMA.read_text() == files.render_json(files.json_schema(Placement, "placement.json of spanfit"))


def test_placements_with_rules_are_read_back_equal(tmp_path: Path) -> None:
    path = tmp_path / "placement.json"
    layout = ParallelLayout(dp=8, pp=2, tp=8, ep=4)
    rules = Rules(ep_within="accelerator", spares=1, one_model=OneModel.JOB, pinned=("p0d0n0",), excluded=("p1d1n4",))
    plain = place(job(6, 2), cluster(7, 7), alpha=0.3, beta=0.7)
    ruled = place(job(8, 2, layout=layout), experts((3, 2), 5), alpha=0.3, beta=0.7, rules=rules)
    for placement in (plain, ruled):
        files.write_json(path, placement)
        assert files.read_json(path, Placement, SCHEMA_VERSION) == placement


def test_files_of_before_rules_are_still_read(tmp_path: Path) -> None:
    path = tmp_path / "placement.json"
    document = files.plain(place(job(6, 2), cluster(7, 7), alpha=0.3, beta=0.7))
    for key in ("rules", "choice", "spares", "ep_weight", "ep_spreads", "crossing", "accepted_stale", "step_s"):
        del document[key]
    del document["job"]["edges"]
    files.write_json(path, document)
    old = files.read_json(path, Placement, SCHEMA_VERSION)
    assert (old.rules, old.crossing) == (Rules(), None)
