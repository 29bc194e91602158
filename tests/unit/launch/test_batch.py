import shlex
import subprocess

import pytest

from spanfit.launch.batch import BatchRequest, QueuedJob, parse_squeue, render_batch


def request(
    name: str = "spanfit-a",
    nodes: tuple[str, ...] = ("n2", "n1"),
    folder: str = "/data/runs/a",
    options: tuple[str, ...] = (),
    time_limit_s: float | None = None,
) -> BatchRequest:
    return BatchRequest(
        name=name,
        node_names=nodes,
        command=("spanfit", "it's"),
        folder=folder,
        time_limit_s=time_limit_s,
        options=options,
    )


def test_the_script_names_its_nodes_and_hands_the_shell_over() -> None:
    assert render_batch(request(options=("--partition=batch",), time_limit_s=61)) == (
        "#!/bin/sh\n"
        "#SBATCH --job-name=spanfit-a\n"
        "#SBATCH --nodes=2\n"
        "#SBATCH --nodelist=n[1-2]\n"
        "#SBATCH --exclusive\n"
        "#SBATCH --chdir=/data/runs/a\n"
        "#SBATCH --output=/data/runs/a/slurm-%j.out\n"
        "#SBATCH --signal=B:INT@60\n"
        "#SBATCH --time=2\n"
        "#SBATCH --partition=batch\n"
        "set -eu\n"
        """exec spanfit 'it'"'"'s'\n"""
    )


def test_the_command_reaches_the_shell_as_it_is() -> None:
    hostile = ("printf", "%s|", "$(id)", "a b", "'\"", "x\ny")
    text = render_batch(
        BatchRequest(name="a", node_names=("n1",), command=hostile, folder="/data", time_limit_s=None, options=())
    )
    assert subprocess.run(["sh"], input=text, capture_output=True, text=True, check=True).stdout == "".join(
        f"{part}|" for part in hostile[2:]
    )
    assert shlex.split(text.splitlines()[-2] + "\n" + text.splitlines()[-1])[1:] == list(hostile)


@pytest.mark.parametrize("bad", ["a b", 'a"b', "a'b", "a\nb", "a%jb", "a#b", "a\\b"])
def test_what_a_line_of_sbatch_cannot_carry_is_refused_all_at_once(bad: str) -> None:
    with pytest.raises(ValueError, match="cannot carry") as caught:
        render_batch(request(name=f"{bad}!", nodes=(f"{bad}!",), folder=bad, options=(bad,)))
    assert len(str(caught.value).splitlines()) == 4


def test_squeue_is_read_and_said_in_words() -> None:
    text = "12|PENDING|Resources|N/A\n13|RUNNING|None|2026-12-01T10:00:00\nnoise\n"
    waiting, running = parse_squeue(text)
    assert waiting == QueuedJob(job_id="12", state="PENDING", reason="Resources")
    assert waiting.words() == "job 12 is pending (Resources)"
    assert running.words() == "job 13 is running, started 2026-12-01T10:00:00"
