"""Who holds an access key, by moto's IAM and STS, read in this process."""

from __future__ import annotations

from moto.iam.models import iam_backends
from moto.sts.models import sts_backends

from lab.aws import ACCOUNT_ID, SERVICE_ACCESS_KEY


def principal_of(access_key: str, partition: str = "aws") -> str:
    """The ARN as GetCallerIdentity would say it; empty for a key that nobody holds."""
    if access_key == SERVICE_ACCESS_KEY:
        return "eks.amazonaws.com"
    for user in list(iam_backends[ACCOUNT_ID][partition].users.values()):
        if any(key.access_key_id == access_key for key in user.access_keys):
            return str(user.arn)
    for session in list(sts_backends[ACCOUNT_ID][partition].assumed_roles):
        if session.access_key_id == access_key:
            return str(session.arn)
    return ""
