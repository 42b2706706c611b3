"""Why a kind of watches.yaml is not served."""

from __future__ import annotations

import pytest

from operator_runner.core.model import GVK
from operator_runner.kube.discovery import explain_missing

OR_INSTALL = " If not, install its CRD with `kubectl apply -f`"
APPS = "apps.example.com"
SERVED = [
    GVK(APPS, "v1", "Wiki"),
    GVK(APPS, "v1alpha1", "Wiki"),
    GVK(APPS, "v1", "Backup"),
    GVK("", "v1", "Pod"),
    GVK("apps", "v1", "Deployment"),
]


@pytest.mark.parametrize(
    ("gvk", "reason"),
    [
        (
            GVK(APPS, "v2", "Wiki"),
            "it is served in v1 and v1alpha1; correct `version`, or add it to the CRD",
        ),
        (
            GVK(APPS, "v1", "Wikki"),
            (
                "did you mean Wiki in group apps.example.com, served in v1 and v1alpha1?"
                " If not, install its CRD with `kubectl apply -f`"
            ),
        ),
        (
            GVK(APPS, "v1", "wiki"),
            "did you mean Wiki in group apps.example.com, served in v1 and v1alpha1?",
        ),
        (
            GVK("app.example.com", "v1", "Backup"),
            (
                "did you mean Backup in group apps.example.com, served in v1?"
                " If not, install its CRD with `kubectl apply -f`"
            ),
        ),
        (
            GVK("", "v1", "Pods"),
            "did you mean Pod, served in v1? If not, install its CRD with `kubectl apply -f`",
        ),
        (GVK(APPS, "v1", "Ghost"), "its CRD is missing; install it with `kubectl apply -f`"),
        (GVK("other.org", "v1", "Wiki"), "its CRD is missing; install it with `kubectl apply -f`"),
        (
            GVK("more.example.com", "v1", "Backend"),
            "its CRD is missing; install it with `kubectl apply -f`",
        ),
        (
            GVK("app", "v1", "Deploymnt"),
            "did you mean Deployment in group apps, served in v1?" + OR_INSTALL,
        ),
    ],
)
def test_the_nearest_kind_is_named(gvk: GVK, reason: str) -> None:
    """Another version or spelling, a similar group, or a similar kind.

    A kind that is only similar to one of a similar group is another one.
    """
    assert explain_missing(gvk, SERVED) == reason


def test_without_aggregated_discovery_the_crd_is_missing() -> None:
    """Nothing is known about the other kinds."""
    assert explain_missing(GVK(APPS, "v1", "Wiki"), []).startswith("its CRD is missing")
