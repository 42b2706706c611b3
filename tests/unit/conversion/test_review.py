"""The ConversionReview, by the rules of Kubernetes' documentation."""

from __future__ import annotations

from typing import Any

import pytest

from operator_runner.conversion.converter import ConversionError, Converter
from operator_runner.conversion.server import InvalidReview, Review
from tests.support.nginx import nginx as resource

Json = dict[str, Any]
GROUP = "operator.example.com"


def conversion_review(*objects: Any, to_version: str = f"{GROUP}/v1alpha2") -> Json:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": {"uid": "705ab4f5", "desiredAPIVersion": to_version, "objects": list(objects)},
    }


def answer(body: Json, nginx: Converter) -> Json:
    review = Review(body, {(GROUP, "NginxOperator"): nginx})
    try:
        return review.success(list(review.convert()))
    except ConversionError as error:
        return review.failure(error)


def test_objects_of_several_versions_are_converted_in_order(nginx: Converter) -> None:
    """Each object has the desired version and its index; the uid is that of the request."""
    objects = (
        resource("a", version="v1alpha1", port=1),
        resource("b", version="v1alpha2", replicas=2),
        resource("c", version="v1alpha1"),
    )
    assert answer(conversion_review(*objects), nginx) == {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "response": {
            "uid": "705ab4f5",
            "convertedObjects": [
                resource("a", version="v1alpha2", ports=[{"containerPort": 1, "protocol": "TCP"}]),
                resource("b", version="v1alpha2", replicas=2),
                resource("c", version="v1alpha2"),
            ],
            "result": {"status": "Success"},
        },
    }


@pytest.mark.parametrize(
    ("wrong", "to_version", "complaint"),
    [
        (resource("x", version="v3"), "v1alpha2", "NginxOperator x: cannot convert v3 to v1alpha2"),
        (resource("x", version="v1alpha1"), "v9", "NginxOperator x: cannot convert v1alpha1 to v9"),
        (
            resource("x", version="v1alpha1") | {"kind": "Other"},
            "v1alpha2",
            "Other x: cannot convert operator.example.com/v1alpha1 to operator.example.com",
        ),
        ({"kind": "NginxOperator"}, "v1alpha2", "cannot convert an object without metadata"),
        ("text", "v1alpha2", "cannot convert an object without metadata"),
    ],
)
def test_one_object_that_fails_fails_all(
    nginx: Converter, wrong: Any, to_version: str, complaint: str
) -> None:
    """The answer is a Failure that names the object, and has no objects."""
    body = conversion_review(
        resource("ok", version="v1alpha2"), wrong, to_version=f"{GROUP}/{to_version}"
    )
    response = answer(body, nginx)["response"]
    assert response["uid"] == "705ab4f5"
    assert response["result"]["status"] == "Failure"
    assert "convertedObjects" not in response
    if to_version != "v9":
        assert response["result"]["message"].startswith(complaint)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (None, "expected a ConversionReview"),
        ([], "expected a ConversionReview"),
        ({"kind": "AdmissionReview"}, "expected a ConversionReview"),
        (
            conversion_review() | {"apiVersion": "apiextensions.k8s.io/v1beta1"},
            "conversionReviewVersions",
        ),
        (conversion_review() | {"request": None}, "request is missing"),
        (conversion_review() | {"request": {"uid": "1"}}, "request.desiredAPIVersion is missing"),
        (
            conversion_review()
            | {"request": {"uid": "1", "desiredAPIVersion": "a/v1", "objects": {}}},
            "request.objects is missing",
        ),
    ],
)
def test_invalid_reviews_are_rejected(body: Any, complaint: str) -> None:
    """It is rejected with the reason; there is no uid for a response."""
    with pytest.raises(InvalidReview, match=complaint):
        Review(body, {})
