"""The way into the cluster is EKS's own: a presigned STS call, an access entry, a policy."""

from __future__ import annotations

import base64
import json
import time
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import boto3
import pytest

from .conftest import Built
from .support import cluster


def _unpack(token: str) -> str:
    body = token.removeprefix("k8s-aws-v1.")
    return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode()


def _pack(url: str) -> str:
    return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def _changed(token: str, **query: str) -> str:
    parts = urlsplit(_unpack(token))
    pairs = {**dict(parse_qsl(parts.query)), **query}
    return _pack(urlunsplit(parts._replace(query=urlencode(pairs))))


def _status(built: Built, bearer: str) -> int:
    return cluster.request(built.name, "GET", "/api/v1/nodes", bearer=bearer).status_code


def test_the_creator_gets_in(built: Built) -> None:
    assert _status(built, cluster.token(built.name, built.principal.session())) == 200


def test_a_token_for_another_cluster_is_refused(built: Built) -> None:
    assert _status(built, cluster.token("another")) == 401


def test_an_expired_token_is_refused(built: Built) -> None:
    old = _changed(cluster.token(built.name), **{"X-Amz-Date": "20260101T000000Z"})
    assert _status(built, old) == 401


def test_a_tampered_signature_is_refused(built: Built) -> None:
    forged = _changed(cluster.token(built.name), **{"X-Amz-Signature": "0" * 64})
    assert _status(built, forged) == 401


def test_an_unsigned_url_is_refused(built: Built) -> None:
    parts = urlsplit(_unpack(cluster.token(built.name)))
    bare = urlunsplit(parts._replace(query="Action=GetCallerIdentity&Version=2011-06-15"))
    assert _status(built, _pack(bare)) == 401


def test_garbage_is_refused(built: Built) -> None:
    assert _status(built, "k8s-aws-v1.!!!!") == 401


@pytest.fixture
def stranger():
    """A user of the account who has no access entry."""
    iam = boto3.client("iam")
    iam.create_user(UserName="stranger")
    key = iam.create_access_key(UserName="stranger")["AccessKey"]
    yield boto3.Session(
        aws_access_key_id=key["AccessKeyId"], aws_secret_access_key=key["SecretAccessKey"]
    )
    iam.delete_access_key(UserName="stranger", AccessKeyId=key["AccessKeyId"])
    iam.delete_user(UserName="stranger")


def test_a_caller_without_an_entry_is_refused_and_with_one_is_bounded(
    built: Built, stranger: boto3.Session
) -> None:
    assert _status(built, cluster.token(built.name, stranger)) == 401
    eks = boto3.client("eks")
    arn = boto3.client("iam").get_user(UserName="stranger")["User"]["Arn"]
    eks.create_access_entry(clusterName=built.name, principalArn=arn)
    try:
        assert _status(built, cluster.token(built.name, stranger)) == 403
        eks.associate_access_policy(
            clusterName=built.name,
            principalArn=arn,
            policyArn="arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy",
            accessScope={"type": "cluster"},
        )
        pods = cluster.request(
            built.name, "GET", "/api/v1/pods", bearer=cluster.token(built.name, stranger)
        )
        assert pods.status_code == 200
        review = cluster.request(
            built.name,
            "POST",
            "/api/v1/namespaces",
            bearer=cluster.token(built.name, stranger),
            json={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "no"}},
        )
        assert review.status_code == 403, json.dumps(review.json())
    finally:
        eks.delete_access_entry(clusterName=built.name, principalArn=arn)
    # The API server keeps a verdict for a moment, as EKS's does.
    deadline = time.monotonic() + 30
    while _status(built, cluster.token(built.name, stranger)) != 401:
        assert time.monotonic() < deadline, "the entry is gone and its principal still gets in"
        time.sleep(0.5)
