import json
from pathlib import Path

from click.testing import CliRunner, Result

from spanfit.cli.workload import workload
from spanfit.errors import ConfigError, ExitCode

JOB = """
name = "small"
dp = 2
pp = 2
tp = 2
[step]
model = "tiny"
global_batch = 8
buckets = 2
flops_per_s = 1e12
"""


def ran(*arguments: str) -> Result:
    return CliRunner().invoke(workload, arguments)


def job_file(folder: Path, text: str = JOB) -> str:
    (folder / "job.toml").write_text(text)
    return str(folder / "job.toml")


def test_models_lists_what_a_job_may_name() -> None:
    shown = ran("models")
    assert shown.exit_code == 0
    for text in ("llama-3-70b", "70,553,706,496", "2 of 8", "Llama 3 70B configuration"):
        assert text in shown.stdout
    document = json.loads(ran("models", "--json").stdout)
    assert document["mixtral-8x7b"]["experts"]["top_k"] == 2
    assert document["gpt-2"]["computed"] == document["gpt-2"]["parameters"]


def test_show_puts_the_traffic_beside_the_volume_model(tmp_path: Path) -> None:
    shown = ran("show", job_file(tmp_path), "--check")
    assert shown.exit_code == 0
    for text in ("tiny on 8 ranks (dp 2, pp 2, tp 2; order", "4 microbatches of 1", "0-3", "4-7", "1.0000", "Eq. 12"):
        assert text in shown.stdout
    assert "checked 8 ranks" in shown.stderr
    document = json.loads(ran("show", job_file(tmp_path), "--json").stdout)
    assert document["traffic"].keys() == document["modelled_size_bytes"].keys() == {"dp", "pp", "tp"}
    assert document["traffic"]["pp"]["size_bytes"] == document["modelled_size_bytes"]["pp"] == 4 * 2 * 64 * 64 * 4


def test_show_lists_the_operations_of_a_rank(tmp_path: Path) -> None:
    shown = ran("show", job_file(tmp_path), "--rank", "7")
    for text in ("Rank 7, cp 0, dp 1, pp 1, tp 1", "receive", "tp: 6, 7", "dp: 5, 7", "dp of stage 1, bucket 1"):
        assert text in shown.stdout
    operations = json.loads(ran("show", job_file(tmp_path), "--rank", "7", "--json").stdout)["operations"]
    assert operations[0] == {
        "operation": "receive",
        "timer": {"name": "pp_comm", "stage": 1, "microbatch": 0, "direction": "forward"},
        "count": 2048,
        "dtype": "bfloat16",
        "peer": 3,
    }
    refused = ran("show", job_file(tmp_path), "--rank", "8")
    assert refused.exit_code == ExitCode.BAD_INPUT
    assert "job small has ranks 0 to 7" in refused.stderr


def test_show_refuses_a_job_without_a_step(tmp_path: Path) -> None:
    shown = ran("show", job_file(tmp_path, JOB.partition("[step]")[0]))
    assert isinstance(shown.exception, ConfigError)
