"""Pod Identity associations of the lab, through real boto3 clients."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError
from eks_helpers import eventually, fresh

WHERE = {"clusterName": "demo", "namespace": "team", "serviceAccount": "worker"}


@pytest.fixture
def lab(daemon):
    made = fresh(daemon)
    made.cluster()
    return made


def refused(code, call, **arguments):
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    assert caught.value.response["Error"]["Code"] == code
    return caught.value.response["Error"]["Message"]


def rows(lab, **narrowed):
    answer = lab.eks.list_pod_identity_associations(clusterName="demo", **narrowed)
    return [row["associationId"] for row in answer["associations"]]


def test_from_creation_to_deletion(lab):
    role, other = lab.role("pod"), lab.role("other")
    create = lab.eks.create_pod_identity_association
    made = create(**WHERE, roleArn=role, tags={"a": "b"})["association"]
    assert made["associationArn"].endswith(f"podidentityassociation/demo/{made['associationId']}")
    told = refused("ResourceInUseException", create, **WHERE, roleArn=role)
    assert made["associationId"] in told
    second = create(**{**WHERE, "serviceAccount": "second"}, roleArn=role)["association"]
    both = [made["associationId"], second["associationId"]]
    assert rows(lab) == both
    assert rows(lab, namespace="team", serviceAccount="second") == both[1:]
    assert rows(lab, namespace="elsewhere") == []
    one = {"clusterName": "demo", "associationId": made["associationId"]}
    target = "arn:aws:iam::999999999999:role/far"
    lab.eks.update_pod_identity_association(
        **one, roleArn=other, targetRoleArn=target, disableSessionTags=True, policy="{}"
    )
    found = lab.eks.describe_pod_identity_association(**one)["association"]
    assert (found["roleArn"], found["targetRoleArn"]) == (other, target)
    assert found["disableSessionTags"] is True
    assert found["externalId"]
    assert (found["policy"], found["tags"]) == ("{}", {"a": "b"})
    lab.eks.tag_resource(resourceArn=made["associationArn"], tags={"c": "d"})
    tags = lab.eks.list_tags_for_resource(resourceArn=made["associationArn"])["tags"]
    assert tags == {"a": "b", "c": "d"}
    lab.eks.delete_pod_identity_association(**one)
    for call in ("describe", "delete"):
        method = getattr(lab.eks, f"{call}_pod_identity_association")
        refused("ResourceNotFoundException", method, **one)
    lab.eks.delete_cluster(name="demo")
    eventually(lambda: lab.eks.list_clusters()["clusters"] == [])
    refused("ResourceNotFoundException", rows, lab=lab)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"roleArn": "arn:aws:iam::123456789012:role/nobody"}, "nobody"),
        ({"policy": "{}"}, "disableSessionTags"),
        ({"policy": "{", "disableSessionTags": True}, "JSON"),
    ],
)
def test_bad_ones_are_refused_at_creation_and_later(lab, change, word):
    role = lab.role("pod")
    create = lab.eks.create_pod_identity_association
    assert word in refused(
        "InvalidParameterException", create, **WHERE, **{"roleArn": role} | change
    )
    assert rows(lab) == []
    made = create(**WHERE, roleArn=role)["association"]
    one = {"clusterName": "demo", "associationId": made["associationId"]}
    update = lab.eks.update_pod_identity_association
    assert word in refused("InvalidParameterException", update, **one, **change)
    assert "at least one" in refused("InvalidParameterException", update, **one)
    assert lab.eks.describe_pod_identity_association(**one)["association"] == made
