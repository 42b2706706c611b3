"""The members of a cluster of etcd over time, and the picture of them."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from bench.api import Json
from bench.etcd.picture import svg
from bench.etcd.timeline import LEARNER, LOST, READY, UNREADY, Mark, Stay, states, stays


def pod(name: str, ready: str) -> Json:
    conditions = [{"type": "Ready", "status": ready}]
    return {"metadata": {"name": name}, "status": {"conditions": conditions}}


def test_the_state_of_a_member_is_that_of_its_pod_unless_it_is_a_learner() -> None:
    """A member without a Pod is lost, a Pod that is not a member is shown too."""
    pods = [pod("a", "True"), pod("b", "False"), pod("c", "False"), pod("x", "True")]
    learners = {"a": False, "b": False, "c": True, "d": False, "e": True}
    expected = {"a": READY, "b": UNREADY, "c": LEARNER, "d": LOST, "e": LEARNER, "x": READY}
    assert states(pods, learners) == expected


def test_a_state_lasts_until_another_one_is_seen() -> None:
    """A member that is removed has no state."""
    observations = [
        (0.0, {"a": READY}),
        (1.0, {"a": READY, "b": LEARNER}),
        (2.0, {"a": LOST, "b": READY}),
        (3.0, {"b": READY}),
        (4.0, {"b": READY}),
    ]
    assert list(stays(observations)) == [
        Stay("a", READY, 0.0, 2.0),
        Stay("a", LOST, 2.0, 3.0),
        Stay("b", LEARNER, 1.0, 2.0),
        Stay("b", READY, 2.0, 4.0),
    ]


def test_the_picture_has_members_faults_and_silences() -> None:
    """As texts and tooltips; faults at about the same time are in rows below each other."""
    marks = [Mark("kill 0000", 1.0), Mark("scale to 5", 1.1)]
    members = [Stay("db-0000", READY, 0.0, 100.0), Stay("db-0001", READY, 0.0, 50.0)]
    drawn = svg(members, marks, [(2.0, 4.0)], "Members")
    elements = list(ET.fromstring(drawn).iter())
    texts = {element.text: element.get("y") for element in elements if element.text}
    assert texts["kill 0000"] != texts["scale to 5"]
    assert {
        "Members",
        "db-0000",
        "removed",
        "client",
        "80 s",
        "db-0000: ready, 100.0 s",
    } <= texts.keys()
    assert "client: no write acknowledged, 2.0 s" in texts
