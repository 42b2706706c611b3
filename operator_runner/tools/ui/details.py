"""Read a run or a resource that a user of the page has opened."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from operator_runner.core.model import GVK, Json
from operator_runner.telemetry.runs.received import check_dependents, check_run
from operator_runner.tools.operator_api.discovery import find_operators
from operator_runner.tools.runs.html_report import RunReport
from operator_runner.tools.runs.listing import without_repetitions
from operator_runner.tools.runs.run_details import find_run, read_output
from operator_runner.tools.ui.cluster_reader import ClusterReader
from operator_runner.tools.ui.views import all_runs, key_of, parse_key, resource_view, run_rows

_RUNS = "50"


@dataclass(frozen=True, slots=True)
class OperatorDetails:
    """Implements `server.Details` with the operators that answer, else with Events."""

    reader: ClusterReader

    async def run(self, run_id: str) -> Json:
        """Return a run with its timelines and its output. Raises NotFound and other ApiErrors."""
        cluster = self.reader.cluster
        now = datetime.now(UTC)
        async with find_operators(
            cluster.api, cluster.namespace, self.reader.work_dir
        ) as operators:
            if operators.clients:
                run, client = await find_run(operators, run_id)
                output = await read_output(client, run_id)
            else:
                of_run = (each for each in all_runs(self.reader.observed) if each["id"] == run_id)
                run, output = next(of_run, {}), ""
        if not run:
            # Neither an operator nor an Event has it.
            return {"id": run_id, "missing": True}
        [row] = run_rows([run], now)
        return {**row, "report": asdict(RunReport.of(run, output))}

    async def resource(self, key: str) -> Json:
        """Return runs, schedule and objects of a resource. Raises ConfigError and ApiError."""
        kind, namespace, name = parse_key(key)
        group = kind.partition(".")[2]
        query = {"group": group, "namespace": namespace, "name": name}
        cluster, observed = self.reader.cluster, self.reader.observed
        async with find_operators(
            cluster.api, cluster.namespace, self.reader.work_dir
        ) as operators:
            runs = await operators.collect("/runs", check_run, {**query, "limit": _RUNS})
            dependents = await operators.collect("/dependents", check_dependents, query)
            found = without_repetitions(runs) if operators.clients else all_runs(observed)
        of_resource = [each for each in found if key_of(each["resource"]) == key]
        objects = {
            key_of(each): each
            for entry in dependents
            if key_of(entry["resource"]) == key
            for each in entry["objects"]
        }
        shown = sorted(objects.values(), key=_order)
        return resource_view(key, observed, of_resource, shown, datetime.now(UTC))


def _order(found: Json) -> tuple[str, str, str]:
    gvk = GVK.of(found["apiVersion"], found["kind"])
    return gvk.kind, str(found.get("namespace") or ""), str(found["name"])
