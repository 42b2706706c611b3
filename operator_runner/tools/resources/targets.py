"""Resources that a command acts on, and the result of each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from operator_runner.core.errors import ConfigError, Forbidden, NotFound
from operator_runner.core.model import Json, ObjectRef
from operator_runner.core.texts import printable
from operator_runner.tools.kubeconfig import Kubeconfig
from operator_runner.tools.resources.options import (
    KindOrNameType,
    ResourceName,
    cluster_options,
    data_output_option,
)
from operator_runner.tools.resources.output import OutputFormat, print_data

if TYPE_CHECKING:
    from operator_runner.tools.resources.cluster import ClusterView, NamedResource

_Function = TypeVar("_Function", bound=Callable[..., Any])


def target_options(function: _Function) -> _Function:
    """Add the arguments and options of `Targets`, and `--output`."""
    for option in (
        data_output_option,
        click.option(
            "-A",
            "--all-namespaces",
            is_flag=True,
            help="All resources of each KIND, in all namespaces.",
        ),
        click.option(
            "--all", "all_", is_flag=True, help="All resources of each KIND, in the namespace."
        ),
        cluster_options,
        click.argument(
            "wanted",
            metavar="KIND/NAME... | KIND...",
            nargs=-1,
            required=True,
            type=KindOrNameType(),
        ),
    ):
        function = option(function)
    return function


def check_selection(text: str, *, all_: bool, all_namespaces: bool) -> None:
    """Raise click.UsageError for KIND/NAME with an option for many, or KIND without one."""
    kind, slash, _ = text.partition("/")
    if slash and all_namespaces:
        raise click.UsageError("KIND/NAME excludes --all-namespaces; use --namespace")
    if slash and all_:
        raise click.UsageError(f"KIND/NAME excludes --all; omit the name: {kind} --all")
    if not slash and not (all_ or all_namespaces):
        raise click.UsageError(
            f"{kind} is a kind: write {kind}/NAME, or --all for all of its resources"
        )


@dataclass(frozen=True, slots=True)
class Targets:
    """The resources of a command line: named ones, or all of kinds."""

    wanted: Sequence[str]
    namespace: str | None
    kubeconfig: Kubeconfig
    all_: bool = False
    all_namespaces: bool = False

    def __post_init__(self) -> None:
        """Check the combination. Raises click.UsageError."""
        for text in self.wanted:
            check_selection(text, all_=self.all_, all_namespaces=self.all_namespaces)

    @property
    def are_all(self) -> bool:
        """Whether they are all resources of kinds."""
        return self.all_ or self.all_namespaces

    async def find(self, cluster: ClusterView) -> AsyncIterator[NamedResource]:
        """Yield the resources; named ones may not exist. Raises ApiError and ConfigError."""
        # The API client is slow to import, and --help does not need it.
        from operator_runner.tools.resources.cluster import NamedResource  # noqa: PLC0415
        from operator_runner.tools.resources.listing import objects  # noqa: PLC0415

        for text in dict.fromkeys(self.wanted):
            if not self.are_all:
                yield cluster.find(*ResourceName.parse(text))
                continue
            kind = cluster.resource(text)
            namespace = None if self.all_namespaces else cluster.namespace
            async for ref, _ in objects(cluster.api, kind, namespace):
                yield NamedResource(kind, ref)


@dataclass(slots=True)
class Results:
    """The result of a command for each resource: lines at once, or data at the end."""

    targets: Targets
    output: OutputFormat
    has_failed: bool = False
    _items: dict[ObjectRef, Json] = field(default_factory=dict)

    def add(
        self, target: NamedResource, text: str, result: str, *, err: bool = False, **more: str
    ) -> None:
        """Print a line, and keep the result for the data; `more` are further fields of it."""
        if err or self.output is OutputFormat.TABLE:
            click.echo(printable(f"{self._name(target)} {text}"), err=err)
        self.keep(target, result=result, **more)

    def warn(self, target: NamedResource, reason: str) -> None:
        """Print a warning about a resource."""
        click.echo(printable(f"Warning: {self._name(target)}: {reason}"), err=True)
        self.keep(target, warning=reason)

    def fail(self, target: NamedResource, error: Forbidden | NotFound | ConfigError) -> None:
        """Print an error that concerns one resource only.

        If all resources of a kind are wanted, one that is deleted meanwhile is not an error.
        """
        if self.targets.are_all and isinstance(error, NotFound):
            return
        self.has_failed = True
        click.echo(f"Error: {printable(str(error))}", err=True)
        self.keep(target, result="error", message=str(error))

    def end(self, namespace: str) -> None:
        """Print the data if the user wants that, or that no resource was found."""
        if self.output is not OutputFormat.TABLE:
            print_data({"items": list(self._items.values())}, self.output)
        elif not self._items:
            everywhere = self.targets.all_namespaces
            place = "any namespace" if everywhere else f"namespace {namespace}"
            click.echo(f"No resources found in {place}.", err=True)

    def keep(self, target: NamedResource, **more: str) -> None:
        """Keep the result of a resource for the data."""
        ref = target.ref
        fields = {
            "apiVersion": ref.gvk.api_version,
            "kind": ref.gvk.kind,
            "namespace": ref.namespace,
            "name": ref.name,
            **self._items.get(ref, {}),
            **more,
        }
        self._items[ref] = {name: value for name, value in fields.items() if value}

    def _name(self, target: NamedResource) -> str:
        namespace = target.ref.namespace if self.targets.all_namespaces else ""
        return f"{target} (namespace {namespace})" if namespace else str(target)
