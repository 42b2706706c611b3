"""The argument ID or KIND/NAME of a run, and its completion in a shell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from operator_runner.tools.resources.options import NameType
from operator_runner.tools.resources.resource_name import ResourceName

if TYPE_CHECKING:
    from operator_runner.tools.resources.cluster import ClusterView

_MAX_RUNS = "50"


class IdOrNameType(click.ParamType[str | ResourceName]):
    """An argument ID of a run, or KIND/NAME."""

    name = "ID"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | ResourceName:
        """Return the ID or the name; end with a usage error for an invalid name."""
        is_id = isinstance(value, str) and "/" not in value
        return str(value) if is_id else NameType().convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return runs, or resources of the cluster, that begin with `incomplete`."""
        found = NameType().shell_complete(ctx, param, incomplete)
        return found if "/" in incomplete else [*_complete_runs(ctx, incomplete), *found]


def _complete_runs(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the IDs of runs that operators have, newest first, with resource and outcome."""
    from operator_runner.tools.resources.completion import read_cluster  # noqa: PLC0415 (slow)

    async def read(cluster: ClusterView) -> list[CompletionItem]:
        from operator_runner.telemetry.runs.received import check_run  # noqa: PLC0415 (slow import)
        from operator_runner.tools.operator_api.discovery import find_operators  # noqa: PLC0415
        from operator_runner.tools.runs.display import resource_name, result  # noqa: PLC0415
        from operator_runner.tools.runs.listing import newest  # noqa: PLC0415

        work_dir = context.params.get("work_dir")
        async with find_operators(
            cluster.api, cluster.namespace, Path(work_dir) if work_dir else None
        ) as operators:
            found = newest(await operators.collect("/runs", check_run, {"limit": _MAX_RUNS}))
        return [
            CompletionItem(str(each["id"]), help=f"{resource_name(each)} {result(each)}")
            for each in found
            if str(each["id"]).startswith(incomplete)
        ]

    return read_cluster(context, read)
