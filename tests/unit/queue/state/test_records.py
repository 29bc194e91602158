import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.errors import StoreError
from spanfit.queue.model.events import Decision, DecisionKind, Event, NodesDown, Submitted
from spanfit.queue.model.jobs import Forecast, QueueJob, Waiting
from spanfit.queue.model.rules import PolicyName, QueueRules
from spanfit.queue.state import records
from tests.unit.queue.stores import GROUND, a_job, submitted


def test_every_kind_of_event_has_a_word() -> None:
    assert set(records.EVENT_KINDS.values()) == set(get_args(Event))
    assert records.event_kind(NodesDown(at_s=0, nodes=1)) == "nodes-down"


def test_nodes_are_written_by_name() -> None:
    assert json.loads(records.render(NodesDown(at_s=1.5, nodes=0b101), GROUND)) == {
        "at_s": 1.5,
        "nodes": ["n00", "n02"],
    }


@pytest.mark.parametrize(
    "value",
    [
        NodesDown(at_s=1.5, nodes=1 << 11 | 1),
        submitted("a", 3, expected_start_s=9.25, nrows=1, ncolumns=3, gpu_model="H100"),
        Decision(kind=DecisionKind.START, job_id="a", at_s=0.1, reason="ünïcode", order=(3, 1, 2), until_s=None),
        QueueRules(policy=PolicyName.EASY, ageing_s=1.0),
        Waiting(job=a_job("a", 2), forecast=Forecast(mean_s=1, upper_s=2), since_s=0.0, until_s=3.0),
    ],
)
def test_what_is_written_is_read_again(value: object) -> None:
    assert records.parse(type(value), records.render(value, GROUND), GROUND) == value


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(), st.text(), st.booleans())
def test_any_job_is_read_again(at_s: float, priority: int, owner: str, is_preemptable: bool) -> None:
    job = QueueJob(
        job_id="a", nnodes=1, submitted_s=at_s, priority=priority, owner=owner, is_preemptable=is_preemptable
    )
    event = Submitted(at_s=at_s, job=job, forecast=Forecast(mean_s=1.0, upper_s=at_s))
    assert records.parse(Submitted, records.render(event, GROUND), GROUND) == event


@pytest.mark.parametrize(
    "text", ['{"at_s": 1, "nodes": ["n99"]}', '{"at_s": 1}', '{"at_s": 1, "nodes": [], "more": 1}', "{"]
)
def test_what_does_not_fit_is_said(text: str) -> None:
    with pytest.raises(StoreError, match="expected a NodesDown of this version of spanfit"):
        records.parse(NodesDown, text, GROUND)


def test_what_is_no_number_is_not_kept() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        records.render(Forecast(mean_s=float("inf"), upper_s=1.0), GROUND)
