"""Convert the objects of a ConversionReview v1. Pure.

https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/
defines the response: the same uid, all objects in the order of the request, or one Failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from operator_runner.conversion.converter import ConversionError, Converter, name_of
from operator_runner.core.model import GVK, Json

Converters: TypeAlias = Mapping[tuple[str, str], Converter]
"""Converters by group and kind."""

API_VERSION = "apiextensions.k8s.io/v1"


class InvalidReview(Exception):
    """The request is not a ConversionReview v1; the message names what is missing."""


class Review:
    """A validated ConversionReview; its objects are converted one by one."""

    def __init__(self, body: Any, converters: Converters) -> None:
        """Validate the decoded body of the request; raises InvalidReview."""
        if not isinstance(body, dict) or body.get("kind") != "ConversionReview":
            raise InvalidReview("expected a ConversionReview")
        if body.get("apiVersion") != API_VERSION:
            raise InvalidReview(
                f"unsupported apiVersion {body.get('apiVersion')!r}: expected {API_VERSION}; "
                "set conversionReviewVersions: [v1] in the CRD"
            )
        request = body.get("request")
        if not isinstance(request, dict):
            raise InvalidReview("request is missing")
        for key, kind in (("uid", str), ("desiredAPIVersion", str), ("objects", list)):
            if not isinstance(request.get(key), kind):
                raise InvalidReview(f"request.{key} is missing")
        self._uid: str = request["uid"]
        self._desired = GVK.of(request["desiredAPIVersion"], "")
        self._objects: list[Any] = request["objects"]
        self._converters = converters

    def convert(self) -> Iterator[Json]:
        """Yield the objects in the desired version, in order.

        Raises ConversionError, and RecursionError for objects that are nested too deep.
        """
        for body in self._objects:
            yield self._convert(body)

    def success(self, converted: list[Json]) -> Json:
        """Return the response with the converted objects."""
        return self._answer({"convertedObjects": converted, "result": {"status": "Success"}})

    def failure(self, error: ConversionError) -> Json:
        """Return the response with an error message, which users see."""
        return self._answer({"result": {"status": "Failure", "message": str(error)}})

    def _convert(self, body: Any) -> Json:
        if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
            raise ConversionError("cannot convert an object without metadata")
        gvk = GVK.of(str(body.get("apiVersion", "")), str(body.get("kind", "")))
        converter = self._converters.get((gvk.group, gvk.kind))
        if converter is None or gvk.group != self._desired.group:
            raise ConversionError(
                f"{name_of(body)}: cannot convert {gvk.api_version} to "
                f"{self._desired.api_version}: watches.yaml has no conversion between them"
            )
        return converter.convert(body, self._desired.version)

    def _answer(self, response: Json) -> Json:
        return {
            "apiVersion": API_VERSION,
            "kind": "ConversionReview",
            "response": {"uid": self._uid, **response},
        }
