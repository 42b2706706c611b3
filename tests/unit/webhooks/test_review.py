"""The ConversionReview, by the rules of Kubernetes' documentation."""

from __future__ import annotations

from typing import Any

import pytest

from operator_runner.webhooks.converter import ConversionError, Converter
from operator_runner.webhooks.review import BadReview, Review

Json = dict[str, Any]
GROUP = "operator.example.com"


def an_object(version: str, name: str, **spec: Any) -> Json:
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "NginxOperator",
        "metadata": {"name": name},
        "spec": spec,
    }


def question(*objects: Any, wanted: str = f"{GROUP}/v1alpha2") -> Json:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": {"uid": "705ab4f5", "desiredAPIVersion": wanted, "objects": list(objects)},
    }


def answer(body: Json, nginx: Converter) -> Json:
    review = Review(body, {(GROUP, "NginxOperator"): nginx})
    try:
        return review.success(list(review.convert()))
    except ConversionError as error:
        return review.failure(error)


def test_objects_of_several_versions_in_order(nginx: Converter) -> None:
    """Each comes in the desired version, at its place, under the uid of the request."""
    objects = (
        an_object("v1alpha1", "a", port=1),
        an_object("v1alpha2", "b", replicas=2),
        an_object("v1alpha1", "c"),
    )
    assert answer(question(*objects), nginx) == {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "response": {
            "uid": "705ab4f5",
            "convertedObjects": [
                an_object("v1alpha2", "a", ports=[{"containerPort": 1, "protocol": "TCP"}]),
                an_object("v1alpha2", "b", replicas=2),
                an_object("v1alpha2", "c"),
            ],
            "result": {"status": "Success"},
        },
    }


@pytest.mark.parametrize(
    ("wrong", "wanted", "complaint"),
    [
        (an_object("v3", "x"), "v1alpha2", "NginxOperator x: cannot convert v3 to v1alpha2"),
        (an_object("v1alpha1", "x"), "v9", "NginxOperator x: cannot convert v1alpha1 to v9"),
        (
            an_object("v1alpha1", "x") | {"kind": "Other"},
            "v1alpha2",
            "Other x: cannot convert operator.example.com/v1alpha1 to operator.example.com",
        ),
        ({"kind": "NginxOperator"}, "v1alpha2", "an object without metadata"),
        ("text", "v1alpha2", "an object without metadata"),
    ],
)
def test_one_object_that_fails_fails_all(
    nginx: Converter, wrong: Any, wanted: str, complaint: str
) -> None:
    """The answer is a Failure that names the object, and has no objects."""
    body = question(an_object("v1alpha2", "ok"), wrong, wanted=f"{GROUP}/{wanted}")
    response = answer(body, nginx)["response"]
    assert response["uid"] == "705ab4f5"
    assert response["result"]["status"] == "Failure"
    assert "convertedObjects" not in response
    if wanted != "v9":
        assert response["result"]["message"].startswith(complaint)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (None, "a ConversionReview is expected"),
        ([], "a ConversionReview is expected"),
        ({"kind": "AdmissionReview"}, "a ConversionReview is expected"),
        (question() | {"apiVersion": "apiextensions.k8s.io/v1beta1"}, "conversionReviewVersions"),
        (question() | {"request": None}, "request is missing"),
        (question() | {"request": {"uid": "1"}}, "request.desiredAPIVersion is missing"),
        (
            question() | {"request": {"uid": "1", "desiredAPIVersion": "a/v1", "objects": {}}},
            "request.objects is missing",
        ),
    ],
)
def test_what_is_no_review(body: Any, complaint: str) -> None:
    """It is refused with what is wrong; there is no uid to answer under."""
    with pytest.raises(BadReview, match=complaint):
        Review(body, {})
