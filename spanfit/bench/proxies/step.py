"""A DP + PP training step without its model: the bytes, the order and the waiting of the real one."""

import time

import torch
import torch.distributed as dist

from spanfit.workload.step import ComputeMode, OperationKind, StepJob, plan_step

_RECEIVES = {
    OperationKind.RECEIVE_ACTIVATION: -1,
    OperationKind.RECEIVE_GRADIENT: +1,
}
_SENDS = {OperationKind.SEND_ACTIVATION: +1, OperationKind.SEND_GRADIENT: -1}


class StepProxy:
    """One rank's part in a step of a job whose grid is laid over the world.

    Parameters
    ----------
    cells : tuple of int
        World rank of each cell of the grid, row by row; this process is one of them.
    dp_group : ProcessGroup or None
        Communicator of this rank's column, in row order; None where dp is 1.
    forward, backward : ProcessGroup
        Communicators of activations and of their gradients, kept apart so that neither waits for the other.
    device : torch.device
        On GPUs receives are posted when they are needed, since operations of a communicator run in the order posted;
        on CPUs they are all posted at the start.
    """

    def __init__(
        self,
        job: StepJob,
        cells: tuple[int, ...],
        dp_group: dist.ProcessGroup | None,
        forward: dist.ProcessGroup,
        backward: dist.ProcessGroup,
        device: torch.device,
    ) -> None:
        self.job = job
        self.row, self.stage = divmod(cells.index(dist.get_rank()), job.pp)
        self.plan = plan_step(job, self.stage)
        self.peers = {
            offset: cells[self.row * job.pp + self.stage + offset]
            for offset in (-1, +1)
            if 0 <= self.stage + offset < job.pp
        }
        self.groups = {
            OperationKind.RECEIVE_ACTIVATION: forward,
            OperationKind.SEND_ACTIVATION: forward,
            OperationKind.RECEIVE_GRADIENT: backward,
            OperationKind.SEND_GRADIENT: backward,
        }
        self.dp_group = dp_group
        self.is_gpu = device.type == "cuda"
        self.gradients = torch.ones(max(1, job.gradient_bytes // 4), device=device)
        self.buffers = {
            (operation.kind, operation.microbatch): torch.ones(max(1, job.activation_bytes // 4), device=device)
            for operation in self.plan
            if operation.kind in self.groups
        }

    def run(self) -> None:
        """Run one step to its end on this rank."""
        receives: dict[tuple[OperationKind, int], dist.Work] = {}
        if not self.is_gpu:
            for operation in self.plan:
                if operation.kind in _RECEIVES:
                    receives[operation.kind, operation.microbatch] = self._receive(operation.kind, operation.microbatch)
        sends: list[dist.Work] = []
        for operation in self.plan:
            if operation.kind in _RECEIVES:
                key = (operation.kind, operation.microbatch)
                self._finish(receives[key] if key in receives else self._receive(*key))
            elif operation.kind in _SENDS:
                sends.append(self._send(operation.kind, operation.microbatch))
            elif operation.kind is OperationKind.REDUCE_GRADIENTS:
                dist.all_reduce(self.gradients, group=self.dp_group)
            else:
                self._compute(operation.kind)
        for work in sends:
            work.wait()

    def _receive(self, kind: OperationKind, microbatch: int) -> dist.Work:
        tensor, peer = self.buffers[kind, microbatch], self.peers[_RECEIVES[kind]]
        return _started(dist.irecv(tensor, peer, group=self.groups[kind], tag=microbatch))

    def _send(self, kind: OperationKind, microbatch: int) -> dist.Work:
        tensor, peer = self.buffers[kind, microbatch], self.peers[_SENDS[kind]]
        return _started(dist.isend(tensor, peer, group=self.groups[kind], tag=microbatch))

    def _finish(self, work: dist.Work) -> None:
        work.wait()
        if self.is_gpu:
            # wait() holds back the stream only; the calibrated wait runs on the host.
            torch.cuda.current_stream().synchronize()

    def _compute(self, kind: OperationKind) -> None:
        if self.job.compute is ComputeMode.WAIT:
            time.sleep(self.job.forward_s if kind is OperationKind.FORWARD else self.job.backward_s)


def _started(work: dist.Work | None) -> dist.Work:
    assert work is not None, "this rank belongs to the group"
    return work


def columns(job: StepJob, cells: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the world ranks of each DP group (column of the grid), in row order."""
    return tuple(cells[stage :: job.pp] for stage in range(job.pp))
