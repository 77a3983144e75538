"""The layer in front of moto: the record of calls, faults, latency, throttling, identity."""

from __future__ import annotations

import time
import urllib.error

import pytest
from botocore.exceptions import ClientError
from eks_helpers import fresh

from lab.faults import Faults


@pytest.fixture
def lab(daemon):
    daemon.lab("calls", method="DELETE")
    return fresh(daemon)


def code_of(call, **arguments):
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    response = caught.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


def test_calls_are_recorded_with_their_caller_and_parameters(lab):
    lab.ec2.create_vpc(CidrBlock="10.9.0.0/16")
    lab.eks.list_clusters(maxResults=7)
    code_of(lab.eks.describe_cluster, name="nothing")
    lab.client("kms").list_keys()
    rows = lab.lab("calls")["calls"]
    seen = [(row["service"], row["operation"], row["status"]) for row in rows]
    assert seen == [
        ("ec2", "CreateVpc", 200),
        ("eks", "ListClusters", 200),
        ("eks", "DescribeCluster", 404),
        ("kms", "ListKeys", 200),
    ]
    assert {row["principal"] for row in rows} == {lab.sts.get_caller_identity()["Arn"]}
    assert rows[0]["params"]["CidrBlock"] == "10.9.0.0/16"
    assert rows[1]["params"] == {"maxResults": 7}
    assert [r["operation"] for r in lab.lab("calls?service=kms")["calls"]] == ["ListKeys"]
    assert lab.lab("calls", method="DELETE") == {"calls": []}


def test_what_our_eks_calls_is_not_the_users_call(lab):
    lab.cluster()
    operations = {row["operation"] for row in lab.lab("calls")["calls"]}
    assert "AuthorizeSecurityGroupIngress" not in operations
    rows = lab.lab("calls?internal=1")["calls"]
    assert "AuthorizeSecurityGroupIngress" in {row["operation"] for row in rows}


@pytest.mark.parametrize(
    ("service", "operation", "call"),
    [
        ("eks", "ListClusters", "list_clusters"),
        ("ec2", "DescribeVpcs", "describe_vpcs"),
        ("iam", "ListRoles", "list_roles"),
        ("kms", "ListKeys", "list_keys"),
        ("s3", "ListBuckets", "list_buckets"),
    ],
)
def test_an_error_on_request_is_read_by_every_protocols_parser(lab, service, operation, call):
    rule = {"service": service, "operation": operation, "error": "AccessDenied", "status": 403}
    lab.lab("faults", [{**rule, "times": 2}])
    client = lab.client(service)
    assert [code_of(getattr(client, call)) for _ in range(2)] == [("AccessDenied", 403)] * 2
    getattr(client, call)()
    assert lab.lab("faults") == {"faults": []}


def test_latency_and_throttling(lab):
    lab.lab("faults", [{"service": "ec2", "operation": "Describe*", "latency_s": 0.3}])
    began = time.monotonic()
    lab.ec2.describe_vpcs()
    assert time.monotonic() - began >= 0.3
    lab.lab("faults", method="DELETE")
    lab.lab("faults", [{"service": "sts", "rate": 0.001, "burst": 2}])
    for _ in range(2):
        lab.sts.get_caller_identity()
    assert code_of(lab.sts.get_caller_identity) == ("ThrottlingException", 400)


def test_our_own_services_calls_see_no_faults(lab):
    lab.lab("faults", [{"service": "ec2", "operation": "CreateSecurityGroup", "error": "Down"}])
    assert lab.cluster()["status"] == "ACTIVE"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("faults", [{"servce": "ec2", "error": "X"}]),
        ("faults", [{"service": "ec2"}]),
        ("faults", ["x"]),
        ("latencies", {"CreateNothing": 1}),
        ("latencies", {"CreateCluster": "slow"}),
    ],
)
def test_bad_rules_are_refused(lab, path, body):
    with pytest.raises(urllib.error.HTTPError) as caught:
        lab.lab(path, body)
    assert caught.value.code == 400
    caught.value.close()
    assert lab.lab("faults") == {"faults": []}


def test_health_and_latencies(lab):
    assert lab.lab("health") == {"ok": True, "clusters": {}}
    assert lab.lab("latencies", {"CreateCluster": 0.3})["CreateCluster"] == 0.3
    with pytest.raises(urllib.error.HTTPError) as caught:
        lab.lab("nonsense")
    assert caught.value.code == 404
    caught.value.close()


def test_a_bucket_refills_with_the_rate():
    now = [0.0]
    faults = Faults(clock=lambda: now[0])
    faults.add({"rate": 2, "burst": 1})

    def refused():
        return faults.decide("ec2", "X")[1] is not None

    assert [refused(), refused()] == [False, True]
    now[0] = 0.5
    assert [refused(), refused()] == [False, True]


def test_a_probability_hits_about_as_often_as_it_says():
    faults = Faults()
    faults.add({"error": "X", "probability": 0.25})
    hits = sum(faults.decide("a", "B")[1] is not None for _ in range(2000))
    assert 400 < hits < 600
