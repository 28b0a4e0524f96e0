"""The command group: lazy subcommands, suggestions, and one place where errors become exit codes."""

from __future__ import annotations

import difflib
import errno
import importlib
import sys
from typing import Any, NoReturn

import click

from graphwright.compiler.cli.console import Console
from graphwright.errors import CompileError, GraphwrightError

COMMANDS = {
    "check": "say what of a model is not supported, without compiling",
    "compile": "compile a model to one deployable file",
    "run": "run an artifact (or a model) on inputs",
    "bench": "time an artifact or a model",
    "refit": "give an artifact new weights, without compiling",
    "cache": "look into the cache of compiled kernels, or empty it",
    "inspect": "show what is inside an artifact or a model",
    "verify": "compare a model with a reference, and find what is wrong",
    "reduce": "take away from a failing model what its failure does not need",
    "explain": "say what an exit code or error means, and what to do",
    "viz": "show what the passes did, or how two graphs differ, in a page",
}
INTERRUPTED = 130


class Group(click.Group):
    """Imports a subcommand's module when it is used, so that `--help` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"graphwright.compiler.cli.{cmd_name}")
        return module.command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(COMMANDS)}"
            ctx.fail(f"no command is called {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def show_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        import graphwright

        click.echo(f"graphwright {graphwright.__version__}")
        ctx.exit()


@click.group(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 ok; 1 results differ; 2 usage or bad input; 3 unsupported model; "
    "4 compile failure; 5 artifact does not fit; 6 a downgrade was refused; 7 out of a resource.",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=show_version,
              help="Show the version.")  # fmt: skip
def graphwright() -> None:
    """A graph-level inference compiler: ONNX models to one deployable artifact."""


def run_command_line(arguments: list[str] | None = None) -> NoReturn:
    """Runs a command line (sys.argv's by default) and exits."""
    sys.exit(execute(sys.argv[1:] if arguments is None else arguments))


def execute(arguments: list[str]) -> int:
    """Runs a command line; the exit code.  Never raises, never prints a traceback without -vv."""
    verbose = sum(_loudness(a) for a in arguments)
    try:
        result: Any = graphwright.main(arguments, prog_name="graphwright", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        if isinstance(error, click.UsageError) and error.ctx is not None:
            click.echo(f"error: {error.format_message()}", err=True)
            click.echo(f"see: {error.ctx.command_path} --help", err=True)
        else:
            click.echo(f"error: {error.format_message()}", err=True)
        return 2
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except Exception as error:
        return report_failure(error, arguments, verbose)


def _loudness(argument: str) -> int:
    if argument == "--verbose":
        return 1
    plain = argument.startswith("-v") and set(argument[1:]) == {"v"}
    return len(argument) - 1 if plain else 0


def report_failure(error: Exception, arguments: list[str], verbose: int) -> int:
    """One clear message; for our own faults also a bundle to reproduce them."""
    console = Console(verbose)
    if verbose >= 2:
        console.words.print_exception(show_locals=False)
    if isinstance(error, BrokenPipeError):
        # Whoever read our output has seen enough; closing stderr quietly is the custom.
        sys.stderr.close()
        return 0
    if isinstance(error, GraphwrightError) and not isinstance(error, CompileError):
        console.error(str(error))
        return error.exit_code
    if isinstance(error, MemoryError):
        console.error("out of memory")
        return 7
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        console.error(f"{error.filename or 'a file'} cannot be written: {error.strerror}")
        return 7
    if isinstance(error, OSError) and error.filename is not None:
        console.error(f"{error.filename}: {error.strerror}")
        return 2
    from graphwright.compiler.cli.bundle import write_bundle

    if isinstance(error, CompileError):
        console.error(str(error))
    else:
        console.error(f"this is a fault of graphwright: {type(error).__name__}: {error}")
    bundle = write_bundle(error, arguments)
    if bundle is not None:
        console.say(
            f"everything needed to reproduce it is in {bundle} (the command, options, versions, "
            "traceback, model and graph: look before you share it)"
        )
    if verbose < 2:
        console.say("-vv shows the traceback")
    return 4
