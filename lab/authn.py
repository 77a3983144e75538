"""The lab's way into its API servers: a TokenReview webhook that accepts tokens as EKS does.

A token is `k8s-aws-v1.` and, in base64url, a presigned STS GetCallerIdentity whose signature
covers the header x-k8s-aws-id with the cluster's name. EKS hands the URL to STS; here the
signature is computed again with the secret that moto's IAM or STS keeps for the access key.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hmac
import re
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from moto.iam.models import iam_backends
from moto.sts.models import sts_backends

from lab.aws import ACCOUNT_ID
from lab.aws.identity import principal_of

PREFIX = "k8s-aws-v1."
CLUSTER_HEADER = "x-k8s-aws-id"
_LIFE = datetime.timedelta(minutes=15)
# A client's clock may be a little ahead of ours.
_SKEW = datetime.timedelta(minutes=5)
_MAX_EXPIRES_S = 900
_REQUIRED = frozenset(
    {
        "Action",
        "Version",
        "X-Amz-Algorithm",
        "X-Amz-Credential",
        "X-Amz-Date",
        "X-Amz-Expires",
        "X-Amz-SignedHeaders",
        "X-Amz-Signature",
    }
)
_ALLOWED = _REQUIRED | {"X-Amz-Security-Token"}
_STS_HOST = re.compile(r"sts(-fips)?(\.[a-z0-9-]+)?\.amazonaws\.com(\.cn)?")
_LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost)(:\d+)?")
_SCOPE = re.compile(r"([^/]+)/(\d{8})/([a-z0-9-]+)/sts/aws4_request")


class TokenError(Exception):
    """Why a token is refused."""


class Identity(Protocol):
    """What is needed of a cluster: its access entries, by a principal's ARN."""

    def identify(self, principal_arn: str) -> dict[str, Any] | None: ...


class Clusters(Protocol):
    """What is needed of the registry of clusters."""

    def get(self, name: str) -> Identity | None: ...


@dataclass(frozen=True)
class _Key:
    secret: str
    session_token: str | None


def handle_token_review(cluster_name: str, body: dict[str, Any], registry: Clusters) -> dict:
    """Answer a TokenReview v1 for one cluster: authenticated with a user, or not and why."""
    review = {"apiVersion": body.get("apiVersion", "authentication.k8s.io/v1")}
    review["kind"] = "TokenReview"
    try:
        token = (body.get("spec") or {}).get("token") or ""
        principal = verify(token, cluster_name)
        cluster = registry.get(cluster_name)
        if cluster is None:
            raise TokenError(f"there is no cluster {cluster_name}")
        user = cluster.identify(principal)
        if user is None:
            raise TokenError(f"{principal} has no access entry in {cluster_name}")
    except TokenError as error:
        return {**review, "status": {"authenticated": False, "error": str(error)}}
    extra = {"arn": [principal], "canonicalArn": [principal]}
    return {**review, "status": {"authenticated": True, "user": {**user, "extra": extra}}}


def verify(token: str, cluster_name: str, now: datetime.datetime | None = None) -> str:
    """The caller's ARN. Raises TokenError for a token that is not good for this cluster, now."""
    now = now or datetime.datetime.now(datetime.UTC)
    url = _decode(token)
    parts, query = urlsplit(url), _query(url)
    if not (_STS_HOST.fullmatch(parts.netloc) or _LOOPBACK.fullmatch(parts.netloc)):
        raise TokenError(f"{parts.netloc} is no STS endpoint")
    if parts.path not in ("", "/"):
        raise TokenError(f"unexpected path {parts.path}")
    if query["Action"] != "GetCallerIdentity":
        raise TokenError(f"unexpected action {query['Action']}")
    if query["X-Amz-Algorithm"] != "AWS4-HMAC-SHA256":
        raise TokenError(f"unexpected algorithm {query['X-Amz-Algorithm']}")
    signed = set(query["X-Amz-SignedHeaders"].lower().split(";"))
    if not {"host", CLUSTER_HEADER} <= signed:
        raise TokenError(f"the token does not sign host and {CLUSTER_HEADER}")
    if signed != {"host", CLUSTER_HEADER}:
        raise TokenError(f"the token signs headers that EKS does not send: {sorted(signed)}")
    _check_time(query, now)
    scope = _SCOPE.fullmatch(query["X-Amz-Credential"])
    if scope is None or not query["X-Amz-Date"].startswith(scope[2]):
        raise TokenError("the token's credential scope is not one of STS on that day")
    access_key, _, region = scope.groups()
    partition = "aws-cn" if region.startswith("cn-") else "aws"
    partition = "aws-us-gov" if region.startswith("us-gov-") else partition
    key = _key(access_key, partition)
    if query.get("X-Amz-Security-Token") != key.session_token:
        raise TokenError(f"the session token is not the one of access key {access_key}")
    wanted = _signature(url, query, cluster_name, access_key, key, region)
    if not hmac.compare_digest(wanted, query["X-Amz-Signature"]):
        raise TokenError(f"the signature is not valid for cluster {cluster_name}")
    return principal_of(access_key, partition)


def _decode(token: str) -> str:
    if not token.startswith(PREFIX):
        raise TokenError(f"the token does not begin with {PREFIX}")
    text = token.removeprefix(PREFIX)
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return raw.decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise TokenError("the token is not base64url of a URL") from error


def _query(url: str) -> dict[str, str]:
    pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    query = dict(pairs)
    if len(query) != len(pairs):
        raise TokenError("a query parameter stands twice")
    if unknown := sorted(set(query) - _ALLOWED):
        raise TokenError(f"query parameters that are not allowed: {', '.join(unknown)}")
    if missing := sorted(_REQUIRED - set(query)):
        raise TokenError(f"the URL is not presigned: it lacks {', '.join(missing)}")
    return query


def _check_time(query: dict[str, str], now: datetime.datetime) -> None:
    try:
        signed = datetime.datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ")
        expires = int(query["X-Amz-Expires"])
    except ValueError as error:
        raise TokenError("X-Amz-Date or X-Amz-Expires cannot be read") from error
    if not 0 <= expires <= _MAX_EXPIRES_S:
        raise TokenError(f"X-Amz-Expires {expires} is not in 0..{_MAX_EXPIRES_S}")
    age = now - signed.replace(tzinfo=datetime.UTC)
    # Not X-Amz-Expires: `aws eks get-token` signs 60 s, and EKS takes the token for 15 minutes.
    if age > _LIFE:
        raise TokenError(f"the token expired: it was signed {age.total_seconds():.0f} s ago")
    if age < -_SKEW:
        raise TokenError(f"the token is signed {-age.total_seconds():.0f} s ahead of our clock")


def _key(access_key: str, partition: str) -> _Key:
    for user in list(iam_backends[ACCOUNT_ID][partition].users.values()):
        for key in user.access_keys:
            if key.access_key_id == access_key and key.status == "Active":
                return _Key(key.secret_access_key, None)
    for session in list(sts_backends[ACCOUNT_ID][partition].assumed_roles):
        alive = session.expiration.replace(tzinfo=datetime.UTC) > datetime.datetime.now(
            datetime.UTC
        )
        if session.access_key_id == access_key and alive:
            return _Key(session.secret_access_key, session.session_token)
    raise TokenError(f"access key {access_key} is not known, not active or expired")


def _signature(
    url: str, query: dict[str, str], cluster_name: str, access_key: str, key: _Key, region: str
) -> str:
    """The signature that the holder of the key gives this URL and this cluster's name."""
    parts = urlsplit(url)
    unsigned = "&".join(p for p in parts.query.split("&") if not p.startswith("X-Amz-Signature="))
    headers = {"host": parts.netloc, CLUSTER_HEADER: cluster_name}
    request = AWSRequest("GET", f"{parts.scheme}://{parts.netloc}/?{unsigned}", headers)
    request.context["timestamp"] = query["X-Amz-Date"]
    credentials = Credentials(access_key, key.secret, key.session_token)
    signer = SigV4QueryAuth(credentials, "sts", region)
    canonical = signer.canonical_request(request)
    return signer.signature(signer.string_to_sign(request, canonical), request)
