"""JSON Schema as EKS's add-ons write it: each keyword, each finding's path, and no false one."""

from __future__ import annotations

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils._json_schema import problems

CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "good", "bad", "paths"),
    [
        ({"type": "string"}, "x", 1, ["$"]),
        ({"type": "integer"}, 2, True, ["$"]),
        ({"type": "integer"}, 2.0, 2.5, ["$"]),
        ({"type": "number"}, 2, "2", ["$"]),
        ({"type": ["string", "null"]}, None, 1, ["$"]),
        ({"enum": ["true", "false"]}, "true", True, ["$"]),
        ({"const": "a"}, "a", "b", ["$"]),
        ({"minimum": 1, "maximum": 3}, 3, 4, ["$"]),
        ({"minimum": 1}, 1, 0, ["$"]),
        ({"pattern": "^[0-9]+$"}, "12", "1a", ["$"]),
        (CLOSED, {"a": "x"}, {"a": 1, "b": 2}, ["$.a", "$.b"]),
        ({"required": ["a"]}, {"a": None}, {"b": 1}, ["$.a"]),
        ({"additionalProperties": {"type": "string"}}, {"x": "1"}, {"x": 1}, ["$.x"]),
        (
            {"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False},
            {"x-1": "1"},
            {"x-1": 1, "y": 1},
            ["$.x-1", "$.y"],
        ),
        ({"items": {"type": "string"}}, ["a"], ["a", 1], ["$[1]"]),
        ({"properties": {"a": {"items": CLOSED}}}, {"a": [{}]}, {"a": [{"b": 1}]}, ["$.a[0].b"]),
        ({"allOf": [{"minimum": 1}, {"maximum": 3}]}, 2, 5, ["$"]),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, None, 1, ["$"]),
        ({"oneOf": [CLOSED, {"type": "string"}]}, "x", {"b": 1}, ["$.b"]),
        ({"properties": {"a": False}}, {}, {"a": 1}, ["$.a"]),
    ],
)
def test_keywords(schema, good, bad, paths):
    assert problems(good, schema) == []
    assert [path for path, _what in problems(bad, schema)] == paths


def test_references_into_the_same_document():
    schema = {
        "$ref": "#/definitions/Top",
        "definitions": {
            "Top": {"type": "object", "properties": {"more": {"$ref": "#/definitions/Top"}}},
        },
    }
    assert problems({"more": {"more": {}}}, schema) == []
    assert problems({"more": {"more": 1}}, schema) == [
        ("$.more.more", "is integer 1, wanted: object")
    ]


def test_what_is_not_known_says_nothing():
    for schema in (
        True,
        {},
        {"$ref": "https://example.org/x"},
        {"format": "ipv4"},
        {"$ref": "#/x"},
    ):
        assert problems({"a": 1}, schema) == []


def test_a_schema_that_refers_to_itself_ends():
    assert problems(1, {"$ref": "#"}) == []


def test_what_is_allowed_is_told():
    (only,) = problems({"b": 1}, CLOSED)
    assert only == ("$.b", "is not known, allowed: a")
