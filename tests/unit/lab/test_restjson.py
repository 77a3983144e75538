"""The REST-JSON dispatcher against the EKS model of botocore."""

from __future__ import annotations

import json

import pytest

from lab.aws import Context, ServiceError
from lab.aws.restjson import AnswerError, RestJson, Router

CONTEXT = Context()


def _taking_params(handler):
    return lambda params, context: handler(params)


def serve(**handlers):
    """A service whose handlers take the parameters alone."""
    return RestJson("eks", {name: _taking_params(fn) for name, fn in handlers.items()})


def call(service, method, path, query="", body=None):
    raw = b"" if body is None else json.dumps(body).encode()
    status, headers, text = service.dispatch(method, path, query, raw, CONTEXT)
    return status, headers.get("x-amzn-ErrorType"), json.loads(text)


def test_every_operation_of_the_model_is_routed_to_itself():
    router = Router("eks")
    for name in router.model.operation_names:
        http = router.model.operation_model(name).http
        path = http["requestUri"].replace("{", "p-").replace("}", "")
        operation, _ = router.resolve(http["method"], path)
        assert operation.name == name


def test_path_parameters_are_decoded_once():
    seen = []
    service = serve(DescribeAccessEntry=lambda p: seen.append(p) or {"accessEntry": {}})
    path = "/clusters/c/access-entries/arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fa%2Fb"
    assert call(service, "GET", path)[0] == 200
    arn = "arn:aws:iam::123456789012:role/a/b"
    assert seen == [{"clusterName": "c", "principalArn": arn}]


def test_query_parameters_have_the_types_of_the_model():
    seen = []
    service = serve(DescribeAddonVersions=lambda p: seen.append(p) or {"addons": []})
    call(service, "GET", "/addons/supported-versions", "maxResults=5&types=a&types=b")
    assert seen == [{"maxResults": 5, "types": ["a", "b"]}]


@pytest.mark.parametrize(
    ("body", "code", "word"),
    [
        ({}, "ValidationException", "'name'"),
        ({"name": "x", "roleArn": "r"}, "ValidationException", "'resourcesVpcConfig'"),
        (
            {"name": 5, "roleArn": "r", "resourcesVpcConfig": {}},
            "SerializationException",
            "string expected",
        ),
        ([], "SerializationException", "object"),
        (
            {
                "name": "x",
                "roleArn": "r",
                "resourcesVpcConfig": {},
                "upgradePolicy": {"supportType": "FOREVER"},
            },
            "InvalidParameterException",
            "STANDARD, EXTENDED",
        ),
        (
            {"name": "", "roleArn": "r", "resourcesVpcConfig": {}},
            "InvalidParameterException",
            "minimum 1",
        ),
    ],
)
def test_what_the_model_forbids_is_refused(body, code, word):
    service = serve(CreateCluster=lambda p: {"cluster": {}})
    status, error, answer = call(service, "POST", "/clusters", body=body)
    assert (status, error) == (400, code)
    assert word in answer["message"]


def test_an_error_has_the_status_and_fields_of_the_model():
    def refuse(_):
        raise ServiceError("ResourceInUseException", "busy", clusterName="c")

    answer = call(serve(DescribeCluster=refuse), "GET", "/clusters/c")
    assert answer == (
        409,
        "ResourceInUseException",
        {"message": "busy", "clusterName": "c"},
    )


@pytest.mark.parametrize(
    "cluster", [{"nmae": "x"}, {"name": 1}, {"status": "SLEEPING"}, {"tags": {"a": 1}}]
)
def test_an_answer_that_the_model_does_not_know_is_a_fault_of_ours(cluster):
    service = serve(DescribeCluster=lambda p: {"cluster": cluster})
    with pytest.raises(AnswerError):
        service.dispatch("GET", "/clusters/c", "", b"", CONTEXT)


def test_lists_are_paged_by_the_paginators_of_the_model():
    service = serve(ListClusters=lambda p: {"clusters": [f"c{i}" for i in range(5)]})
    seen, query = [], "maxResults=2"
    while True:
        _, _, answer = call(service, "GET", "/clusters", query)
        seen.append(answer["clusters"])
        if "nextToken" not in answer:
            break
        query = f"maxResults=2&nextToken={answer['nextToken']}"
    assert seen == [["c0", "c1"], ["c2", "c3"], ["c4"]]
    assert call(service, "GET", "/clusters", "nextToken=nonsense!")[0] == 400


def test_an_operation_that_we_do_not_have_is_no_server_error():
    assert call(serve(), "GET", "/clusters")[0] == 400
    assert call(serve(), "GET", "/nothing/here")[:2] == (404, "NotFoundException")
    with pytest.raises(AnswerError, match="NoSuch"):
        serve(NoSuch=lambda p: {})
