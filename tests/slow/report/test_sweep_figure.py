import xml.etree.ElementTree as ET

from spanfit.profiler.sensitivity import fit_sensitivity
from spanfit.report.sweep_figure import sensitivity_figure
from tests.unit.profiler.test_sensitivity import volumes
from tests.unit.profiler.test_sweep import JOB, jobs_of


def test_the_figure_names_every_arm_and_value_and_is_the_same_each_time() -> None:
    drawn = sensitivity_figure(volumes())
    texts = [element.text for element in ET.fromstring(drawn).iter() if element.text]
    for text in ("dp-aligned", "packed", "256 KiB", "2 MiB", "activation_bytes"):
        assert text in texts
    assert drawn == sensitivity_figure(volumes())


def test_values_that_are_no_numbers_stand_side_by_side() -> None:
    drawn = sensitivity_figure(fit_sensitivity(jobs_of(JOB, JOB | {"name": "other", "schedule": "1f1b"})))
    assert "gpipe" in drawn and "1f1b" in drawn


def test_a_value_of_0_has_its_place_however_small_the_others_are() -> None:
    values = (0.0, 0.003, 0.006)
    jobs = [JOB | {"name": f"job{n}", "forward_s": value} for n, value in enumerate(values)]
    drawn = sensitivity_figure(fit_sensitivity(jobs_of(*jobs)))
    assert "3 ms" in drawn and "6 ms" in drawn
