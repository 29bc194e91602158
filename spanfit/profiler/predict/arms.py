"""The predicted step of each arm of a campaign's jobs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from spanfit.bench.case import BenchCase
from spanfit.bench.variants import parse_variant
from spanfit.profiler.predict.parameters import ParametersFile
from spanfit.profiler.predict.step import StepPrediction, StepPredictor, seated
from spanfit.topology.model import Cluster
from spanfit.workload.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmPrediction:
    """What a step of a job will take in an arm, on nodes in the order of the job's cells."""

    job: Job
    arm: str
    nodes: tuple[str, ...]
    prediction: StepPrediction


def predict_arms(
    cases: Iterable[BenchCase],
    node_names: Sequence[str],
    cluster: Cluster,
    fabric: ParametersFile,
    *,
    ngpus_per_node: int,
    ndraws: int,
    seed: int,
) -> Iterator[ArmPrediction]:
    """Yield the predicted step of each case that is a step alone; those beside noise or with limits of CTAs are not.

    Parameters
    ----------
    cases : iterable of BenchCase
        Of a campaign; their groups are places in ``node_names``.
    node_names : sequence of str
    cluster : Cluster
    fabric : ParametersFile
    ngpus_per_node, ndraws, seed : int

    Raises
    ------
    ConfigError
        If the compute of a job has no time.
    """
    predictors: dict[Job, StepPredictor] = {}
    for case in cases:
        job = case.step
        if job is None or not parse_variant(case.operation).is_plain:
            continue
        if job not in predictors:
            predictors[job] = StepPredictor(
                job, cluster, fabric, ngpus_per_node=ngpus_per_node, ndraws=ndraws, seed=seed
            )
        names = tuple(node_names[node] for node in case.groups[0])
        found = predictors[job].predict(seated(job, names, ngpus_per_node))
        yield ArmPrediction(job=job, arm=case.arm, nodes=names, prediction=found)
