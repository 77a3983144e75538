"""The authenticator: which tokens open which cluster, with tokens made by botocore."""

from __future__ import annotations

import base64
import datetime
import json

import boto3
import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from moto import mock_aws

from lab import authn

REGION = "us-east-1"
LOOPBACK = "http://127.0.0.1:5000/"
USER = {"username": "runner", "groups": ["admins"]}


class Clusters:
    """A registry with one cluster and one access entry."""

    def __init__(self, arn):
        self.arn = arn

    def get(self, name):
        return self if name == "demo" else None

    def identify(self, arn):
        return USER if arn == self.arn else None


@pytest.fixture(scope="module")
def account():
    with pytest.MonkeyPatch.context() as patch, mock_aws():
        patch.setenv("AWS_ACCESS_KEY_ID", "testing-key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing-secret")
        iam = boto3.client("iam", region_name=REGION)
        yield iam, iam.create_user(UserName="runner")["User"]["Arn"]


@pytest.fixture
def caller(account):
    """A user with a key, and the registry that lets it in."""
    iam, arn = account
    key = iam.create_access_key(UserName="runner")["AccessKey"]
    yield Credentials(key["AccessKeyId"], key["SecretAccessKey"]), Clusters(arn), iam
    iam.delete_access_key(UserName="runner", AccessKeyId=key["AccessKeyId"])


def token(
    credentials,
    cluster="demo",
    *,
    url=LOOPBACK,
    headers=None,
    age=0,
    expires=60,
    change=lambda signed: signed,
    params=(("Action", "GetCallerIdentity"), ("Version", "2011-06-15")),
):
    query = "&".join(f"{key}={value}" for key, value in params)
    headers = {"x-k8s-aws-id": cluster} if headers is None else headers
    request = AWSRequest("GET", f"{url}?{query}", dict(headers))
    signer = SigV4QueryAuth(credentials, "sts", REGION, expires=expires)
    moment = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.auth.get_current_datetime", lambda *_: moment)
        signer.add_auth(request)
    raw = base64.urlsafe_b64encode(change(request.url).encode()).decode().rstrip("=")
    return "k8s-aws-v1." + raw


def review(text, clusters, cluster="demo"):
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    answer = authn.handle_token_review(cluster, {**body, "spec": {"token": text}}, clusters)
    assert json.dumps(answer)
    assert answer["kind"] == "TokenReview"
    return answer["status"]


@pytest.mark.parametrize(
    "url",
    [LOOPBACK, "https://sts.us-east-1.amazonaws.com/", "https://sts.amazonaws.com/"],
)
def test_a_good_token(caller, url):
    credentials, clusters, _ = caller
    status = review(token(credentials, url=url), clusters)
    assert status["authenticated"] is True
    assert status["user"]["username"] == "runner"
    assert status["user"]["groups"] == ["admins"]
    assert status["user"]["extra"]["arn"] == [clusters.arn]


def test_a_token_of_fourteen_minutes_is_good_though_its_url_expired(caller):
    credentials, clusters, _ = caller
    assert review(token(credentials, age=14 * 60), clusters)["authenticated"]


def test_a_token_of_an_assumed_role(caller):
    _, _, iam = caller
    arn = iam.create_role(RoleName="ops", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    session = boto3.client("sts", region_name=REGION).assume_role(RoleArn=arn, RoleSessionName="me")
    keys = session["Credentials"]
    parts = keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"]
    clusters = Clusters(session["AssumedRoleUser"]["Arn"])
    assert review(token(Credentials(*parts)), clusters)["authenticated"]
    wrong = Credentials(*parts[:2], "another")
    assert "session token" in review(token(wrong), clusters)["error"]


def refused(name, cause, **more):
    return pytest.param(more, cause, id=name)


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        refused("other cluster", "not valid for cluster demo", cluster="other"),
        refused("expired", "expired", age=15 * 60 + 2),
        refused("from the future", "ahead of our clock", age=-6 * 60),
        refused("long expiry", "X-Amz-Expires", expires=901),
        refused("other host", "no STS endpoint", url="https://sts.amazonaws.com.evil.test/"),
        refused("name before the host", "no STS endpoint", url="https://u@sts.amazonaws.com/"),
        refused("path", "unexpected path", url="https://sts.amazonaws.com/x"),
        refused("header not signed", "does not sign", headers={}),
        refused("more headers", "does not send", headers={"x-k8s-aws-id": "demo", "x-other": "1"}),
        refused("other action", "unexpected action", params=(("Action", "AssumeRole"),)),
        refused(
            "more parameters",
            "not allowed: RoleArn",
            params=(("Action", "GetCallerIdentity"), ("Version", "1"), ("RoleArn", "x")),
        ),
        refused(
            "tampered",
            "not valid for cluster",
            change=lambda url: url.replace("Expires=60", "Expires=61"),
        ),
        refused("twice", "stands twice", change=lambda url: url + "&Version=1"),
        refused(
            "not presigned", "not presigned", change=lambda url: url.split("&X-Amz-Algorithm")[0]
        ),
        refused("not ASCII", "base64url", change=lambda url: url + "\u00e9"),
    ],
)
def test_a_token_that_is_refused(caller, how, cause):
    credentials, clusters, _ = caller
    if how.get("params", [()])[0] == ("Action", "AssumeRole"):
        how = {**how, "params": (*how["params"], ("Version", "2011-06-15"))}
    status = review(token(credentials, how.pop("cluster", "demo"), **how), clusters)
    assert status["authenticated"] is False
    assert "user" not in status
    assert cause in status["error"]


@pytest.mark.parametrize("text", ["", "abc", "k8s-aws-v1.!!!", "k8s-aws-v2.aGVsbG8"])
def test_what_is_no_token(caller, text):
    assert review(text, caller[1])["authenticated"] is False


def test_keys_and_principals_that_are_not_known(caller):
    credentials, clusters, iam = caller
    good = token(credentials)
    strange = token(Credentials("AKIAUNKNOWN", "x" * 20))
    assert "not known" in review(strange, clusters)["error"]
    forged = token(Credentials(credentials.access_key, "x" * 20))
    assert "signature" in review(forged, clusters)["error"]
    assert "no access entry" in review(good, Clusters("arn:aws:iam::1:user/x"))["error"]
    elsewhere = token(credentials, "other")
    assert "no cluster other" in review(elsewhere, clusters, "other")["error"]
    iam.update_access_key(UserName="runner", AccessKeyId=credentials.access_key, Status="Inactive")
    assert "not active" in review(good, clusters)["error"]


def test_the_token_that_the_collection_mints(caller):
    mint = pytest.importorskip("ansible_collections.gpushare.eks.plugins.module_utils._token")
    credentials, clusters, _ = caller
    url = mint.presign(
        endpoint_url=LOOPBACK,
        region=REGION,
        access_key=credentials.access_key,
        secret_key=credentials.secret_key,
        session_token=None,
        cluster_name="demo",
        now=datetime.datetime.now(datetime.UTC).timestamp(),
    )
    assert review(mint.encode(url), clusters)["authenticated"]
