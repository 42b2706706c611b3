"""The cluster of a command: `--kubeconfig` and `--context`, as those of kubectl."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click
from click.shell_completion import CompletionItem

from operator_runner import __version__

if TYPE_CHECKING:
    from operator_runner.kube.session import Connection

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """The file and the context that a user has named; without them, those of kubectl."""

    file: Path | None = None
    context: str = ""

    async def connect(self) -> Connection:
        """Open a session with the API server; nothing is sent yet. Raises ConfigError."""
        from operator_runner.kube.session import connect  # noqa: PLC0415 (slow import)

        agent = f"operator-runner/{__version__}"
        return await connect(self.file, user_agent=agent, context=self.context)

    def absolute(self) -> Self:
        """Return the same for another working directory."""
        return self if self.file is None else replace(self, file=self.file.absolute())

    def flags(self) -> list[str]:
        """Return the flags of kubectl for the same cluster."""
        file = [] if self.file is None else [f"--kubeconfig={self.file}"]
        return [*file, f"--context={self.context}"] if self.context else file


def kubeconfig_options(function: _Function) -> _Function:
    """Add `--kubeconfig` and `--context`; the function takes both as `kubeconfig`."""

    @functools.wraps(function)
    def command(*args: Any, kubeconfig: Path | None, context: str | None, **options: Any) -> Any:
        chosen = Kubeconfig(kubeconfig, context or "")
        return function(*args, kubeconfig=chosen, **options)

    for option in (_CONTEXT, _KUBECONFIG):
        option(command)
    return command  # type: ignore[return-value]  # with other options


def kubeconfig_of(context: click.Context) -> Kubeconfig:
    """Return what is on a command line that a shell completes."""
    file = context.params.get("kubeconfig")
    return Kubeconfig(Path(file) if file else None, context.params.get("context") or "")


def complete_contexts(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the contexts that begin with `incomplete`."""
    from operator_runner.kube.credentials import contexts  # noqa: PLC0415 (slow import)

    found = contexts(kubeconfig_of(ctx).file)
    return [CompletionItem(each) for each in found if each.startswith(incomplete)]


_KUBECONFIG = click.option(
    "--kubeconfig",
    default=None,
    type=click.Path(path_type=Path),
    help="Kubeconfig.  [default: KUBECONFIG, the Pod's own, ~/.kube/config]",
)
_CONTEXT = click.option(
    "--context",
    default=None,
    shell_complete=lambda ctx, _param, incomplete: complete_contexts(ctx, incomplete),
    help="Context of the kubeconfig.  [default: its current one]",
)
