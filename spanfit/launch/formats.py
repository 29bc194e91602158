"""The names of all launch files; nothing else, so that help texts can list them at no cost."""

from enum import StrEnum


class LaunchFormat(StrEnum):
    """What a placement can be written as."""

    HOSTFILE = "hostfile"
    RANKFILE = "rankfile"
    SEQFILE = "seqfile"
    MPICH = "mpich"
    TORCHRUN = "torchrun"
    SLURM = "slurm"
    JOBSET = "jobset"
    INDEXED_JOB = "indexed-job"
    INDEXED_JOB_PINNER = "indexed-job-pinner"
    PYTORCHJOB = "pytorchjob"
    PYTORCHJOB_PINNER = "pytorchjob-pinner"
    MEGATRON = "megatron"
    DEEPSPEED = "deepspeed"
    TORCHTITAN = "torchtitan"
