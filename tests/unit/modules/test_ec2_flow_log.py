"""ec2_flow_log: {absent, present} x {missing, same, differs} x {check, real}, waits, refusals."""

from __future__ import annotations

import functools

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import _flow_logs
from ansible_collections.gpushare.eks.plugins.module_utils._wait import wait_for
from ansible_collections.gpushare.eks.plugins.modules import ec2_flow_log
from tests.unit.eks_fake import FakeService, refusal

VPC, GROUP = "vpc-0123456789abcdef0", "/aws/vpc/demo"
ROLE = "arn:aws:iam::123456789012:role/demo-flow-logs"
OURS = {"gpushare.eks/cluster": "demo"}
NOT_YET = refusal("InvalidParameter", "Unable to assume given IAM role", "CreateFlowLogs")


def tag_list(tags):
    return [{"Key": key, "Value": value} for key, value in tags.items()]


class FakeEc2(FakeService):
    service = "ec2"

    def __init__(self):
        super().__init__()
        self.logs = {}
        self.unsuccessful = []
        self.status = "SUCCESS"

    def put(self, resource=VPC, group=GROUP, tags=OURS, **more):
        number = f"fl-{len(self.logs)}"
        self.logs[number] = {
            "FlowLogId": number,
            "ResourceId": resource,
            "LogGroupName": group,
            "DeliverLogsPermissionArn": ROLE,
            "TrafficType": "ALL",
            "MaxAggregationInterval": 600,
            "LogFormat": "${version}",
            "DeliverLogsStatus": self.status,
            "Tags": tag_list(tags),
            **more,
        }
        return number

    def answer(self, name, params):
        return getattr(self, f"_{name}")(**params)

    def _describe_flow_logs(self, Filter):
        found = list(self.logs.values())
        for one in Filter:
            kind, values = one["Name"], one["Values"]
            member = {"resource-id": "ResourceId", "log-group-name": "LogGroupName"}.get(kind)
            if member:
                found = [log for log in found if log[member] in values]
            else:
                tag = {"Key": kind.removeprefix("tag:"), "Value": values[0]}
                found = [log for log in found if tag in log["Tags"]]
        return {"FlowLogs": found}

    def _create_flow_logs(self, ResourceIds, TagSpecifications, **params):
        if self.unsuccessful:
            return {"FlowLogIds": [], "Unsuccessful": self.unsuccessful}
        assert params["ResourceType"] == "VPC"
        tags = {tag["Key"]: tag["Value"] for tag in TagSpecifications[0]["Tags"]}
        more = {k: v for k, v in params.items() if k not in ("ResourceType", "LogDestinationType")}
        group = more.pop("LogGroupName")
        number = self.put(ResourceIds[0], group, tags, **more)
        return {"FlowLogIds": [number], "Unsuccessful": []}

    def _delete_flow_logs(self, FlowLogIds):
        for number in FlowLogIds:
            del self.logs[number]
        return {"Unsuccessful": []}

    def _create_tags(self, Resources, Tags):
        log = self.logs[Resources[0]]
        there = {tag["Key"]: tag["Value"] for tag in log["Tags"]}
        log["Tags"] = tag_list(there | {tag["Key"]: tag["Value"] for tag in Tags})

    def _delete_tags(self, Resources, Tags):
        gone = {tag["Key"] for tag in Tags}
        log = self.logs[Resources[0]]
        log["Tags"] = [tag for tag in log["Tags"] if tag["Key"] not in gone]

    def writes(self):
        return [name for name, _params in self.calls if not name.startswith("describe")]


@pytest.fixture
def ec2():
    return FakeEc2()


@pytest.fixture
def go(run_module, monkeypatch, ec2, clock):
    timed = functools.partial(wait_for, clock=clock, sleep=clock.sleep)
    kept = functools.partial(_flow_logs.keep, wait=timed)
    monkeypatch.setattr(ec2_flow_log, "keep", kept)

    def go(*logs, check=False, **options):
        wanted = [
            {"resource_id": VPC, "log_group_name": GROUP, "role_arn": ROLE, **o} for o in logs
        ]
        return run_module(
            "ec2_flow_log",
            check=check,
            clients={"ec2": ec2},
            cluster_name="demo",
            flow_logs=wanted,
            **options,
        )

    return go


@pytest.mark.parametrize("check", [True, False])
def test_one_that_is_missing_is_made_with_our_tag(go, ec2, check):
    result = go({"tags": {"team": "ml"}}, check=check)
    assert result["changed"]
    assert result["diff"][0]["before"] == {}
    assert result["flow_logs"][0]["tags"] == {**OURS, "team": "ml"}
    assert ec2.writes() == ([] if check else ["create_flow_logs"])
    if not check:
        assert not go({"tags": {"team": "ml"}})["changed"]


def test_one_that_is_as_wanted_is_left(go, ec2):
    ec2.put()
    assert not go({})["changed"]
    assert ec2.writes() == []


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("traffic_type", "REJECT"),
        ("max_aggregation_interval", 60),
        ("log_format", "${srcaddr}"),
        ("role_arn", ROLE + "-other"),
    ],
)
def test_a_change_makes_it_again(go, ec2, option, value, check):
    ec2.put()
    result = go({option: value}, check=check)
    assert result["diff"][0]["after"][option] == value
    assert ec2.writes() == ([] if check else ["delete_flow_logs", "create_flow_logs"])
    if not check:
        assert not go({option: value})["changed"]
        assert len(ec2.logs) == 1


def test_tags_are_changed_in_place(go, ec2):
    number = ec2.put(tags={**OURS, "old": "1"})
    assert not go({})["changed"]
    assert go({"tags": {"new": "2"}})["changed"]
    assert ec2.writes() == ["delete_tags", "create_tags"]
    assert ec2.logs[number]["Tags"] == tag_list({**OURS, "new": "2"})
    assert not go({"tags": {}}, purge_tags=False)["changed"]


def test_one_of_somebody_else_is_taken_up(go, ec2):
    number = ec2.put(tags={"team": "ml"})
    assert go({})["changed"]
    assert ec2.logs[number]["Tags"] == tag_list({"team": "ml", **OURS})


def test_purge_takes_ours_away_and_nobody_elses(go, ec2):
    ec2.put()
    kept = ec2.put(group="/aws/vpc/other", tags={"gpushare.eks/cluster": "other"})
    assert go(check=True, purge=True)["removed"] == [f"flow log of {VPC} to {GROUP}"]
    assert len(ec2.logs) == 2
    assert go(purge=True)["changed"]
    assert list(ec2.logs) == [kept]
    assert not go(purge=True)["changed"]


def test_absent_deletes_the_listed(go, ec2):
    ec2.put()
    assert go({}, state="absent")["removed"] == [f"flow log of {VPC} to {GROUP}"]
    assert ec2.logs == {}
    assert not go({}, state="absent")["changed"]


def test_a_role_that_was_just_made_is_waited_for(go, ec2):
    ec2.errors["create_flow_logs"] = [NOT_YET, NOT_YET, None]
    assert go({})["changed"]
    assert ec2.counts()["create_flow_logs"] == 3


def test_a_role_that_never_works_is_an_error_in_two_minutes(go, ec2, clock):
    ec2.errors["create_flow_logs"] = [NOT_YET] * 1000
    began = clock()
    result = go({})
    assert result["error"]["type"] == "WaitTimeout"
    assert "vpc-flow-logs.amazonaws.com" in result["error"]["remedy"]
    assert 120 <= clock() - began < 140


def test_what_aws_refuses_for_one_resource_is_an_error(go, ec2):
    error = {"Code": "InvalidVpcId.NotFound", "Message": "no such VPC"}
    ec2.unsuccessful = [{"ResourceId": VPC, "Error": error}]
    result = go({})
    assert "no such VPC" in result["msg"]
    assert result["error"]["object"] == f"flow log of {VPC} to {GROUP}"


def test_what_succeeded_stays_done(go, ec2):
    ec2.errors["create_flow_logs"] = [refusal("UnauthorizedOperation", "no"), None]
    result = go({}, {"log_group_name": "/aws/vpc/more"})
    assert result["changed"]
    assert [one["log_group_name"] for one in result["flow_logs"]] == ["/aws/vpc/more"]
    assert result["error"]["items"][0]["error"]["type"] == "AccessDenied"


def test_one_that_delivers_nothing_is_warned_of(go, ec2):
    ec2.status = "FAILED"
    ec2.put(DeliverLogsErrorMessage="Access error")
    (warning,) = go({})["warnings"]
    assert "Access error" in warning


@pytest.mark.parametrize(
    ("logs", "field"),
    [
        ([{"resource_id": "i-1"}], "flow_logs[0].resource_id"),
        ([{"role_arn": None}], "flow_logs[0].role_arn"),
        ([{}, {"traffic_type": "REJECT"}], "flow_logs"),
    ],
)
def test_bad_input_is_refused_before_the_first_call(go, ec2, logs, field):
    error = go(*logs)["error"]
    assert (error["type"], error["field"]) == ("InvalidInput", field)
    assert error["remedy"]
    assert ec2.calls == []
