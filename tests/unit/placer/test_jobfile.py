from dataclasses import replace
from pathlib import Path

import pytest

from spanfit.errors import ConfigError
from spanfit.placer.jobfile import read_job
from spanfit.workload.layout import MEGATRON


def write(folder: Path, text: str) -> Path:
    path = folder / "job.toml"
    path.write_text(text)
    return path


def test_a_job_file_gives_a_job(tmp_path: Path) -> None:
    job = read_job(write(tmp_path, 'name = "moe"\ndp = 16\npp = 4\ntp = 2\nep = 8\ncommand = ["train.py"]\n'))
    layout = job.layout
    assert (job.name, job.ngpus_per_node, job.gpu_model, job.command) == ("moe", 8, None, ("train.py",))
    assert (layout.dp, layout.pp, layout.tp, layout.cp, layout.ep, layout.order) == (16, 4, 2, 1, 8, MEGATRON)


def test_a_step_adds_what_edges_carry_and_is_checked(tmp_path: Path) -> None:
    step = 'name = "x"\ndp = 2\npp = 2\ntp = 8\n[step]\nmodel = "gpt-7b"\nglobal_batch = '
    with_step = read_job(write(tmp_path, f"{step}8\n"))
    assert replace(with_step, edges=None) == read_job(write(tmp_path, step.partition("[step]")[0]))
    with pytest.raises(ConfigError, match=r"job.toml: step\.global_batch: found 0"):
        read_job(write(tmp_path, f"{step}0\n"))


def test_all_wrong_keys_are_reported_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, 'name = "x"\ndp = 0\ntp = "8"\nstages = 4\ncommand = "train.py"\n')
    with pytest.raises(ConfigError) as caught:
        read_job(path)
    lines = str(caught.value).splitlines()
    assert all(line.startswith(f"{path}: ") for line in lines)
    assert sorted(line.removeprefix(f"{path}: ").partition(":")[0] for line in lines) == [
        "command",
        "dp",
        "pp",
        "stages",
        "tp",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dp = 3\npp = 2\ntp = 4", "dp is 3; expected a multiple of 2"),
        ("dp = 2\npp = 2\ntp = 3", "tp x cp is 3; expected a divisor of the 8 GPUs"),
        ("dp = 4\npp = 2\nep = 3\ntp = 8", "ep is 3; expected a divisor of dp"),
        ('dp = 4\npp = 2\ntp = 8\norder = "dp-tp"', "expected each of tp, cp, ep, dp, pp once"),
        ('dp = 4\npp = 2\ntp = 8\norder = "pp-tp-cp-ep-dp"', "puts cells"),
    ],
)
def test_degrees_that_give_no_grid_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_job(write(tmp_path, f'name = "x"\n{text}\n'))


def test_a_step_says_what_the_edges_of_rings_and_chains_carry(tmp_path: Path) -> None:
    text = 'name = "j"\ndp = 4\npp = 2\ntp = 8\n[step]\nmodel = "gpt-7b"\nglobal_batch = 8\n'
    spec = read_job(write(tmp_path, text))
    assert spec.edges is not None
    assert spec.edges.ring_bytes > 0 < spec.edges.chain_bytes
    assert read_job(write(tmp_path, text.replace("pp = 2", "pp = 1"))).edges is None
