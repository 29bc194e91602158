"""What a job moves through each node in a step, and the two ratios by which the paper matches jobs."""

from spanfit.weights.model import Volumes
from spanfit.workload.job import Job, StepJob, TrainingJob
from spanfit.workload.program import Axis
from spanfit.workload.traffic import boundary_bytes, gradient_bytes


def node_bytes(job: Job, ngpus_per_node: int) -> tuple[float, float]:
    """Return the bytes that a node of so many ranks reduces, and those over one boundary of stages, in a step."""
    v_d, v_p = gradient_bytes(job), boundary_bytes(job)
    return float(v_d * _dp_groups(job, ngpus_per_node)), float(v_p * ngpus_per_node)


def lack_of_volumes(job: Job) -> str:
    """Return why a job has no ratio of volumes, "" where it has."""
    if not boundary_bytes(job):
        return "sends no activations, so a ratio of DP to PP volume does not exist"
    return "" if gradient_bytes(job) else "reduces no gradients, so a ratio of DP to PP volume means nothing"


def volumes_of(job: Job, ngpus_per_node: int) -> Volumes:
    """Return the volumes of a job whose nodes hold so many ranks; ValueError where it moves bytes of one kind only.

    Notes
    -----
    r1 and r2 are the paper's (section 5.2 of arXiv 2509.15940) with volumes in bytes of a rank and step. A job that is
    known by its volumes says neither its weights nor its sequences: a microbatch counts as one sequence there, and
    weights as many bytes as gradients. A model whose messages were made smaller for a slow fabric keeps its own r1.
    """
    v_d, v_p = gradient_bytes(job), boundary_bytes(job)
    if lacking := lack_of_volumes(job):
        raise ValueError(f"job {job.name} {lacking}")
    microbatch, v_w, divisor = _weights(job)
    dp_bytes, pp_bytes = node_bytes(job, ngpus_per_node)
    return Volumes(
        dp_bytes=dp_bytes,
        pp_bytes=pp_bytes,
        r1=microbatch * v_w / (divisor * (v_d + v_p)),
        r2=v_d / v_p,
    )


def _dp_groups(job: Job, ngpus_per_node: int) -> int:
    """Return the DP groups that the ranks of a node belong to: ranks of one group send one another's sum once."""
    if isinstance(job, StepJob):
        return ngpus_per_node
    return len({job.group(Axis.DP, rank) for rank in range(ngpus_per_node)})


def _weights(job: Job) -> tuple[int, float, int]:
    """Return the sequences of a microbatch, the bytes of a rank's weights and what divides the job's messages."""
    if isinstance(job, StepJob):
        return 1, job.gradient_bytes, 1
    return job.microbatch, max(_stage_bytes(job, rank) for rank in range(job.layout.pp)), job.message_divisor


def _stage_bytes(job: TrainingJob, pp_rank: int) -> float:
    layers = [layer for stage in range(pp_rank, job.nstages, job.layout.pp) for layer in job.layers(stage)]
    weights = [job.model.weights(layer) for layer in layers]
    count = sum(each.non_expert + each.expert / job.layout.ep for each in weights)
    return count / job.layout.tp * job.dtype.itemsize
