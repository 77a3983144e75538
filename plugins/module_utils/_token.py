# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bearer tokens of EKS: a presigned STS GetCallerIdentity that names the cluster in a header.

Signed here (Signature Version 4, query form) instead of by a boto3 client: no service model to
load and no private interface, and a token is minted for every task that speaks Kubernetes.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from ansible_collections.gpushare.eks.plugins.module_utils._errors import (
    InvalidInput,
    NoCredentials,
    aws_errors,
)

PREFIX = "k8s-aws-v1."
CLUSTER_HEADER = "x-k8s-aws-id"
# What `aws eks get-token` signs; EKS itself accepts a token for 15 minutes after X-Amz-Date.
_EXPIRES_S = 60
_RENEW_AFTER_S = 14 * 60
_EMPTY = hashlib.sha256(b"").hexdigest()


def presign(
    *,
    endpoint_url: str,
    region: str,
    access_key: str,
    secret_key: str,
    session_token: str | None,
    cluster_name: str,
    now: float,
) -> str:
    """The presigned URL. now: seconds since the epoch; endpoint_url: of STS in that region."""
    instant = time.gmtime(now)
    stamp, day = time.strftime("%Y%m%dT%H%M%SZ", instant), time.strftime("%Y%m%d", instant)
    scope = f"{day}/{region}/sts/aws4_request"
    url = urlsplit(endpoint_url)
    path = url.path or "/"
    host = url.hostname or ""
    if url.port and (url.scheme, url.port) not in {("https", 443), ("http", 80)}:
        host = f"{host}:{url.port}"
    query = {
        "Action": "GetCallerIdentity",
        "Version": "2011-06-15",
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{access_key}/{scope}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": str(_EXPIRES_S),
        "X-Amz-SignedHeaders": f"host;{CLUSTER_HEADER}",
    }
    if session_token:
        query["X-Amz-Security-Token"] = session_token
    encoded = urlencode(sorted(query.items()), quote_via=quote, safe="-_.~")
    headers = f"host:{host}\n{CLUSTER_HEADER}:{cluster_name}\n"
    request = "\n".join(["GET", path, encoded, headers, f"host;{CLUSTER_HEADER}", _EMPTY])
    digest = hashlib.sha256(request.encode()).hexdigest()
    key = f"AWS4{secret_key}".encode()
    for part in (day, region, "sts", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    to_sign = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, digest])
    signature = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    return f"{url.scheme}://{host}{path}?{encoded}&X-Amz-Signature={signature}"


def encode(url: str) -> str:
    """The token of a presigned URL: base64url without padding behind EKS's prefix."""
    return PREFIX + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def mint(
    source: Any,
    cluster_name: str,
    region: str | None = None,
    *,
    endpoint_url: str | None = None,
    clock: Callable[[], float] = time.time,
) -> str:
    """A fresh token for one cluster. source: a boto3 session, or an STS client of boto3.

    region defaults to the source's. AWS_ENDPOINT_URL is honoured, as by any client of boto3.
    Raises NoCredentials or InvalidInput.
    """
    what = f"token for EKS cluster {cluster_name}"
    if not cluster_name:
        raise InvalidInput(
            "No cluster name for the EKS token",
            remedy="give the name of the cluster",
            field="cluster_name",
        )
    with aws_errors(what):
        is_client = hasattr(source, "meta") and hasattr(source.meta, "endpoint_url")
        if is_client:
            client, credentials = source, source._get_credentials()
        else:
            client, credentials = None, source.get_credentials()
        if credentials is None:
            raise NoCredentials(
                f"No AWS credentials for the {what}",
                object=what,
                remedy="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; "
                "for the lab run `. .lab/env`",
            )
        frozen = credentials.get_frozen_credentials()
        if client is None:
            client = source.client("sts", region_name=region, endpoint_url=endpoint_url)
        region = region or client.meta.region_name
        # Without a region STS is the global endpoint, whose tokens EKS does not take everywhere.
        if region in (None, "aws-global"):
            raise InvalidInput(
                f"No AWS region for the {what}",
                object=what,
                remedy="set the option region or AWS_REGION",
                field="region",
            )
        return encode(
            presign(
                endpoint_url=endpoint_url or client.meta.endpoint_url,
                region=region,
                access_key=frozen.access_key,
                secret_key=frozen.secret_key,
                session_token=frozen.token,
                cluster_name=cluster_name,
                now=clock(),
            )
        )


class TokenSource:
    """Tokens of one cluster for a long run: renewed when 14 minutes old, usable from threads."""

    def __init__(
        self,
        source: Any,
        cluster_name: str,
        region: str | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._source = source
        self._cluster_name = cluster_name
        self._region = region
        self._clock = clock
        self._lock = threading.Lock()
        self._token = ""
        self._minted_at = 0.0

    def token(self) -> str:
        """A token that is good for at least one more minute."""
        with self._lock:
            now = self._clock()
            # A clock that was set back makes the age meaningless: renew then, too.
            if not self._token or not 0 <= now - self._minted_at < _RENEW_AFTER_S:
                self._token = mint(
                    self._source, self._cluster_name, self._region, clock=lambda: now
                )
                self._minted_at = now
            return self._token
