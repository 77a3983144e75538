"""AWS services of the lab that moto does not have, and the words they share."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

ACCOUNT_ID = "123456789012"
# Calls that our own EKS makes to EC2, IAM and Auto Scaling carry this key: they are told apart
# from a user's calls, and no fault is injected into them.
SERVICE_ACCESS_KEY = "LABSERVICEEKS"


@dataclass(frozen=True)
class Context:
    """Who calls, and where: handed to every operation."""

    region: str = "us-east-1"
    account_id: str = ACCOUNT_ID
    access_key: str = ""
    principal_arn: str = ""
    time: float = field(default_factory=time.time)

    @property
    def partition(self) -> str:
        """aws, aws-cn or aws-us-gov, by the region's name."""
        if self.region.startswith("cn-"):
            return "aws-cn"
        return "aws-us-gov" if self.region.startswith("us-gov-") else "aws"


class ServiceError(Exception):
    """An error that the service answers: `code` as its API model names it, plus modelled fields."""

    def __init__(self, code: str, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fields = fields
