"""Run Command: real executions on moto's instances, and the limits and ends that SSM has."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request

import boto3
import botocore.session
import pytest
from moto import mock_aws

from lab import nvml
from lab.aws import Context, ServiceError, ssm
from lab.aws.restjson import render
from lab.aws.ssm_commands import Settings
from lab.nvml import nodes

REGION = "us-east-1"
MODEL = botocore.session.get_session().get_service_model("ssm")
# What a probe would print: the node's own identity, by the ways a probe has.
IDENTITY = r"""python3 - <<'END'
import ctypes, json, os, urllib.request
base = os.environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"]
ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
ask = urllib.request.Request(base + "/latest/api/token", headers=ttl, method="PUT")
token = {"X-aws-ec2-metadata-token": urllib.request.urlopen(ask).read().decode()}
ask = urllib.request.Request(base + "/latest/meta-data/instance-id", headers=token)
out = {"instance": urllib.request.urlopen(ask).read().decode()}
out["boot"] = open(os.environ["GPUSHARE_BOOT_ID_FILE"]).read().strip()
out["keys"] = sorted(k for k in os.environ if k.startswith("AWS_") and "KEY" in k)
out["uuids"] = []
n = ctypes.CDLL("libnvidia-ml.so.1")
n.nvmlInit_v2()
count = ctypes.c_uint()
n.nvmlDeviceGetCount_v2(ctypes.byref(count))
for index in range(count.value):
    device, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
    n.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
    out["uuids"].append(n.nvmlDeviceGetUUID(device, text, 96) or text.value.decode())
print(json.dumps(out))
END"""


class Lab:
    """A service on a mocked account, called as the front calls it."""

    def __init__(self, service):
        self.service = service
        self.ec2 = boto3.client("ec2", region_name=REGION)
        self.ssm = boto3.client("ssm", region_name=REGION)

    def call(self, operation, **body):
        answer = self.service.handle(operation, body, Context(region=REGION))
        shape = MODEL.operation_model(operation).output_shape
        assert json.dumps(render(shape, answer))  # every member is one that the API knows
        return answer

    def instances(self, count, instance_type="g4dn.xlarge", tags=()):
        tags = [{"Key": "eks:cluster-name", "Value": "demo"}, *tags]
        found = self.ec2.run_instances(
            ImageId="ami-12c6146b",
            MinCount=count,
            MaxCount=count,
            InstanceType=instance_type,
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )
        return [i["InstanceId"] for i in found["Instances"]]

    def shell(self, lines, ids, **more):
        parameters = {"commands": [lines], **more.pop("parameters", {})}
        body = {"DocumentName": "AWS-RunShellScript", "Parameters": parameters, **more}
        if ids:
            body["InstanceIds"] = ids
        return self.call("SendCommand", **body)["Command"]

    def wait(self, command, timeout=20.0):
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            row = self.call("ListCommands", CommandId=command["CommandId"])["Commands"][0]
            if row["Status"] not in ("Pending", "InProgress"):
                rows = self.call(
                    "ListCommandInvocations", CommandId=command["CommandId"], Details=True
                )["CommandInvocations"]
                return row, {r["InstanceId"]: r for r in rows}
            time.sleep(0.02)
        raise AssertionError(f"{command['CommandId']} did not end")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return nvml.build(out_dir=tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="module")
def one_lab(tmp_path_factory, library):
    with pytest.MonkeyPatch.context() as patch, mock_aws():
        patch.setenv("AWS_ACCESS_KEY_ID", "testing-key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing-secret")
        folder = tmp_path_factory.mktemp("nodes")
        service = ssm.RunCommand(folder, library, Settings(visible_after_s=0.0))
        yield Lab(service)
        service.metadata.stop()


@pytest.fixture
def lab(one_lab):
    yield one_lab
    one_lab.service.settings.visible_after_s = 0.0


def output(row):
    return row["CommandPlugins"][0]["Output"]


def test_a_command_runs_for_real_under_the_nodes_own_identity(lab):
    ids = lab.instances(2)
    sent = lab.shell(IDENTITY, ids)
    assert (sent["Status"], sent["TargetCount"], sent["CompletedCount"]) == ("Pending", 2, 0)
    row, found = lab.wait(sent)
    assert (row["Status"], row["CompletedCount"]) == ("Success", 2)
    for instance in ids:
        assert json.loads(output(found[instance])) == {
            "instance": instance,
            "boot": nodes.boot_id(instance),
            "keys": [],
            "uuids": [nvml.gpu_uuid(instance, 0)],
        }


def test_a_fleet_is_answered_by_one_execution_per_type_under_each_nodes_name(lab):
    ids = lab.instances(60) + lab.instances(40, "g6.12xlarge")
    began = time.monotonic()
    sent = [lab.shell(IDENTITY, ids[:50]), lab.shell(IDENTITY, ids[50:])]
    rows = {k: v for command in sent for k, v in lab.wait(command)[1].items()}
    assert time.monotonic() - began < 10
    assert len(rows) == 100
    for instance, row in rows.items():
        said = json.loads(output(row))
        assert (said["instance"], said["boot"]) == (instance, nodes.boot_id(instance))
        assert said["uuids"] == [nvml.gpu_uuid(instance, i) for i in range(len(said["uuids"]))]
    assert len(json.loads(output(rows[ids[-1]]))["uuids"]) == 4


def test_a_document_of_ours_with_its_hash(lab):
    [instance] = lab.instances(1)
    content = {
        "schemaVersion": "2.2",
        "description": "x",
        "mainSteps": [
            {
                "action": "aws:runShellScript",
                "name": "probe",
                "inputs": {"timeoutSeconds": "60", "runCommand": ["#!/bin/sh", "echo $0", "pwd"]},
            }
        ],
    }
    made = lab.ssm.create_document(
        Name="gpushare-probe-1", DocumentType="Command", Content=json.dumps(content)
    )["DocumentDescription"]
    body = {"InstanceIds": [instance], "DocumentName": "gpushare-probe-1"}
    good = {"DocumentHash": made["Hash"], "DocumentHashType": "Sha256"}
    row, found = lab.wait(lab.call("SendCommand", **body, **good)["Command"])
    assert row["Status"] == "Success"
    assert found[instance]["CommandPlugins"][0]["Name"] == "probe"
    with pytest.raises(ServiceError, match="hash"):
        lab.call("SendCommand", **body, DocumentHash="0", DocumentHashType="Sha256")
    with pytest.raises(ServiceError, match="unknown"):
        lab.call("SendCommand", **body, Parameters={"x": ["y"]})
    with pytest.raises(ServiceError) as error:
        lab.call("SendCommand", InstanceIds=[instance], DocumentName="no-such")
    assert error.value.code == "InvalidDocument"


def test_a_script_that_fails(lab):
    [instance] = lab.instances(1)
    command = lab.shell("echo out; echo err >&2; exit 3", [instance])
    row, found = lab.wait(command)
    assert (row["Status"], row["ErrorCount"]) == ("Failed", 1)
    assert found[instance]["CommandPlugins"][0]["ResponseCode"] == 3
    assert output(found[instance]).startswith("out\n\n----------ERROR-------\nerr")
    detail = lab.call("GetCommandInvocation", CommandId=command["CommandId"], InstanceId=instance)
    assert (detail["StandardOutputContent"], detail["ResponseCode"]) == ("out\n", 3)


def test_a_script_that_does_not_end_in_time_is_ended_with_its_children(lab):
    [instance] = lab.instances(1)
    more = {"parameters": {"executionTimeout": ["1"]}}
    began = time.monotonic()
    row, found = lab.wait(lab.shell("echo begun; sleep 60 & sleep 60", [instance], **more))
    assert time.monotonic() - began < 10
    assert (row["Status"], row["StatusDetails"]) == ("TimedOut", "Execution Timed Out")
    assert output(found[instance]) == "begun\n"


def test_output_is_cut_where_ssm_cuts_it(lab):
    [instance] = lab.instances(1)
    command = lab.shell("head -c 30000 /dev/zero | tr '\\0' x", [instance])
    _, found = lab.wait(command)
    assert len(output(found[instance])) == 2500
    assert output(found[instance]).endswith("---Output truncated---")
    detail = lab.call("GetCommandInvocation", CommandId=command["CommandId"], InstanceId=instance)
    assert len(detail["StandardOutputContent"]) == 24000


def test_limits_and_instances_that_are_not_there(lab):
    ids = lab.instances(51)
    with pytest.raises(ServiceError) as error:
        lab.shell("true", ids)
    assert error.value.code == "ThrottlingException"
    lab.ec2.stop_instances(InstanceIds=[ids[0]])
    for bad in (ids[0], "i-0000000000000000f"):
        with pytest.raises(ServiceError, match=re.escape(bad)) as error:
            lab.shell("true", [ids[1], bad])
        assert error.value.code == "InvalidInstanceId"
    with pytest.raises(ServiceError, match="Targets"):
        lab.shell("true", [])


def test_targets_by_tag_and_pages_of_fifty(lab):
    lab.instances(60, "m6i.large", [{"Key": "pool", "Value": "a"}])
    lab.instances(2, "m6i.large", [{"Key": "pool", "Value": "b"}])
    sent = lab.shell("true", [], Targets=[{"Key": "tag:pool", "Values": ["a"]}])
    assert sent["TargetCount"] == 60
    lab.wait(sent)
    body = {"CommandId": sent["CommandId"]}
    first = lab.call("ListCommandInvocations", **body)
    rest = lab.call("ListCommandInvocations", NextToken=first["NextToken"], **body)
    assert (len(first["CommandInvocations"]), len(rest["CommandInvocations"])) == (50, 10)
    assert "NextToken" not in rest
    done = lab.call(
        "ListCommandInvocations", Filters=[{"key": "Status", "value": "Failed"}], **body
    )
    assert done["CommandInvocations"] == []
    nobody = lab.shell("true", [], Targets=[{"Key": "tag:pool", "Values": ["c"]}])
    assert nobody["StatusDetails"] == "NoInstancesInTag"


def test_the_first_failure_stops_the_dispatch_unless_told_otherwise(lab):
    ids = lab.instances(4)
    lab.service.dispatcher.inject(ids[0], "Failed")
    more = {"MaxConcurrency": "1"}
    row, found = lab.wait(lab.shell("true", ids, **more))
    assert row["Status"] == "Failed"
    assert [found[i]["StatusDetails"] for i in ids] == ["Failed", *["Terminated"] * 3]
    _, found = lab.wait(lab.shell("true", ids, MaxErrors="100%", **more))
    assert [found[i]["Status"] for i in ids] == ["Failed", *["Success"] * 3]


@pytest.mark.parametrize(
    ("outcome", "status", "details"),
    [
        ("TimedOut", "TimedOut", "Execution Timed Out"),
        ("DeliveryTimedOut", "TimedOut", "Delivery Timed Out"),
        ("Undeliverable", "Failed", "Undeliverable"),
        ("Cancelled", "Cancelled", "Cancelled"),
    ],
)
def test_ends_on_request(lab, outcome, status, details):
    ids = lab.instances(2)
    lab.service.dispatcher.inject(ids[0], outcome)
    _, found = lab.wait(lab.shell("true", ids, MaxErrors="100%"))
    assert (found[ids[0]]["Status"], found[ids[0]]["StatusDetails"]) == (status, details)
    assert found[ids[1]]["Status"] == "Success"
    lab.service.dispatcher.inject(ids[0], None)
    assert lab.wait(lab.shell("true", ids))[0]["Status"] == "Success"


def test_a_node_that_never_answers_stays_pending_until_it_is_cancelled(lab):
    ids = lab.instances(2)
    lab.service.dispatcher.inject(ids[0], "NoAnswer")
    sent = lab.shell("true", ids)
    time.sleep(0.5)
    rows = lab.call("ListCommandInvocations", CommandId=sent["CommandId"])["CommandInvocations"]
    assert {r["InstanceId"]: r["Status"] for r in rows} == {ids[0]: "Pending", ids[1]: "Success"}
    lab.call("CancelCommand", CommandId=sent["CommandId"])
    row, found = lab.wait(sent)
    assert (row["Status"], found[ids[0]]["Status"]) == ("Cancelled", "Cancelled")


def test_an_invocation_does_not_exist_right_after_the_send(lab):
    [instance] = lab.instances(1)
    lab.service.settings.visible_after_s = 0.3
    sent = lab.shell("true", [instance])
    body = {"CommandId": sent["CommandId"], "InstanceId": instance}
    with pytest.raises(ServiceError) as error:
        lab.call("GetCommandInvocation", **body)
    assert error.value.code == "InvocationDoesNotExist"
    assert lab.call("ListCommandInvocations", **body)["CommandInvocations"] == []
    time.sleep(0.35)
    assert lab.call("GetCommandInvocation", **body)["InstanceId"] == instance


def test_faults_of_nvml_reach_the_probe_and_a_node_without_gpu_has_no_library(lab):
    [gpu], [plain] = lab.instances(1), lab.instances(1, "m6i.large")
    load = "python3 -c 'import ctypes; print(ctypes.CDLL(\"libnvidia-ml.so.1\").nvmlInit_v2())'"
    nodes.set_fault(gpu, function="nvmlInit_v2", code=18)
    try:
        _, found = lab.wait(lab.shell(load, [gpu, plain], MaxErrors="100%"))
        assert output(found[gpu]) == "18\n"
        assert "OSError" in output(found[plain])
        nodes.set_fault(gpu, absent=True)
        assert "OSError" in output(lab.wait(lab.shell(load, [gpu]))[1][gpu])
    finally:
        nodes.clear_fault(gpu)
    assert output(lab.wait(lab.shell(load, [gpu]))[1][gpu]) == "0\n"


def test_only_running_instances_of_a_cluster_or_with_a_profile_are_online(lab):
    tag = {"Key": "only", "Value": "these"}
    ids = lab.instances(12, "m6i.large", [tag])
    plain = lab.ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1)
    lab.ec2.terminate_instances(InstanceIds=[ids[0]])
    body = {"Filters": [{"Key": "tag:only", "Values": ["these"]}]}
    first = lab.call("DescribeInstanceInformation", **body)
    rest = lab.call("DescribeInstanceInformation", NextToken=first["NextToken"], **body)
    found = first["InstanceInformationList"] + rest["InstanceInformationList"]
    assert sorted(row["InstanceId"] for row in found) == sorted(ids[1:])
    one = [{"Key": "InstanceIds", "Values": [ids[3]]}, {"Key": "PingStatus", "Values": ["Online"]}]
    rows = lab.call("DescribeInstanceInformation", Filters=one)["InstanceInformationList"]
    assert [row["InstanceId"] for row in rows] == [ids[3]]
    with pytest.raises(ServiceError, match="not in a valid state"):
        lab.shell("true", [plain["Instances"][0]["InstanceId"]])


def test_metadata_wants_a_token_of_the_same_instance(lab):
    first, second = lab.instances(2)
    ends = {i: lab.service.metadata.endpoint(i) for i in (first, second)}

    def get(instance, path, method="GET", **headers):
        headers = {f"X-aws-ec2-metadata-{k.replace('_', '-')}": v for k, v in headers.items()}
        ask = urllib.request.Request(ends[instance] + path, headers=headers, method=method)
        try:
            with urllib.request.urlopen(ask) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""

    key = "/latest/meta-data/instance-id"
    _, token = get(first, "/latest/api/token", "PUT", token_ttl_seconds="60")
    assert get(first, key, token=token) == (200, first)
    assert get(first, key)[0] == 401
    assert get(second, key, token=token)[0] == 401
    assert get(first, "/latest/api/token", "PUT")[0] == 400
    assert get(first, "/latest/meta-data/nothing", token=token)[0] == 404
