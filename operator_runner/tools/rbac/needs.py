"""All that a project needs: of the runner and of its roles, with nothing twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from operator_runner.core.model import Watch
from operator_runner.proxy.request_permissions import Permission
from operator_runner.tools.rbac.kinds import KindTable
from operator_runner.tools.rbac.right import Need, smallest, without_names
from operator_runner.tools.rbac.roles import needs_of_roles, strangers
from operator_runner.tools.rbac.runner import Duties, needs_of_runner


@dataclass(frozen=True, slots=True)
class Project:
    """What rights follow from: watches, what was recorded, and how the runner is started."""

    watches: tuple[Watch, ...]
    recorded: tuple[Permission, ...]
    kinds: KindTable
    duties: Duties


def needs_of(project: Project, *, names: bool) -> list[Need]:
    """Return the smallest needs, sorted; ConfigError for kinds whose CRD is missing.

    `names` keeps to the names that roles have asked for, where these do not vary.
    """
    watches, kinds, duties = project.watches, project.kinds, project.duties
    asked = list(needs_of_roles(project.recorded, watches, kinds, duties))
    runner = needs_of_runner(watches, kinds, duties)
    return smallest([*runner, *(asked if names else without_names(asked))])


def warnings_of(project: Project) -> Sequence[str]:
    """Return what the user should know about what the rights are derived from."""
    warnings = [
        f"requests recorded for {kind} are left out: watches.yaml does not name it"
        for kind in strangers(project.recorded, project.watches)
    ]
    if not project.recorded:
        warnings.append(
            "no requests of roles are recorded, so this is what the runner needs by itself; let"
            " the operator run with --record-requests=config/rbac/requests.yaml for a while"
        )
    return warnings
