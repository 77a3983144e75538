"""gpu_capacity_info: who is chosen, what is believed, what it costs; it never changes anything."""

from __future__ import annotations

import json
from collections import Counter
from fnmatch import fnmatchcase

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args
from ansible_collections.amazon.aws.plugins.module_utils.modules import AnsibleAWSModule
from botocore.exceptions import ClientError

from ansible_collections.gpushare.eks.plugins.module_utils import _scripts
from ansible_collections.gpushare.eks.plugins.modules import gpu_capacity_info

PROBE, PROCESSES = (one["name"] for one in _scripts.documents())
UID = "5f0a1b2c-3d4e-4f5a-8b6c-7d8e9f0a1b2c"
SIZES = {"g4dn.xlarge": (1, 16384), "g5.12xlarge": (4, 22888), "m6i.large": None}


class Exit(Exception):
    """What the module returned: (failed, result)."""


def ids(count):
    return [f"i-{number:017x}" for number in range(count)]


def line(instance_id, total=15360, gpus=1):
    each = {"name": "Tesla T4", "cc": "7.5", "used_mib": 0, "mig": False, "error": None}
    rows = [
        {
            **each,
            "index": i,
            "uuid": f"GPU-6d2ab28c-0a19-5c5e-8f61-{i:012x}",
            "total_mib": total,
            "reserved_mib": 450,
        }
        for i in range(gpus)
    ]
    head = {"boot_id": None, "time": None, "driver": "580.1.2", "cuda": "13.0", "error": None}
    return json.dumps({"schema": 1, "instance_id": instance_id, "gpus": rows, **head})


def processes(instance_id, **changes):
    row = {"gpu": 0, "pid": 42, "used_mib": 3155, "pod": UID, "container": "0" * 13}
    head = {"schema": 1, "instance_id": instance_id, "boot_id": None, "time": None}
    found = {"processes": {"count": 1, **row}, "count": 1, "used_mib": 3155, "truncated": False}
    return json.dumps({**head, **found, "gpu_errors": [], "error": None, **changes})


class Ec2:
    """Running instances {id: (type, tags)}; pages of two reservations."""

    def __init__(self, instances):
        self.instances, self.filters = instances, []

    def describe_instances(self, Filters, MaxResults, NextToken="0"):
        self.filters.append(Filters)
        given = {one["Name"]: one["Values"] for one in Filters}
        assert given["instance-state-name"] == ["running"]
        rows = [
            {"InstanceId": key, "InstanceType": kind}
            for key, (kind, tags) in self.instances.items()
            if all(
                any(fnmatchcase(self._value(key, tags, name), value) for value in values)
                for name, values in given.items()
                if name != "instance-state-name"
            )
        ]
        start = int(NextToken)
        more = {"NextToken": str(start + 100)} if start + 100 < len(rows) else {}
        return {"Reservations": [{"Instances": [r]} for r in rows[start : start + 100]], **more}

    @staticmethod
    def _value(key, tags, name):
        return key if name == "instance-id" else tags.get(name.removeprefix("tag:"), "")

    def describe_instance_types(self, InstanceTypes):
        rows = []
        for kind in InstanceTypes:
            one = {"InstanceType": kind}
            if SIZES[kind]:
                count, size = SIZES[kind]
                gpu = {"Manufacturer": "NVIDIA", "Count": count, "MemoryInfo": {"SizeInMiB": size}}
                one["GpuInfo"] = {"Gpus": [gpu]}
            rows.append(one)
        return {"InstanceTypes": rows}


class Ssm:
    """Answers every node with `outputs` (default: an honest line) or a (Status, StatusDetails)."""

    def __init__(self, outputs=None, missing_document=False):
        self.outputs, self.sent, self.missing = outputs or {}, [], missing_document

    def send_command(self, **arguments):
        if self.missing:
            raise ClientError({"Error": {"Code": "InvalidDocument", "Message": ""}}, "SendCommand")
        self.sent.append(arguments)
        return {"Command": {"CommandId": str(len(self.sent) - 1)}}

    def list_command_invocations(self, CommandId, **_):
        rows = []
        for one in self.sent[int(CommandId)]["InstanceIds"]:
            asked = self.sent[int(CommandId)]["DocumentName"]
            honest = processes(one) if asked == PROCESSES else line(one)
            given = self.outputs.get((asked, one)) or self.outputs.get(one, honest)
            status, details = given if isinstance(given, tuple) else ("Success", "Success")
            plugin = {"Output": given if isinstance(given, str) else "", "ResponseCode": 0}
            rows.append(
                {
                    "InstanceId": one,
                    "Status": status,
                    "StatusDetails": details,
                    "CommandPlugins": [plugin],
                }
            )
        return {"CommandInvocations": rows}


@pytest.fixture
def run(monkeypatch):
    def call(ec2, ssm, *, check=False, **params):
        clients = {"ec2": ec2, "ssm": ssm}
        monkeypatch.setattr(AnsibleAWSModule, "client", lambda self, name, **_: clients[name])
        monkeypatch.setattr(
            AnsibleModule, "exit_json", lambda self, **r: (_ for _ in ()).throw(Exit(False, r))
        )
        monkeypatch.setattr(
            AnsibleModule, "fail_json", lambda self, **r: (_ for _ in ()).throw(Exit(True, r))
        )
        arguments = {"region": "us-east-1", "_ansible_check_mode": check, **params}
        with patch_module_args(arguments), pytest.raises(Exit) as caught:
            gpu_capacity_info.main()
        return caught.value.args

    return call


def fleet(count, kind="g4dn.xlarge", **tags):
    return {one: (kind, {"eks:cluster-name": "demo", **tags}) for one in ids(count)}


def test_200_nodes_of_a_cluster_cost_4_sends(run):
    ssm = Ssm()
    failed, result = run(Ec2(fleet(200)), ssm, cluster_name="demo")
    assert not failed
    assert result["changed"] is False
    assert result["calls"] == {
        "send_command": 4,
        "list_command_invocations": 4,
        "describe_instances": 2,
        "describe_instance_types": 1,
        "throttled": 0,
    }
    assert result["counts"] == {"instances": 200, "readings": 200, "errors": 0}
    assert [row["instance_id"] for row in result["readings"]] == ids(200)
    assert {row["gpus"][0]["usable_mib"] for row in result["readings"]} == {14910}
    assert all(row["hardware"]["gpu_memory_mib"] == 16384 for row in result["readings"])
    assert {sent["DocumentName"] for sent in ssm.sent} == {result["document_name"]}


def test_only_types_with_gpus_and_chosen_groups_of_a_cluster(run):
    instances = fleet(3, **{"eks:nodegroup-name": "shared"})
    instances["i-00000000000000aaa"] = ("m6i.large", {"eks:cluster-name": "demo"})
    instances["i-00000000000000bbb"] = ("g4dn.xlarge", {"eks:cluster-name": "other"})
    instances["i-00000000000000ccc"] = (
        "g4dn.xlarge",
        {"eks:cluster-name": "demo", "eks:nodegroup-name": "exclusive"},
    )
    _, result = run(Ec2(instances), Ssm(), cluster_name="demo")
    assert len(result["readings"]) == 4
    _, result = run(Ec2(instances), Ssm(), cluster_name="demo", nodegroups=["shared"])
    assert [row["instance_id"] for row in result["readings"]] == ids(3)


def test_the_groups_of_a_zonal_pool_need_no_zones(run):
    instances = fleet(1, **{"eks:nodegroup-name": "zonal-us-east-1a"})
    for name, group in (("b", "zonal-us-east-1b"), ("c", "other-us-east-1a"), ("d", "zonal")):
        tags = {"eks:cluster-name": "demo", "eks:nodegroup-name": group}
        instances[f"i-{name:0>17}"] = ("g4dn.xlarge", tags)
    _, result = run(Ec2(instances), Ssm(), cluster_name="demo", nodegroups=["zonal-us-east-1*"])
    assert [row["instance_id"] for row in result["readings"]] == [*ids(1), f"i-{'b':0>17}"]


@pytest.mark.parametrize(
    ("wanted", "count"), [("shared", 2), (["shared"], 2), (["shared", "other"], 3), ("sh*", 2)]
)
def test_tags(run, wanted, count):
    instances = fleet(2, **{"karpenter.sh/nodepool": "shared"})
    instances["i-00000000000000aaa"] = ("g4dn.xlarge", {"karpenter.sh/nodepool": "other"})
    instances["i-00000000000000bbb"] = ("m6i.large", {"karpenter.sh/nodepool": "shared"})
    ec2 = Ec2(instances)
    _, result = run(ec2, Ssm(), filters={"tag:karpenter.sh/nodepool": wanted})
    assert len(result["readings"]) == count
    assert [{k: one["Values"] for k, one in zip("ab", f, strict=True)} for f in ec2.filters] == [
        {"a": wanted if isinstance(wanted, list) else [wanted], "b": ["running"]}
    ]


def test_instance_ids_are_asked_for_once_and_200_at_a_time(run):
    ec2, ssm = Ec2(fleet(250)), Ssm()
    _, result = run(ec2, ssm, instance_ids=[*ids(250), ids(1)[0]])
    assert len(result["readings"]) == 250
    asked = [one[0]["Values"] for one in ec2.filters if one[0]["Name"] == "instance-id"]
    assert sorted({len(values) for values in asked}) == [50, 200]
    assert sorted(one for sent in ssm.sent for one in sent["InstanceIds"]) == ids(250)


def test_named_instances_are_read_whatever_their_type_is(run):
    instances = {ids(1)[0]: ("m6i.large", {})}
    _, result = run(Ec2(instances), Ssm(), instance_ids=ids(1))
    row = result["readings"][0]
    assert row["hardware"] == {"gpu_count": 0, "gpu_memory_mib": 0}
    assert row["error"]["type"] == "IMPLAUSIBLE"


def test_processes_are_not_read_unless_asked_for(run):
    ssm = Ssm()
    _, result = run(Ec2(fleet(1)), ssm, cluster_name="demo")
    assert [sent["DocumentName"] for sent in ssm.sent] == [PROBE]
    assert result["readings"][0]["processes"] is None


def test_processes_cost_a_second_document_on_those_that_answered(run):
    everybody = ids(60)
    ssm = Ssm({everybody[3]: ("Failed", "Failed")})
    failed, result = run(Ec2(fleet(60)), ssm, cluster_name="demo", processes=True)
    assert not failed
    assert [(sent["DocumentName"], len(sent["InstanceIds"])) for sent in ssm.sent] == [
        (PROBE, 50),
        (PROBE, 10),
        (PROCESSES, 50),
        (PROCESSES, 9),
    ]
    assert result["calls"]["send_command"] == 4
    assert result["document_name"] == PROBE
    rows = {row["instance_id"]: row["processes"] for row in result["readings"]}
    assert rows.pop(everybody[3]) is None
    entry = {"gpu": 0, "pid": 42, "used_mib": 3155, "pod_uid": UID, "container_id": "0" * 13}
    assert all(one["entries"] == [{**entry, "pod": None}] for one in rows.values())
    assert {one["used_mib"] for one in rows.values()} == {3155}


def test_pods_that_the_caller_gives_are_named(run):
    pods = [{"metadata": {"namespace": "ml", "name": "resnet-0", "uid": UID}}]
    _, result = run(Ec2(fleet(1)), Ssm(), cluster_name="demo", processes=True, pods=pods)
    assert [one["pod"] for one in result["readings"][0]["processes"]["entries"]] == ["ml/resnet-0"]


def test_processes_that_cannot_be_read_leave_the_memory(run):
    everybody = ids(3)
    outputs = {
        (PROCESSES, everybody[0]): ("TimedOut", "DeliveryTimedOut"),
        (PROCESSES, everybody[1]): "$(reboot)",
    }
    failed, result = run(Ec2(fleet(3)), Ssm(outputs), cluster_name="demo", processes=True)
    assert not failed
    assert result["counts"]["errors"] == 0
    told = [row["processes"]["error"] for row in result["readings"]]
    assert [one and one["type"] for one in told] == ["DeliveryTimedOut", "MALFORMED", None]
    assert all(one["remedy"] for one in told if one)
    assert {row["gpus"][0]["usable_mib"] for row in result["readings"]} == {14910}


def test_instance_ids_that_do_not_run_are_undeliverable(run):
    gone = "i-0000000000000dead"
    failed, result = run(Ec2(fleet(1)), Ssm(), instance_ids=[*ids(1), gone])
    assert not failed
    rows = {row["instance_id"]: row for row in result["readings"]}
    assert rows[gone]["outcome"] == "Undeliverable"
    assert rows[gone]["error"]["remedy"]
    assert rows[ids(1)[0]]["error"] is None


def test_an_empty_cluster_costs_no_send(run):
    failed, result = run(Ec2({}), Ssm(), cluster_name="demo")
    assert not failed
    assert result["readings"] == []
    assert result["calls"]["send_command"] == 0


def test_every_kind_of_bad_answer_leaves_the_others(run):
    everybody = ids(9)
    outputs = {
        everybody[0]: "; rm -rf / #",
        everybody[1]: line(everybody[1])[:80] + "\n---Output truncated---",
        everybody[2]: line(everybody[0]),
        everybody[3]: line(everybody[3], total=10**6),
        everybody[4]: line(everybody[4], gpus=0),
        everybody[5]: ("Failed", "Undeliverable"),
        everybody[6]: ("TimedOut", "DeliveryTimedOut"),
        everybody[7]: "x" * 2500,
    }
    failed, result = run(Ec2(fleet(9)), Ssm(outputs), cluster_name="demo")
    assert not failed
    kinds = [row["error"] and row["error"]["type"] for row in result["readings"]]
    assert kinds == [
        "MALFORMED",
        "TRUNCATED",
        "WRONG_INSTANCE",
        "IMPLAUSIBLE",
        "GPU_MISSING",
        "Undeliverable",
        "DeliveryTimedOut",
        "TRUNCATED",
        None,
    ]
    assert Counter(row["reading"] is None for row in result["readings"]) == {True: 7, False: 2}
    assert result["counts"] == {"instances": 9, "readings": 1, "errors": 8}
    assert all(row["error"]["remedy"] for row in result["readings"] if row["error"])


def test_a_missing_document_is_a_typed_error(run):
    failed, result = run(Ec2(fleet(1)), Ssm(missing_document=True), cluster_name="demo")
    assert failed
    assert result["error"]["type"] == "NotFound"
    assert "ssm_document" in result["msg"]


@pytest.mark.parametrize(
    "params", [{}, {"cluster_name": "demo", "instance_ids": ["i-1"]}, {"nodegroups": ["shared"]}]
)
def test_exactly_one_selection(run, params):
    failed, _ = run(Ec2({}), Ssm(), **params)
    assert failed


def test_check_mode_reads_the_same(run):
    real = run(Ec2(fleet(2)), Ssm(), cluster_name="demo")
    assert run(Ec2(fleet(2)), Ssm(), cluster_name="demo", check=True) == real
