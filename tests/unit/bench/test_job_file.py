from pathlib import Path

import pytest

from spanfit.bench.job_file import read_models, read_training_job
from spanfit.errors import ConfigError
from spanfit.workload.dtypes import Dtype
from spanfit.workload.schedules import Schedule

JOB = """
name = "job"
dp = 2
pp = 2
[step]
model = "tiny"
global_batch = 8
"""
MODEL = """
[mine]
source = "here"
layers = 2
hidden = 8
mlp = 16
heads = 2
kv_heads = 2
head_width = 4
vocabulary = 10
sequence = 4
gated = false
tied = false
positions = false
biases = false
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "file.toml"
    file.write_text(text)
    return file


def refused(path: Path, read: object = read_models) -> str:
    assert callable(read)
    with pytest.raises(ConfigError) as error:
        read(path)
    return str(error.value)


def test_a_job_file_gives_a_training_job(tmp_path: Path) -> None:
    job = read_training_job(written(tmp_path, JOB + 'dtype = "float16"\nschedule = "gpipe"\n'))
    assert (job.name, job.model.name, job.nmicrobatches) == ("job", "tiny", 4)
    assert (job.dtype, job.gradient_dtype, job.schedule) == (Dtype.FLOAT16, Dtype.FLOAT16, Schedule.GPIPE)


def test_models_of_a_file_join_the_others_and_come_before_them(tmp_path: Path) -> None:
    models = read_models(written(tmp_path, MODEL + MODEL.replace("mine", "tiny")))
    assert models.keys() == {*read_models(), "mine"}
    assert models["tiny"].layers == 2 != read_models()["tiny"].layers
    (tmp_path / "job.toml").write_text(JOB.replace('"tiny"', '"mine"\nmodels = "file.toml"'))
    assert read_training_job(tmp_path / "job.toml").model == models["mine"]


def test_defect_6_missing_and_empty_fields_are_errors_that_name_file_and_field(tmp_path: Path) -> None:
    broken = MODEL.replace("layers = 2\n", "").replace("hidden = 8", 'hidden = ""')
    file = written(tmp_path, broken + MODEL.replace("mine", "other").replace("heads = 2", "heads = 0", 1))
    assert refused(file).splitlines() == [
        f"{file}: mine.layers: missing; this key is required",
        f'{file}: mine.hidden: found "", expected a valid integer',
        f"{file}: other: heads: found 0, expected at least 1",
    ]
    file = written(tmp_path, MODEL.replace('"here"', '""') + 'name = "x"\n')
    assert refused(file) == f"{file}: mine.name: unknown key; a model is named by its table"


def test_defect_6_a_mixture_without_its_experts_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, MODEL + "[mine.experts]\nnumber = 4\ntop_k = 2\n")
    assert refused(file).splitlines() == [
        f"{file}: mine.experts.{key}: missing; this key is required" for key in ("mlp", "shared", "dense_layers")
    ]
    file = written(tmp_path, MODEL + "parameters = 9000\n")
    assert "mine: parameters: found 9000, but the shapes give 1224" in refused(file)
    assert refused(file).endswith("a mixture of experts needs its experts table")
    file = written(tmp_path, MODEL + "[mine.experts]\nnumber = 1\ntop_k = 2\nmlp = 4\nshared = 0\ndense_layers = 0\n")
    assert "experts.top_k: found 2, expected at most the 1 experts" in refused(file)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[step]", "[stop]"), "stop: unknown key"),
        (('"tiny"', '"huge"'), "step.model: found 'huge', expected one of deepseek-v3, gpt-14b"),
        (("dp = 2", "dp = 3"), "global_batch: found 8, expected a multiple of microbatch x dp = 1 x 3 = 3"),
        (("[step]", "[step]\ndtype = 'float'"), "step.dtype: found \"float\", expected 'float32'"),
        (("[step]", "[step]\ncompute = 'torch'"), "compute: found torch, expected products, wait or none"),
        (("pp = 2", "pp = 2\norder = 'tp'"), "order is 'tp'; expected each of tp, cp, ep, dp, pp once"),
        (('[step]\nmodel = "tiny"\nglobal_batch = 8', ""), "step: missing; what a step does needs a [step] table"),
    ],
)
def test_job_files_that_describe_no_step_are_refused(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    assert message in refused(written(tmp_path, JOB.replace(*change)), read_training_job)
