"""A WebApp is written tier by tier."""

from __future__ import annotations

from typing import Any

from operator_runner.testing import Reconcile

CREDENTIALS = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "shop-database", "labels": {"myapp.mysite.com/webapp": "shop"}},
    "stringData": {"username": "shop", "password": "for-tests"},
}


def webapp() -> dict[str, Any]:
    """Return a WebApp."""
    tiers = ("frontend", "backend", "database")
    return {
        "apiVersion": "myapp.mysite.com/v1alpha1",
        "kind": "WebApp",
        "metadata": {"name": "shop"},
        "spec": {
            "image": {tier: f"example.com/{tier}:1" for tier in tiers},
            "replicas": 2,
            "database": {"credentialsSecret": "shop-database", "storage": "1Gi"},
        },
    }


def test_the_backend_waits_for_the_database(reconcile: Reconcile) -> None:
    """It is written when the database is available; until then the next run changes nothing."""
    outcome = reconcile(webapp(), objects=[CREDENTIALS])
    assert outcome.successful
    tiers = {each.name for each in outcome.created if each.kind == "Deployment"}
    assert tiers == {"shop-database", "shop-frontend"}
    assert outcome.condition("Available")["status"] == "False"

    again = reconcile(webapp(), objects=[CREDENTIALS])
    assert (again.created, again.changed, again.deleted) == ([], [], [])


def test_credentials_are_required(reconcile: Reconcile) -> None:
    """The failure names the task, and nothing is written."""
    outcome = reconcile(webapp())
    assert outcome.failure is not None
    assert outcome.failure.task == "Require a Secret that permits its use"
    assert outcome.created == []
