from dataclasses import replace

from spanfit.profiler.fingerprint import ABSENT, Contrast, contrasts
from tests.unit.profiler.factory import RUN


def test_equal_runs_differ_in_nothing() -> None:
    later = replace(RUN, run_id="later", started_at="2027-01-01T00:00:00+00:00", launches=60)
    assert contrasts(RUN, later) == ()


def test_whatever_may_be_the_reason_is_named_with_both_values() -> None:
    other = replace(
        RUN,
        engine="nccl-tests",
        gpu_model="H100",
        ngpus_per_node=8,
        versions=RUN.versions | {"torch": "2.7"},
        environment={"OMP_NUM_THREADS": "1", "NCCL_ALGO": "Ring"},
        node_names=("n0", "n1", "n2", "n9"),
    )
    assert contrasts(RUN, other) == (
        Contrast(what="engine", a="spanfit", b="nccl-tests"),
        Contrast(what="GPU model", a="emulated", b="H100"),
        Contrast(what="ranks on each node", a="1", b="8"),
        Contrast(what="version: torch", a="2.6", b="2.7"),
        Contrast(what="environment: NCCL_ALGO", a=ABSENT, b="Ring"),
        Contrast(what="nodes", a="4, 1 of them not in B", b="4, 1 of them not in A"),
    )


def test_settings_that_rows_do_not_hold_are_compared_and_what_was_swept_is_not() -> None:
    job = {"name": "balanced", "forward_s": 0.006, "backward_s": 0.012}
    a = replace(
        RUN, spec={"jobs": [job], "collectives": {"skew": 1.5, "sizes": [1]}, "overlap": None, "launches": 6, "seed": 1}
    )
    b = replace(RUN, spec={"jobs": [job | {"forward_s": 0.5}], "collectives": {"skew": 2.0, "sizes": [2]}, "seed": 2})
    assert [(c.what, c.a, c.b) for c in contrasts(a, b)] == [
        ("seed, which draws the nodes", "1", "2"),
        ("collectives.skew", "1.5", "2.0"),
        ("job balanced: forward_s", "0.006", "0.5"),
    ]
    assert contrasts(replace(RUN, spec={}), replace(RUN, spec={})) == ()


def test_noise_is_compared_by_what_was_asked_for_and_what_was_drawn() -> None:
    busy = {"name": "busy", "mix": "equal", "utilisation": 0.5, "used": 0.5, "drawn": {"busy-00": ["n4", "n6"]}}
    drawn = {"busy-00": ["n4", "n7"], "busy-01": ["n5", "n6"]}
    a = replace(RUN, spec={"noise": [busy]})
    b = replace(RUN, spec={"noise": [busy | {"used": 1.0, "drawn": drawn}]})
    assert [(c.what, c.a, c.b) for c in contrasts(a, b)] == [
        ("noise busy: drawn", "busy-00 on n4, n6", "busy-00 on n4, n7; busy-01 on n5, n6"),
        ("noise busy: used", "0.5", "1.0"),
    ]
