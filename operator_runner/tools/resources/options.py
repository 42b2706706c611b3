"""Arguments and options that the commands for resources share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from operator_runner.core.durations import DURATION_HINT, parse_duration
from operator_runner.core.errors import ApiError, ConfigError
from operator_runner.tools.kubeconfig import kubeconfig_options
from operator_runner.tools.resources.output import OutputFormat
from operator_runner.tools.resources.resource_name import ResourceName

_Result = TypeVar("_Result")
_Function = TypeVar("_Function", bound=Callable[..., Any])


class NameType(click.ParamType[ResourceName]):
    """An argument KIND/NAME."""

    name = "KIND/NAME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> ResourceName:
        """Return the name; end with a usage error for an invalid one."""
        try:
            return value if isinstance(value, ResourceName) else ResourceName.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return resources of the cluster that begin with `incomplete`."""
        del param
        from operator_runner.tools.resources.completion import complete_names  # noqa: PLC0415

        return complete_names(ctx, incomplete)


class KindOrNameType(click.ParamType[str]):
    """An argument KIND or KIND/NAME."""

    name = "KIND"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text; end with a usage error for an invalid one."""
        if "/" in value:
            NameType().convert(value, param, ctx)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return kinds or resources of the cluster that begin with `incomplete`."""
        del param
        from operator_runner.tools.resources.completion import complete_kinds  # noqa: PLC0415

        return complete_kinds(ctx, incomplete)


def _complete_namespaces(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from operator_runner.tools.resources import completion  # noqa: PLC0415 (slow import)

    return completion.complete_namespaces(ctx, incomplete)


class DurationType(click.ParamType[timedelta]):
    """A Go duration: `90s`, `5m`."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Return the duration; end with a usage error for an invalid one."""
        try:
            duration = value if isinstance(value, timedelta) else parse_duration(value)
        except ValueError as error:
            self.fail(f"{error}; {DURATION_HINT}", param, ctx)
        if duration < timedelta(0):
            self.fail(f"{value} is negative; {DURATION_HINT}", param, ctx)
        return duration


def _output_option(
    *formats: OutputFormat, default: str = "a table"
) -> Callable[[_Function], _Function]:
    return click.option(
        "-o",
        "--output",
        type=click.Choice([each.value for each in formats]),
        default=None,
        callback=lambda _context, _parameter, value: OutputFormat(value or ""),
        help=f"Format.  [default: {default}]",
    )


output_option = _output_option(OutputFormat.WIDE, OutputFormat.JSON, OutputFormat.YAML)
list_output_option = _output_option(
    OutputFormat.WIDE, OutputFormat.NAME, OutputFormat.JSON, OutputFormat.YAML
)
data_output_option = _output_option(OutputFormat.JSON, OutputFormat.YAML)
diff_output_option = _output_option(OutputFormat.JSON, OutputFormat.YAML, default="a diff")


def _only_one(
    _context: click.Context, _parameter: click.Parameter, values: Sequence[Path]
) -> Path | None:
    """Return the one value. Raises click.BadParameter for several: `runs report` takes them."""
    if len(values) > 1:
        raise click.BadParameter("this command reads one work dir; write --work-dir once")
    return values[0] if values else None


def one_work_dir_option(text: str) -> Callable[[_Function], _Function]:
    """Return the option `--work-dir` with this help."""
    return click.option(
        "--work-dir",
        multiple=True,
        callback=_only_one,
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help=text,
    )


work_dir_option = one_work_dir_option(
    "Read from the operator with this work dir.  [default: operators of the cluster]"
)


def namespace_option(text: str) -> Callable[[_Function], _Function]:
    """Return the option `--namespace` with this help."""
    return click.option(
        "-n", "--namespace", default=None, shell_complete=_complete_namespaces, help=text
    )


def cluster_options(function: _Function) -> _Function:
    """Add `--namespace`, `--kubeconfig` and `--context`."""
    function = kubeconfig_options(function)
    return namespace_option("Namespace.  [default: that of the kubeconfig]")(function)


def complete(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine; end with an error message and exit status 1 if the cluster refuses it."""
    try:
        return asyncio.run(work)
    except BrokenPipeError:
        # The reader has ended, such as `head`; click ends without a message.
        raise
    except OSError as error:
        raise click.ClickException(_file_problem(error)) from error
    except (ApiError, ConfigError) as error:
        raise click.ClickException(str(error)) from error


def _file_problem(error: OSError) -> str:
    """Return `out.html: No such file or directory`; other errors have no file."""
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)
