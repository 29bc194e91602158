"""``spanfit testbed``: an emulated fat tree of network namespaces on this machine."""

from pathlib import Path

import click

from spanfit.cli.output import json_option, print_json, print_table, talk
from spanfit.units import format_link_rate, format_time, parse_link_rate


@click.group()
def testbed() -> None:
    """Bring up an emulated fat tree on this machine."""


@testbed.command(epilog="Example: spanfit testbed up examples/demo/testbed.toml")
@click.argument("file", metavar="TESTBED.toml", type=click.Path(path_type=Path))
def up(file: Path) -> None:
    """Bring up the testbed of a file; it stays until 'spanfit testbed down NAME'."""
    from spanfit.launch import testbed as beds

    bed = beds.up(beds.read_fabric(file), attached=False)
    talk(f"testbed {bed.name} is up with {len(bed.hosts)} hosts; end it with 'spanfit testbed down {bed.name}'")


@testbed.command(epilog="Example: spanfit testbed status demo")
@click.argument("name", required=False)
@json_option
def status(name: str | None, as_json: bool) -> None:
    """List the testbeds that are up, or show the hosts and links of one."""
    from spanfit.launch import testbed as beds

    if name is None:
        if as_json:
            print_json(beds.names())
        else:
            click.echo("\n".join(beds.names()) or "no testbed is up")
        return
    document = beds.ask(name, {"op": "status"})
    if as_json:
        print_json(document)
        return
    hosts = [
        [host["name"], ", ".join(host["addresses"]), host["leaf"], host["minipod"], str(host["pid"])]
        for host in document["hosts"]
    ]
    print_table(f"Hosts of {name}", ["host", "address", "leaf", "minipod", ">process"], hosts)
    print_table(
        f"Links of {name}", ["link", "class", "up to", ">rate", ">delay", ">loss"], map(_link_row, document["links"])
    )


def _link_row(link: dict[str, object]) -> list[str]:
    rate, delay, loss = link["rate_bits_per_s"], link["delay_s"], link["loss"]
    assert isinstance(delay, float) and isinstance(loss, float)
    shaped = format_link_rate(rate) if isinstance(rate, float) else "unshaped"
    return [
        str(link["name"]),
        str(link["class"]),
        str(link["to"]),
        shaped,
        format_time(delay) if delay else "",
        f"{100 * loss:g}%" if loss else "",
    ]


@testbed.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Example: spanfit testbed exec demo m0l0h0 -- ip addr",
)
@click.argument("name")
@click.argument("host")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec(name: str, host: str, command: tuple[str, ...]) -> None:  # noqa: A001
    """Run a command inside a host; its output and exit code are the command's."""
    import os

    from spanfit.launch import testbed as beds

    argv = beds.connect(name).host_argv(host, command)
    os.execv(argv[0], argv)  # noqa: S606


@testbed.command(epilog="Example: spanfit testbed rate demo minipod 100mbit")
@click.argument("name")
@click.argument("link")
@click.argument("rate")
def rate(name: str, link: str, rate: str) -> None:
    """Change the rate of a class of links (host, leaf, minipod) or of one link, such as m0, while it is up."""
    from spanfit.errors import ConfigError
    from spanfit.launch import testbed as beds

    try:
        bits_per_s = parse_link_rate(rate)
    except ValueError as error:
        raise ConfigError(f"RATE: {error}") from None
    beds.connect(name).set_rate(link, bits_per_s)


@testbed.command(epilog="Example: spanfit testbed down demo")
@click.argument("name")
def down(name: str) -> None:
    """End a testbed and everything that runs in it."""
    from spanfit.launch import testbed as beds

    beds.connect(name).down()
