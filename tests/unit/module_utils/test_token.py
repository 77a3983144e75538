"""Tokens: the same signature as boto3's own signer, renewed in time, typed errors."""

from __future__ import annotations

import base64
import datetime
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from ansible_collections.gpushare.eks.plugins.module_utils import _token
from ansible_collections.gpushare.eks.plugins.module_utils._errors import (
    InvalidInput,
    NoCredentials,
)

NOW = 1_793_000_000.0


@pytest.fixture(autouse=True)
def _no_ambient_aws(monkeypatch, tmp_path):
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def session(**more):
    return boto3.session.Session(
        aws_access_key_id="AKIDEXAMPLEKEY00", aws_secret_access_key="example-secret-key", **more
    )


def url_of(token: str) -> str:
    assert token.startswith("k8s-aws-v1.")
    body = token.removeprefix("k8s-aws-v1.")
    assert "=" not in body
    return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode()


@pytest.mark.parametrize("session_token", [None, "a+session/token=="])
@pytest.mark.parametrize(
    "endpoint", ["https://sts.eu-west-1.amazonaws.com", "http://127.0.0.1:5001"]
)
def test_signature_equals_botocores(monkeypatch, endpoint, session_token):
    moment = datetime.datetime.fromtimestamp(NOW, tz=datetime.UTC)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda *a, **k: moment)
    request = AWSRequest(
        "GET",
        f"{endpoint}/?Action=GetCallerIdentity&Version=2011-06-15",
        headers={"x-k8s-aws-id": "demo"},
    )
    credentials = Credentials("AKIDEXAMPLEKEY00", "example-secret-key", session_token)
    SigV4QueryAuth(credentials, "sts", "eu-west-1", expires=60).add_auth(request)
    ours = _token.presign(
        endpoint_url=endpoint,
        region="eu-west-1",
        access_key="AKIDEXAMPLEKEY00",
        secret_key="example-secret-key",
        session_token=session_token,
        cluster_name="demo",
        now=NOW,
    )
    assert parse_qs(urlsplit(ours).query) == parse_qs(urlsplit(request.url).query)
    assert urlsplit(ours)[:3] == urlsplit(request.url)[:3]


def test_session_and_client_mint_the_same():
    ours = session(region_name="us-east-1")
    by_session = _token.mint(ours, "demo", clock=lambda: NOW)
    by_client = _token.mint(ours.client("sts"), "demo", clock=lambda: NOW)
    assert by_session == by_client
    url = urlsplit(url_of(by_session))
    assert url.netloc == "sts.us-east-1.amazonaws.com"
    assert parse_qs(url.query)["X-Amz-Expires"] == ["60"]
    assert parse_qs(url.query)["X-Amz-SignedHeaders"] == ["host;x-k8s-aws-id"]


def test_china_and_endpoint_variable(monkeypatch):
    token = _token.mint(session(), "demo", "cn-north-1", clock=lambda: NOW)
    assert urlsplit(url_of(token)).netloc == "sts.cn-north-1.amazonaws.com.cn"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:5001")
    token = _token.mint(session(), "demo", "us-east-1", clock=lambda: NOW)
    assert url_of(token).startswith("http://127.0.0.1:5001/?")


def test_no_credentials_is_typed():
    with pytest.raises(NoCredentials, match="demo") as caught:
        _token.mint(boto3.session.Session(region_name="us-east-1"), "demo")
    assert "AWS_PROFILE" in caught.value.remedy


def test_no_region_is_typed(monkeypatch):
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.delenv("AWS_REGION", raising=False)
    with pytest.raises(InvalidInput):
        _token.mint(session(), "demo")


def test_no_name_is_refused():
    with pytest.raises(InvalidInput, match="cluster name"):
        _token.mint(session(region_name="us-east-1"), "")


def test_source_renews_after_14_minutes():
    now = [NOW]
    source = _token.TokenSource(session(region_name="us-east-1"), "demo", clock=lambda: now[0])
    first = source.token()
    now[0] += 839
    assert source.token() == first
    now[0] += 1
    second = source.token()
    assert second != first
    now[0] -= 3600
    assert source.token() != second
