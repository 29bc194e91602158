"""The actuator that lets everything succeed and touches nothing: for trials without a cluster."""

from spanfit.queue.acting.deeds import Deed
from spanfit.queue.state.tasks import Outcome, Task


class Simulate:
    """Does nothing, and says that it is done."""

    def carry_out(self, task: Task) -> Deed:
        """Return that the task is done."""
        return Deed(task=task, outcome=Outcome.DONE, text=f"{task.kind} {task.job_id}: simulated")
