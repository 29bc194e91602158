from dataclasses import replace

from spanfit.queue.model.jobs import Forecast, Reservation, Running, Waiting
from spanfit.queue.model.state import QueueState
from spanfit.queue.state.invariants import faults
from tests.unit.queue.stores import GROUND, OPENED_S, a_job

FORECAST = Forecast(mean_s=60, upper_s=90)


def running(job_id: str, *order: int) -> Running:
    nodes = sum(1 << node for node in order)
    return Running(job=a_job(job_id, len(order)), forecast=FORECAST, nodes=nodes, order=order, started_s=OPENED_S)


def held(job_id: str, start_s: float, end_s: float, *order: int) -> Reservation:
    nodes = sum(1 << node for node in order)
    return Reservation(job_id=job_id, nodes=nodes, order=order, start_s=start_s, end_s=end_s)


def state(*found: Running | Reservation, up: int = GROUND.everything) -> QueueState:
    return QueueState(
        ground=GROUND,
        now_s=OPENED_S,
        up=up,
        running={each.job.job_id: each for each in found if isinstance(each, Running)},
        reservations={each.job_id: each for each in found if isinstance(each, Reservation)},
    )


def test_a_sound_state_has_no_faults() -> None:
    sound = state(running("a", 2, 1), running("b", 3), held("c", 10, 20, 1, 2), held("d", 20, 30, 2, 1))
    assert faults(sound) == ()


def test_a_node_of_two_jobs() -> None:
    assert faults(state(running("a", 1, 2), running("b", 2, 3))) == ("job b runs on nodes of another job: n02",)


def test_a_node_out_of_service() -> None:
    assert faults(state(running("a", 1), up=1)) == ("job a runs on nodes that are out of service: n01",)


def test_another_number_of_nodes_than_asked_for() -> None:
    short = replace(running("a", 1, 2), job=a_job("a", 3))
    assert faults(state(short)) == ("job a asked for 3 nodes and has 2: n01, n02",)


def test_an_order_of_other_nodes() -> None:
    (fault,) = faults(state(replace(running("a", 1, 2), order=(1, 3))))
    assert fault.startswith("job a asked for 2 nodes and has 2")
    (fault,) = faults(state(replace(held("a", 0, 1, 4), order=(5,))))
    assert fault == "the reservation of a has an order of other nodes than its own: n04"


def test_reservations_that_overlap() -> None:
    assert faults(state(held("a", 10, 20, 1, 2), held("b", 19, 30, 2, 3))) == (
        "the reservations of a and b overlap in time and share n02",
    )


def test_a_job_in_two_places() -> None:
    waiting = {"a": Waiting(job=a_job("a", 1), forecast=FORECAST, since_s=OPENED_S)}
    assert faults(replace(state(running("a", 1)), waiting=waiting)) == ("job a both waits and runs",)
