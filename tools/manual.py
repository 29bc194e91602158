"""Print the manual of every command, made from the help texts; `make docs` writes it to docs/cli.md."""

from collections.abc import Iterator

import click

from spanfit.cli.main import spanfit

HEAD = """# Commands

Made from the help texts by `make docs`; a test keeps it true. Data go to stdout, talk to stderr. Exit codes: 0 good,
1 a finding, 2 a wrong command or file, 3 infeasible, 4 a launch failed, 5 timed out, 70 an internal error, and 130
interrupted.
"""


def render_manual() -> str:
    """Return the manual as Markdown."""
    return HEAD + "".join(_render(spanfit, "spanfit", None))


def _render(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent, terminal_width=100, max_content_width=100)
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield from _render(found, child, context)
        return
    yield f"\n## `{context.command_path}`\n\n```\n{command.get_help(context)}\n```\n"


if __name__ == "__main__":
    print(render_manual(), end="")
