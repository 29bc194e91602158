"""``spanfit queue``: jobs that wait, nodes reserved for those announced, and what is decided about both."""

import click

from spanfit.cli.queue_advise import advise
from spanfit.cli.queue_ground import check, down, init, rules, up
from spanfit.cli.queue_jobs import announce, arrived, cancel, finished, submit
from spanfit.cli.queue_show import list_jobs, nodes, plan, why
from spanfit.cli.queue_tick import tick


@click.group(epilog="Example: spanfit queue init cluster.toml")
def queue() -> None:
    """Queue jobs, reserve nodes for announced ones, and say why each waits."""


for command in (
    advise,
    announce,
    arrived,
    cancel,
    check,
    down,
    finished,
    init,
    list_jobs,
    nodes,
    plan,
    rules,
    submit,
    tick,
    up,
    why,
):
    queue.add_command(command)
