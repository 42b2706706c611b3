"""Combine the requirements of the runner and of the roles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from operator_runner.core.model import Watch
from operator_runner.proxy.request_permissions import Permission
from operator_runner.tools.rbac.access_rules import Requirement, minimal, without_names
from operator_runner.tools.rbac.kinds import KindTable
from operator_runner.tools.rbac.operator_requirements import EnabledFeatures, requirements_of_runner
from operator_runner.tools.rbac.role_requirements import requirements_of_roles, unwatched_kinds


@dataclass(frozen=True, slots=True)
class RequirementSources:
    """Sources of requirements: watches, recorded requests, and features of the runner.

    `recorded` is None without a recording.
    """

    watches: tuple[Watch, ...]
    recorded: tuple[Permission, ...] | None
    kinds: KindTable
    features: EnabledFeatures


def requirements_of(project: RequirementSources, *, names: bool) -> list[Requirement]:
    """Return the minimal requirements, sorted. Raises ConfigError for kinds without a CRD.

    `names` restricts rules to the names of recorded requests, where these are constant.
    """
    watches, kinds, features = project.watches, project.kinds, project.features
    of_roles = list(requirements_of_roles(project.recorded or (), watches, kinds, features))
    runner = requirements_of_runner(watches, kinds, features)
    return minimal([*runner, *(of_roles if names else without_names(of_roles))])


def warnings_of(project: RequirementSources) -> Sequence[str]:
    """Return warnings about the sources of the requirements."""
    warnings = [
        f"ignored requests recorded for {kind}: it is not in watches.yaml"
        for kind in unwatched_kinds(project.recorded or (), project.watches)
    ]
    if not project.recorded:
        warnings.append(
            "no recorded requests of roles: the result has only the runner's own rules; run the"
            " operator with --record-requests=config/rbac/requests.yaml first"
        )
    return warnings
