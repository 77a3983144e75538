"""moto's Auto Scaling where it does not answer as AWS does; applied before the first request.

- SetDesiredCapacity outside of min and max is refused;
- instances are spread over the group's subnets, and only where EC2 offers the type;
- mixed instances take the types of the overrides and the spot share of the distribution;
- instances have the template's root disk, tags on disks, metadata options and monitoring;
- what was launched, ended or refused stands in DescribeScalingActivities;
- an instance that ended in any other way is replaced (`reconcile`).
"""

from __future__ import annotations

import copy
import math
import uuid
from collections import Counter
from typing import Any

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import (
    ASG_NAME_TAG,
    AutoScalingBackend,
    FakeAutoScalingGroup,
    InstanceState,
)
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult, EmptyResult
from moto.core.types import Base64EncodedString
from moto.core.utils import utcnow
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS
from moto.ec2.models.launch_templates import LaunchTemplateVersion
from moto.ec2.utils import convert_tag_spec

_KEPT_ACTIVITIES = 100
_plain_set_desired = AutoScalingBackend.set_desired_capacity
_plain_group_update = FakeAutoScalingGroup.update
_plain_launch = FakeAutoScalingGroup.replace_autoscaling_group_instances


def _note(group: FakeAutoScalingGroup, status: str, description: str, cause: str) -> None:
    activities = group.__dict__.setdefault("activities", [])
    message = {"StatusMessage": cause} if status == "Failed" else {}
    now = utcnow()
    activities.insert(
        0,
        {
            "ActivityId": str(uuid.uuid4()),
            "AutoScalingGroupName": group.name,
            "Description": description,
            "Cause": cause,
            "StartTime": now,
            "EndTime": now,
            "StatusCode": status,
            "Progress": 100,
            "Details": "{}",
            **message,
        },
    )
    del activities[_KEPT_ACTIVITIES:]


def _set_desired_capacity(self: AutoScalingBackend, group_name: str, wanted: int | None) -> None:
    if group_name not in self.autoscaling_groups:
        raise ValidationError(f"AutoScalingGroup name not found - {group_name}")
    group = self.autoscaling_groups[group_name]
    deleting = wanted == 0 and group.__dict__.get("deleting", False)
    if wanted is not None and not deleting:
        if wanted > (group.max_size or 0):
            raise ValidationError(
                f"New SetDesiredCapacity value {wanted} is above max value {group.max_size} for the"
                " AutoScalingGroup."
            )
        if wanted < (group.min_size or 0):
            raise ValidationError(
                f"New SetDesiredCapacity value {wanted} is below min value {group.min_size} for the"
                " AutoScalingGroup."
            )
    _plain_set_desired(self, group_name, wanted)


def _delete_group(self: AutoScalingBackend, group_name: str, force: bool = True) -> None:
    group = self.autoscaling_groups.get(group_name)
    if group is None:
        raise ValidationError(f"AutoScalingGroup name not found - {group_name}")
    # An instance protected from scale-in ends with its group all the same.
    for state in group.instance_states:
        state.protected_from_scale_in = False
    group.__dict__["deleting"] = True
    self.set_desired_capacity(group_name, 0)
    self.autoscaling_groups.pop(group_name, None)


def _offered(region: str, instance_type: str) -> set[str]:
    """Zones in which EC2 offers the type; empty when moto knows nothing about the region."""
    rows = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(region, [])
    return {row["Location"] for row in rows if row["InstanceType"] == instance_type}


def _instance_types(group: FakeAutoScalingGroup) -> list[str]:
    policy = group.mixed_instances_policy or {}
    overrides = policy.get("LaunchTemplate", {}).get("Overrides") or []
    types = [item["InstanceType"] for item in overrides if item.get("InstanceType")]
    return types or [group.instance_type]


def _spot_wanted(group: FakeAutoScalingGroup) -> int:
    """How many of the desired instances the distribution wants as spot."""
    policy = group.mixed_instances_policy or {}
    share = policy.get("InstancesDistribution", {})
    base = int(share.get("OnDemandBaseCapacity") or 0)
    percent = share.get("OnDemandPercentageAboveBaseCapacity")
    percent = 100 if percent is None else int(percent)
    above = max(0, (group.desired_capacity or 0) - base)
    return above - math.ceil(above * percent / 100)


def _scale(self: FakeAutoScalingGroup, new_capacity: int | None) -> None:
    """Launch or end instances until as many run as are wanted (weights do not occur in EKS)."""
    self.desired_capacity = self.min_size if new_capacity is None else new_capacity
    surplus = len(self.active_instances()) - (self.desired_capacity or 0)
    if surplus < 0:
        self.replace_autoscaling_group_instances(-surplus, self.get_propagated_tags())
    elif surplus > 0:
        _end_surplus(self, surplus)
    if self.name in self.autoscaling_backend.autoscaling_groups:
        self.autoscaling_backend.update_attached_elbs(self.name)
        self.autoscaling_backend.update_attached_target_groups(self.name)


def _end_surplus(group: FakeAutoScalingGroup, surplus: int) -> None:
    for _ in range(surplus):
        states = [s for s in group.instance_states if not s.protected_from_scale_in]
        if not states:
            return
        zones = Counter(state.availability_zone for state in states)
        # AWS ends in the fullest zone first, and there the oldest.
        victim = max(states, key=lambda state: zones[state.availability_zone])
        group.instance_states.remove(victim)
        group.autoscaling_backend.ec2_backend.terminate_instances([victim.instance.id])
        _note(
            group,
            "Successful",
            f"Terminating EC2 instance: {victim.instance.id}",
            "a user request or a scaling policy lowered the desired capacity",
        )


def _launch(self: FakeAutoScalingGroup, count_needed: int, propagated_tags: dict[str, str]) -> None:
    if self.ec2_launch_template is None:
        _plain_launch(self, count_needed, propagated_tags)
        return
    tags = {**propagated_tags, ASG_NAME_TAG: self.name, **self.instance_tags}
    ec2 = self.ec2_backend
    subnets = ec2.describe_subnets(subnet_ids=(self.vpc_zone_identifier or "").split(","))
    used: Counter[str] = Counter(state.instance.subnet_id for state in self.instance_states)
    spot = sum(state.instance.lifecycle == "spot" for state in self.instance_states)
    types = _instance_types(self)
    places = [
        (kind, subnet)
        for kind in types
        for subnet in subnets
        if subnet.availability_zone in _offered(self.region, kind)
    ]
    if not places:
        zones = sorted({subnet.availability_zone for subnet in subnets})
        _note(
            self,
            "Failed",
            "Launching a new EC2 instance.  Status Reason: Your requested instance type is not"
            " supported in your requested Availability Zone",
            f"none of {', '.join(types)} is offered in {', '.join(zones)}. Launching EC2 instance"
            " failed.",
        )
        return
    # The first type that is offered anywhere, as AWS's prioritized strategy takes it.
    kind = places[0][0]
    fitting = [subnet for offered, subnet in places if offered == kind]
    version = self.ec2_launch_template.get_version(self.launch_template_version)
    template = {
        "LaunchTemplateId": self.ec2_launch_template.id,
        "Version": str(version.number),
    }
    profile = version.data.get("IamInstanceProfile") or {}
    specified = _from_template(version.data, ec2.amis.get(self.image_id))
    disk_tags = convert_tag_spec(version.data.get("TagSpecifications") or []).get("volume", {})
    for _ in range(count_needed):
        subnet = min(fitting, key=lambda item: used[item.id])
        used[subnet.id] += 1
        on_spot = spot < _spot_wanted(self)
        spot += on_spot
        reservation = ec2.run_instances(
            self.image_id,
            1,
            self.user_data,
            self.security_groups,
            instance_type=kind,
            tags={"instance": tags, "volume": disk_tags},
            region_name=self.region,
            placement=subnet.availability_zone,
            launch_template=template,
            is_instance_type_default=False,
            subnet_id=subnet.id,
            instance_market_options={"MarketType": "spot"} if on_spot else None,
            **specified,
        )
        instance = reservation.instances[0]
        if profile:
            ec2.associate_iam_instance_profile(
                instance.id,
                iam_instance_profile_name=profile.get("Name"),
                iam_instance_profile_arn=profile.get("Arn"),
            )
        instance.autoscaling_group = self
        self.instance_states.append(
            InstanceState(
                instance, protected_from_scale_in=self.new_instances_protected_from_scale_in
            )
        )
        _note(
            self,
            "Successful",
            f"Launching a new EC2 instance: {instance.id}",
            "an instance was started in response to a difference between desired and actual"
            " capacity",
        )


def _from_template(data: dict[str, Any], image: Any) -> dict[str, Any]:
    """What RunInstances takes of a template's data and moto leaves out."""
    found: dict[str, Any] = {"metadata_options": data.get("MetadataOptions") or {}}
    if str((data.get("Monitoring") or {}).get("Enabled", "")).lower() == "true":
        found["monitoring_state"] = "enabled"
    disks = data.get("BlockDeviceMappings") or []
    # moto's own root disk is a second one beside a template's.
    if image and image.root_device_name in [disk.get("DeviceName") for disk in disks]:
        found["block_device_mappings"] = disks
    return found


def _update(self: FakeAutoScalingGroup, **given: Any) -> None:
    # moto forgets what an update does not repeat.
    old, new = self.mixed_instances_policy, given.get("mixed_instances_policy")
    if old and not given.get("launch_template"):
        policy = {**copy.deepcopy(old), **(new or {})}
        policy["LaunchTemplate"] = {
            **copy.deepcopy(old["LaunchTemplate"]),
            **policy["LaunchTemplate"],
        }
        named = policy["LaunchTemplate"]["LaunchTemplateSpecification"]
        if named.get("LaunchTemplateId"):
            # moto notes both and then takes no more than one.
            named.pop("LaunchTemplateName", None)
        given["mixed_instances_policy"] = policy
    if given.get("desired_capacity") is not None:
        low = given["min_size"] if given.get("min_size") is not None else self.min_size
        high = given["max_size"] if given.get("max_size") is not None else self.max_size
        if not low <= given["desired_capacity"] <= high:
            raise ValidationError(
                f"Desired capacity:{given['desired_capacity']} must be between the specified min"
                f" size:{low} and max size:{high}"
            )
    _plain_group_update(self, **given)


def _activities(self: AutoScalingResponse) -> ActionResult:
    name = self._get_param("AutoScalingGroupName")
    groups = self.autoscaling_backend.describe_auto_scaling_groups([name] if name else [])
    rows = [row for group in groups for row in group.__dict__.get("activities", [])]
    return ActionResult({"Activities": rows[: self._get_int_param("MaxRecords") or 100]})


def _disable_metrics(self: AutoScalingResponse) -> ActionResult:
    name = self._get_param("AutoScalingGroupName")
    off = self._get_param("Metrics", [])
    for group in self.autoscaling_backend.describe_auto_scaling_groups([name]):
        group.metrics = [metric for metric in group.metrics if off and metric not in off]
    return EmptyResult()


def reconcile(backend: AutoScalingBackend) -> None:
    """Replace instances that ended without the group's doing, as AWS's health check does."""
    for group in list(backend.autoscaling_groups.values()):
        gone = [state for state in group.instance_states if state.instance.state_code != 16]
        if not gone:
            continue
        group.instance_states = [s for s in group.instance_states if s not in gone]
        for state in gone:
            if state.instance.state == "stopped":
                backend.ec2_backend.terminate_instances([state.instance.id])
            _note(
                group,
                "Successful",
                f"Terminating EC2 instance: {state.instance.id}",
                "an instance was taken out of service in response to an EC2 health check",
            )
        group.set_desired_capacity(group.desired_capacity)


def _user_data(self: LaunchTemplateVersion) -> Base64EncodedString | None:
    # moto encodes it for a template's first version only, and then stumbles over the others.
    given = self.data.get("UserData")
    return Base64EncodedString(given) if isinstance(given, str) else given


def apply() -> None:
    """Put all of it in place; a second call changes nothing."""
    AutoScalingBackend.set_desired_capacity = _set_desired_capacity
    AutoScalingBackend.delete_auto_scaling_group = _delete_group
    FakeAutoScalingGroup.set_desired_capacity = _scale
    FakeAutoScalingGroup.replace_autoscaling_group_instances = _launch
    FakeAutoScalingGroup.update = _update
    AutoScalingResponse.describe_scaling_activities = _activities
    AutoScalingResponse.disable_metrics_collection = _disable_metrics
    LaunchTemplateVersion.user_data = property(_user_data)
