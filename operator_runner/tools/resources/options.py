"""Arguments and options that the commands for resources share, and their completion in a shell.

Kinds, names and namespaces are completed from the cluster of the command line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
from click.shell_completion import CompletionItem

from operator_runner.core.durations import DURATION_HINT, parse_duration
from operator_runner.core.errors import ApiError, ConfigError, OperatorRunnerError
from operator_runner.tools.kubeconfig import kubeconfig_of, kubeconfig_options
from operator_runner.tools.resources.output import OutputFormat

if TYPE_CHECKING:
    from operator_runner.tools.resources.cluster import ClusterView


class ResourceName(NamedTuple):
    """A resource as a user names it: `pages/page-sample`."""

    kind: str
    name: str

    @classmethod
    def parse(cls, text: str) -> ResourceName:
        """Split KIND/NAME. Raises ValueError."""
        kind, _, name = text.partition("/")
        if not kind or not name or "/" in name:
            raise ValueError(f"invalid resource {text!r}: write KIND/NAME, such as pages/home")
        return cls(kind, name)


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
        return complete_kinds(ctx, incomplete)


def _complete_namespaces(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return complete_namespaces(ctx, incomplete)


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


work_dir_option = click.option(
    "--work-dir",
    default=None,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Read from the operator with this work dir.  [default: operators of the cluster]",
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


_TIMEOUT_SECONDS = 10.0
"""A shell waits for its completions; without an answer there are none."""
_Item = TypeVar("_Item")


def complete_kinds(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the kinds of CRDs that begin with `incomplete`, and `KIND/NAME` if it is one kind."""
    kinds = [] if "/" in incomplete else _matching(read_cluster(context, _kinds), incomplete)
    names = [] if len(kinds) > 1 else complete_names(context, incomplete)
    return [*map(CompletionItem, kinds), *names]


def complete_names(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return `KIND/NAME` of the resources that begin with `incomplete`.

    As long as more than one kind is possible, their names are returned, with the slash.
    """
    kind, slash, _ = incomplete.partition("/")
    if not slash:
        possible = _matching(read_cluster(context, _kinds), incomplete)
        if len(possible) != 1:
            return [CompletionItem(f"{each}/") for each in possible]
        kind = possible[0]

    async def read(cluster: ClusterView) -> list[str]:
        from operator_runner.tools.resources import listing  # noqa: PLC0415 (slow import)

        found = listing.objects(cluster.api, cluster.resource(kind), cluster.namespace)
        return [f"{kind}/{ref.name}" async for ref, _ in found]

    names = read_cluster(context, read)
    return [CompletionItem(each) for each in (_matching(names, incomplete) if slash else names)]


def complete_namespaces(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the namespaces that begin with `incomplete`."""

    async def read(cluster: ClusterView) -> list[str]:
        from operator_runner.kube.api import list_pages  # noqa: PLC0415 (slow import)

        pages = list_pages(cluster.api, "/api/v1/namespaces")
        return [each["metadata"]["name"] async for page in pages for each in page["items"]]

    return [CompletionItem(each) for each in _matching(read_cluster(context, read), incomplete)]


async def _kinds(cluster: ClusterView) -> list[str]:
    # Where groups share a kind, its plural alone is that of the first group.
    return sorted(
        f"{each.plural}.{each.gvk.group}" if cluster.is_ambiguous(each.gvk.kind) else each.plural
        for each in cluster.custom_kinds
    )


def _matching(values: list[str], incomplete: str) -> list[str]:
    return [each for each in values if each.startswith(incomplete)]


def read_cluster(
    context: click.Context, read: Callable[[ClusterView], Awaitable[list[_Item]]]
) -> list[_Item]:
    """Return what is read from the cluster of the command line; nothing on errors."""
    # Imported here because it is slow, and before the timeout begins.
    from operator_runner.tools.resources.cluster import open_cluster  # noqa: PLC0415

    async def run() -> list[_Item]:
        async with (
            asyncio.timeout(_TIMEOUT_SECONDS),
            open_cluster(kubeconfig_of(context), context.params.get("namespace")) as cluster,
        ):
            return await read(cluster)

    try:
        return asyncio.run(run())
    except (OperatorRunnerError, OSError, TimeoutError):
        return []
