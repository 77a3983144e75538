"""eks_pod_identity_association: found by namespace and service account, exact calls, refusals."""

from __future__ import annotations

import json

import pytest

ROLE = "arn:aws:iam::123456789012:role/team"
OTHER = "arn:aws:iam::123456789012:role/other"
OURS = {"gpushare.eks/cluster": "demo"}
KIND = "pod_identity_association"
POLICY = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*"}]}


def existing(eks, place="team/worker", number="a-9", **more):
    namespace, account = place.split("/")
    where = {"namespace": namespace, "serviceAccount": account}
    return eks.add(KIND, number, **{**where, "roleArn": ROLE, "tags": dict(OURS), **more})


def wanted(place="team/worker", **more):
    namespace, account = place.split("/")
    return {"namespace": namespace, "service_account": account, "role_arn": ROLE, **more}


def call(run_module, *associations, **options):
    return run_module(
        "eks_pod_identity_association",
        cluster_name="demo",
        associations=list(associations),
        **options,
    )


def test_create_and_find_it_again(run_module, eks):
    result = call(run_module, wanted(tags={"a": 1}))
    assert result["changed"]
    assert eks.params("create_pod_identity_association") == [
        {
            "clusterName": "demo",
            "namespace": "team",
            "serviceAccount": "worker",
            "roleArn": ROLE,
            "tags": {"a": "1", **OURS},
        }
    ]
    [one] = result["associations"]
    assert (one["exists"], one["namespace"], one["service_account"]) == (True, "team", "worker")
    assert one["id"] == "a-1"
    again = call(run_module, wanted(tags={"a": 1}))
    assert not again["changed"]
    assert again["associations"] == result["associations"]


def test_unchanged_is_two_reads(run_module, eks):
    existing(eks)
    assert not call(run_module, wanted())["changed"]
    assert eks.counts() == {
        "list_pod_identity_associations": 1,
        "describe_pod_identity_association": 1,
    }


def test_only_what_differs_is_sent_to_the_number_of_it(run_module, eks):
    existing(eks, place="team/another", number="a-8")
    existing(eks)
    result = call(run_module, wanted(role_arn=OTHER, disable_session_tags=True))
    assert result["changed"]
    assert eks.writes() == [
        (
            "update_pod_identity_association",
            {
                "clusterName": "demo",
                "associationId": "a-9",
                "roleArn": OTHER,
                "disableSessionTags": True,
            },
        )
    ]
    assert result["diff"][0]["before"]["role_arn"] == ROLE
    assert result["diff"][0]["after"]["role_arn"] == OTHER
    assert "team/worker" in result["diff"][0]["before_header"]


def test_a_policy_is_compared_as_data(run_module, eks):
    spaced = json.dumps(POLICY, indent=2)
    existing(eks, policy=spaced, disableSessionTags=True)
    assert not call(run_module, wanted(policy=POLICY))["changed"]
    narrower = {**POLICY, "Statement": [{"Effect": "Allow", "Action": "s3:GetObject"}]}
    assert call(run_module, wanted(policy=narrower))["changed"]
    (request,) = eks.params("update_pod_identity_association")
    assert json.loads(request["policy"]) == narrower


def test_adopting_adds_our_tag_and_keeps_others(run_module, eks):
    raw = existing(eks, tags={"theirs": "1"})
    assert call(run_module, wanted())["changed"]
    assert raw["tags"] == {"theirs": "1", **OURS}
    assert [name for name, _params in eks.writes()] == ["tag_resource"]
    assert call(run_module, wanted(tags={"b": "2"}))["changed"]
    assert raw["tags"] == {"b": "2", **OURS}


def test_a_race_on_creation_takes_up_the_others(run_module, eks):
    from tests.unit.eks_fake import refusal

    original = eks._create_pod_identity_association

    def raced(params):
        eks._create_pod_identity_association = original
        original({**params, "roleArn": OTHER})
        raise refusal("ResourceInUseException", "Association already exists")

    eks._create_pod_identity_association = raced
    result = call(run_module, wanted())
    assert not result.get("failed")
    assert eks.objects[KIND]["a-1"]["roleArn"] == ROLE


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"namespace": "Team"}, "namespace"),
        ({"namespace": "a.b"}, "namespace"),
        ({"service_account": "a_b"}, "service_account"),
        ({"service_account": "a/b"}, "service_account"),
        ({"role_arn": "team"}, "role_arn"),
        ({"role_arn": "arn:aws:iam::123456789012:user/x"}, "role_arn"),
        ({"role_arn": None}, "role_arn"),
        ({"target_role_arn": "arn:aws:sts::123456789012:assumed-role/a/b"}, "target_role_arn"),
    ],
)
def test_refused_before_the_first_call(run_module, eks, bad, field):
    result = call(run_module, {**wanted(), **bad})
    assert result["error"]["type"] == "InvalidInput"
    assert result["error"]["field"] == field
    assert result["error"]["remedy"]
    assert eks.calls == []


def test_twice_in_the_list_is_refused(run_module, eks):
    result = call(run_module, wanted(), wanted(role_arn=OTHER))
    assert "team/worker more than once" in result["msg"]
    assert eks.calls == []


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("there", [True, False])
def test_a_policy_needs_eks_to_leave_out_its_tags(run_module, eks, there, check):
    if there:
        existing(eks)
    result = call(run_module, wanted(policy=POLICY), check=check)
    assert result["error"]["field"] == "disable_session_tags"
    assert eks.writes() == []
    assert call(run_module, wanted(policy=POLICY, disable_session_tags=True))["changed"]


@pytest.mark.parametrize(("field", "empty"), [("target_role_arn", ""), ("policy", {})])
def test_what_eks_cannot_take_away_is_refused(run_module, eks, field, empty):
    existing(eks, targetRoleArn=OTHER, policy=json.dumps(POLICY), disableSessionTags=True)
    result = call(run_module, wanted(**{field: empty}))
    assert result["error"]["field"] == field
    assert "state: absent" in result["msg"]
    assert eks.writes() == []


@pytest.mark.parametrize("options", [{}, {"state": "absent"}])
def test_an_add_ons_association_is_left_alone(run_module, eks, options):
    owner = "arn:aws:eks:us-east-1:123456789012:addon/demo/aws-ebs-csi-driver/1"
    existing(eks, ownerArn=owner)
    result = call(run_module, wanted(role_arn=OTHER), **options)
    assert result["error"]["type"] == "Conflict"
    assert owner in result["msg"]
    assert eks.writes() == []


def test_check_mode_has_the_same_diff_and_shape(run_module, eks):
    planned = call(run_module, wanted(), check=True)
    assert eks.writes() == []
    assert planned["changed"]
    assert not planned["associations"][0]["exists"]
    made = call(run_module, wanted())
    assert set(planned["associations"][0]) == set(made["associations"][0])
    planned = call(run_module, wanted(role_arn=OTHER), check=True)
    assert planned["diff"] == call(run_module, wanted(role_arn=OTHER))["diff"]


def test_check_mode_without_a_cluster_plans(run_module, eks):
    from tests.unit.eks_fake import refusal

    missing = refusal("ResourceNotFoundException", "No cluster found for name: demo.")
    eks.errors["list_pod_identity_associations"] = [missing]
    assert call(run_module, wanted(), check=True)["changed"]
    assert eks.writes() == []


def test_absent_and_purge_take_only_ours(run_module, eks):
    existing(eks)
    existing(eks, place="team/second", number="a-8")
    existing(eks, place="team/foreign", number="a-7", tags={})
    assert call(run_module, wanted(), purge=True)["removed"] == ["team/second"]
    gone = call(run_module, {"namespace": "team", "service_account": "worker"}, state="absent")
    assert gone["removed"] == ["team/worker"]
    assert eks.params("delete_pod_identity_association")[-1]["associationId"] == "a-9"
    assert list(eks.objects[KIND]) == ["a-7"]
    again = call(run_module, {"namespace": "team", "service_account": "worker"}, state="absent")
    assert not again["changed"]


def test_one_that_fails_does_not_stop_the_others(run_module, eks):
    from tests.unit.eks_fake import refusal

    text = "User: u is not authorized to perform: iam:PassRole on resource: r"
    eks.errors["create_pod_identity_association"] = [refusal("AccessDeniedException", text)]
    result = call(run_module, wanted(), wanted("team/second"), wanted("team/third"))
    assert result["failed"]
    assert result["changed"]
    assert len(result["associations"]) == 2
    assert "iam:PassRole" in result["msg"]
