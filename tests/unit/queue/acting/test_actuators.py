from collections.abc import Sequence
from dataclasses import replace

import pytest

from spanfit.queue.acting.print_actuator import Printing
from spanfit.queue.acting.seen import Seen, SeenJob
from spanfit.queue.acting.slurm_actuator import Slurm
from spanfit.queue.acting.slurm_commands import Site, slurm_commands
from spanfit.queue.state.tasks import Outcome, Task, TaskKind
from spanfit.topology.probe_slurm import Answer
from spanfit.topology.reading import Reservation
from tests.unit.queue.stores import GROUND, OPENED_S

SITE = Site(ground=GROUND, user="ann")
START = Task(kind=TaskKind.START, job_id="train-7", owner="ann", order=(3, 1, 2), reason="3 of 12 are free")
RESERVE = Task(kind=TaskKind.RESERVE, job_id="llm-1", owner="ann", order=(5, 4, 8), reason="keeps its nodes")


def lines(task: Task, slurm_id: str | None = None, *, is_reserved: bool = False) -> list[str]:
    return [" ".join(each.argv) for each in slurm_commands(task, SITE, slurm_id, is_reserved=is_reserved)]


def test_a_start_fixes_the_nodes_and_releases_the_job() -> None:
    assert lines(START, "12") == [
        "scontrol update JobId=12 ReqNodeList=n[01-03] StartTime=now",
        "scontrol release 12",
    ]


def test_a_job_known_by_name_only_is_its_owners() -> None:
    by_name = 'scontrol "$1" "$(squeue --noheader --format=%i --name="$2" --user="$3")" sh'
    assert lines(START) == [
        "scontrol update JobName=train-7 UserID=ann ReqNodeList=n[01-03] StartTime=now",
        f"sh -c {by_name} release train-7 ann",
    ]
    assert lines(replace(START, kind=TaskKind.HOLD)) == [f"sh -c {by_name} uhold train-7 ann"]
    assert lines(replace(START, kind=TaskKind.PREEMPT)) == [f"sh -c {by_name} requeuehold train-7 ann"]
    assert lines(replace(START, kind=TaskKind.ADMIT)) == [
        "scontrol update JobName=train-7 UserID=ann ReservationName=spanfit-train-7"
    ]


def test_a_job_whose_name_is_a_number_is_that_job_of_slurm() -> None:
    assert lines(replace(START, job_id="1201_3"))[1] == "scontrol release 1201_3"


def test_a_job_starts_inside_its_reservation() -> None:
    assert lines(START, "12", is_reserved=True)[0].endswith("ReservationName=spanfit-train-7")


def test_a_reservation_is_static_and_has_no_end() -> None:
    assert lines(RESERVE) == [
        "scontrol create reservation ReservationName=spanfit-llm-1 StartTime=now Duration=UNLIMITED Users=ann "
        "Nodes=n[04-05,08] Flags=STATIC_ALLOC,IGNORE_JOBS"
    ]


def test_a_reservation_that_is_there_gets_other_nodes() -> None:
    assert lines(RESERVE, is_reserved=True) == ["scontrol update ReservationName=spanfit-llm-1 Nodes=n[04-05,08]"]


@pytest.mark.parametrize(
    ("kind", "slurm_id", "line"),
    [
        (TaskKind.RELEASE, None, "scontrol delete ReservationName=spanfit-llm-1"),
        (TaskKind.PREEMPT, "12", "scontrol requeuehold 12"),
        (TaskKind.ADMIT, "12", "scontrol update JobId=12 ReservationName=spanfit-llm-1"),
        (TaskKind.HOLD, "12", "scontrol uhold 12"),
        (TaskKind.CANCEL, "12", "scancel 12"),
        (TaskKind.CANCEL, None, "scancel --name=llm-1 --user=ann"),
    ],
)
def test_the_other_commands(kind: TaskKind, slurm_id: str | None, line: str) -> None:
    assert lines(replace(RESERVE, kind=kind), slurm_id) == [line]


def test_what_takes_an_operator() -> None:
    def needs(task: Task) -> set[bool]:
        return {command.needs_operator for command in slurm_commands(task, SITE, "12", is_reserved=False)}

    assert needs(START) == {False}
    assert needs(replace(START, owner="bob")) == {True}
    assert needs(RESERVE) == {True}
    assert needs(replace(RESERVE, kind=TaskKind.RELEASE)) == {True}


def printing(reserved: Sequence[str] = ()) -> Printing:
    return Printing(SITE, lambda: {"train-7": "12"}, reserved)


def test_printed_commands_are_a_script_that_marks_what_an_administrator_runs() -> None:
    deed = printing().carry_out(RESERVE)
    assert deed.outcome is Outcome.TOLD
    comment, mark, command = deed.text.splitlines()
    assert comment == "# reserve llm-1 of ann: keeps its nodes"
    assert mark == "# as an administrator:"
    assert command.startswith("scontrol create reservation")
    assert "'Nodes=n[04-05,08]'" in command


def test_a_users_own_commands_are_not_marked() -> None:
    assert printing().carry_out(START).text.splitlines() == [
        "# start train-7 of ann: 3 of 12 are free",
        "scontrol update JobId=12 'ReqNodeList=n[01-03]' StartTime=now",
        "scontrol release 12",
    ]


def test_a_reason_of_several_lines_stays_a_comment() -> None:
    text = printing().carry_out(replace(START, reason="free\nrm -rf x")).text
    assert text.splitlines()[0] == "# start train-7 of ann: free rm -rf x"


def test_printing_remembers_what_it_told() -> None:
    actuator = printing()
    assert "create reservation" in actuator.carry_out(RESERVE).text
    assert "scontrol update ReservationName" in actuator.carry_out(RESERVE).text
    assert "delete" in actuator.carry_out(replace(RESERVE, kind=TaskKind.RELEASE)).text
    assert "create reservation" in actuator.carry_out(RESERVE).text
    assert "scontrol update ReservationName" in printing(["llm-1"]).carry_out(RESERVE).text


def seen_job(**more: object) -> SeenJob:
    fields: dict[str, object] = {
        "slurm_id": "12",
        "name": "train-7",
        "user": "ann",
        "account": "",
        "is_pending": True,
        "is_ending": False,
        "is_held": True,
        "nnodes": 3,
        "ncpus": 3,
        "ngpus": 24,
        "time_limit_s": None,
        "submitted_s": OPENED_S,
        "nodes": (),
    } | more
    return SeenJob(**fields)  # type: ignore[arg-type]


class Told:
    """Runs nothing, keeps the command lines, and fails where a word is in one."""

    def __init__(self, failing: str = "\0") -> None:
        self.lines: list[str] = []
        self._failing = failing

    def __call__(self, argv: tuple[str, ...]) -> Answer:
        self.lines.append(" ".join(argv))
        code, err = (1, "Invalid node") if self._failing in self.lines[-1] else (0, "")
        return Answer(argv=argv, code=code, out="", err=err)


def slurm(
    told: Told, *jobs: SeenJob, reserved: Sequence[str] = (), nodes: tuple[str, ...] = (), may_operate: bool = True
) -> Slurm:
    reservations = {name: Reservation(name=name, nodes=nodes, start="", end="", is_active=True) for name in reserved}
    seen = Seen(nodes={}, jobs=jobs, reservations=reservations)
    return Slurm(SITE, seen, lambda: {"train-7": "12"}, may_operate=may_operate, tell=told)


def test_slurm_is_told_to_start_a_job() -> None:
    told = Told()
    assert slurm(told, seen_job()).carry_out(START).outcome is Outcome.DONE
    assert told.lines == lines(START, "12")


def test_a_command_that_fails_ends_its_task_and_says_why() -> None:
    told = Told("update")
    deed = slurm(told, seen_job()).carry_out(START)
    assert deed.outcome is Outcome.FAILED
    assert deed.text.endswith("ended with 1: Invalid node")
    assert len(told.lines) == 1


def test_a_job_that_slurm_does_not_have_yet_waits_and_says_how_to_submit_it() -> None:
    deed = slurm(Told()).carry_out(START)
    assert deed.outcome is Outcome.PENDING
    assert "sbatch --hold --exclusive --comment=spanfit --job-name=train-7 --nodes=3 SCRIPT" in deed.text


@pytest.mark.parametrize(
    ("task", "job"),
    [
        (START, seen_job(is_pending=False, nodes=("n01",))),
        (replace(START, kind=TaskKind.PREEMPT), seen_job()),
        (replace(START, kind=TaskKind.PREEMPT), seen_job(slurm_id="99")),
        (replace(START, kind=TaskKind.HOLD), seen_job()),
        (replace(START, kind=TaskKind.CANCEL), seen_job(slurm_id="99")),
        (replace(START, kind=TaskKind.RELEASE), seen_job()),
        (replace(START, kind=TaskKind.ADMIT), seen_job()),
    ],
)
def test_what_is_so_already_is_done_without_a_command(task: Task, job: SeenJob) -> None:
    told = Told()
    deed = slurm(told, job).carry_out(task)
    assert (deed.outcome, told.lines) == (Outcome.DONE, [])


@pytest.mark.parametrize("kind", [TaskKind.START, TaskKind.PREEMPT, TaskKind.HOLD])
def test_a_job_that_is_leaving_its_nodes_is_let_go_first(kind: TaskKind) -> None:
    told = Told()
    leaving = seen_job(is_pending=False, is_ending=True, is_held=False)
    deed = slurm(told, leaving).carry_out(replace(START, kind=kind))
    assert (deed.outcome, deed.text, told.lines) == (Outcome.PENDING, "it is leaving its nodes", [])


@pytest.mark.parametrize(
    ("nodes", "outcome"), [(("n03", "n01", "n02"), Outcome.DONE), (("n01", "n02", "n04"), Outcome.TOLD)]
)
def test_a_reservation_that_an_administrator_made_is_not_told_again(nodes: tuple[str, ...], outcome: Outcome) -> None:
    told = Told()
    actuator = slurm(told, seen_job(), reserved=["spanfit-train-7"], nodes=nodes, may_operate=False)
    assert actuator.carry_out(replace(START, kind=TaskKind.RESERVE)).outcome is outcome
    assert told.lines == []


def test_a_job_that_slurm_put_back_by_itself_is_held_instead_of_requeued() -> None:
    told = Told()
    slurm(told, seen_job(is_held=False)).carry_out(replace(START, kind=TaskKind.PREEMPT))
    assert told.lines == ["scontrol uhold 12"]


def test_a_job_stopped_and_started_in_one_tick_is_both() -> None:
    told = Told()
    actuator = slurm(told, seen_job(is_pending=False, is_held=False, nodes=("n07", "n08", "n09")))
    actuator.carry_out(replace(START, kind=TaskKind.PREEMPT, order=(7, 8, 9)))
    actuator.carry_out(START)
    assert told.lines == ["scontrol requeuehold 12", *lines(START, "12")]


def test_without_an_operators_rights_reservations_are_handed_to_one() -> None:
    told = Told()
    actuator = slurm(told, seen_job(), may_operate=False)
    deed = actuator.carry_out(RESERVE)
    assert deed.outcome is Outcome.TOLD
    assert "# as an administrator:\nscontrol create reservation" in deed.text
    assert actuator.carry_out(replace(START, owner="bob")).outcome is Outcome.TOLD
    assert told.lines == []
    assert actuator.carry_out(START).outcome is Outcome.DONE


def test_a_reservation_is_used_only_if_slurm_has_it() -> None:
    told = Told()
    slurm(told, seen_job(), reserved=["spanfit-train-7"]).carry_out(START)
    assert "ReservationName=spanfit-train-7" in told.lines[0]
    told = Told()
    actuator = slurm(told, seen_job())
    actuator.carry_out(replace(RESERVE, job_id="train-7"))
    actuator.carry_out(START)
    assert "ReservationName=spanfit-train-7" in told.lines[1]
