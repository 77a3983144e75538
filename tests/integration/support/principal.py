"""Who the main job runs as: a session of a role with the policies of policies.yml alone."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import Any

import boto3
import requests

from . import least, playbook

CALLBACKS = Path(__file__).with_name("callbacks")
ADMIN_POLICY = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"


class Principal:
    """The role `<name>-runner`, below a path, with a session; it keeps what its calls wanted."""

    def __init__(self, name: str, documents: list[dict[str, Any]], times: Path) -> None:
        self.name, self.documents, self.times = f"{name}-runner", documents, times
        self.calls: list[least.Call] = []
        self._iam, self._seen = boto3.client("iam"), set()
        self.env: dict[str, str] = {}

    def make(self) -> None:
        me = boto3.client("sts").get_caller_identity()["Arn"]
        trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": me}}
        self._arn = self._iam.create_role(
            RoleName=self.name,
            Path="/ci/",
            AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]}),
        )["Role"]["Arn"]
        for one in self.documents:
            policy = self._iam.create_policy(
                PolicyName=one["name"], PolicyDocument=json.dumps(one["document"])
            )["Policy"]["Arn"]
            self._iam.attach_role_policy(RoleName=self.name, PolicyArn=policy)
        given = boto3.client("sts").assume_role(RoleArn=self._arn, RoleSessionName="main-job")
        keys = given["Credentials"]
        self.env = {
            "AWS_ACCESS_KEY_ID": keys["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": keys["SecretAccessKey"],
            "AWS_SESSION_TOKEN": keys["SessionToken"],
            "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS),
            "ANSIBLE_CALLBACKS_ENABLED": "task_times",
            "GPUSHARE_TASK_TIMES": str(self.times),
        }

    def session(self) -> boto3.Session:
        return boto3.Session(
            aws_access_key_id=self.env["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.env["AWS_SECRET_ACCESS_KEY"],
            aws_session_token=self.env["AWS_SESSION_TOKEN"],
        )

    def run(self, name: str, *more: str, **options: Any) -> playbook.Run:
        """A playbook as this principal; what its calls wanted is kept."""
        done = playbook.run(name, *more, env=self.env, **options)
        self.keep()
        return done

    def keep(self) -> None:
        """Take over what the lab has recorded since the last time."""
        url = f"{os.environ['AWS_ENDPOINT_URL']}/_lab/calls"
        who = {"access_key": self.env["AWS_ACCESS_KEY_ID"]}
        rows = requests.get(url, params=who, timeout=60).json()["calls"]
        new = [row for row in rows if (row["time"], row["operation"]) not in self._seen]
        self._seen |= {(row["time"], row["operation"]) for row in new}
        self.calls += least.calls(new, self.times)

    def documents_of(self, role: str) -> list[dict[str, Any]]:
        """The policy of one role, in as many documents as it has."""
        name = re.compile(rf"gpushare-.+-{role}(-\d+)?")
        return [one["document"] for one in self.documents if name.fullmatch(one["name"])]

    def deny(self, action: str | None) -> None:
        """Deny one action, whatever the policies allow; None takes that back."""
        where = {"RoleName": self.name, "PolicyName": "deny"}
        if action is None:
            self._iam.delete_role_policy(**where)
            return
        row = {"Effect": "Deny", "Action": action, "Resource": "*"}
        document = {"Version": "2012-10-17", "Statement": [row]}
        self._iam.put_role_policy(**where, PolicyDocument=json.dumps(document))

    def let_in(self, cluster_name: str) -> None:
        """Let this process into the cluster, which the principal made and who else cannot enter."""
        eks, me = boto3.client("eks"), boto3.client("sts").get_caller_identity()["Arn"]
        eks.create_access_entry(clusterName=cluster_name, principalArn=me)
        eks.associate_access_policy(
            clusterName=cluster_name,
            principalArn=me,
            policyArn=ADMIN_POLICY,
            accessScope={"type": "cluster"},
        )

    def remove(self) -> None:
        with contextlib.suppress(self._iam.exceptions.NoSuchEntityException):
            attached = self._iam.list_attached_role_policies(RoleName=self.name)
            for one in attached["AttachedPolicies"]:
                self._iam.detach_role_policy(RoleName=self.name, PolicyArn=one["PolicyArn"])
                self._iam.delete_policy(PolicyArn=one["PolicyArn"])
            self._iam.delete_role(RoleName=self.name)


def written(folder: Path, cluster_name: str) -> list[dict[str, Any]]:
    """[{"name", "document"}] as policies.yml wrote them."""
    files = sorted(folder.glob(f"gpushare-{cluster_name}-*.json"))
    return [{"name": one.stem, "document": json.loads(one.read_text())} for one in files]
