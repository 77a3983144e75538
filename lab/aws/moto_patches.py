"""moto's EC2 and SSM where they do not answer as AWS does; applied before the first request.

- the EKS-optimized images exist, and their public parameters name them;
- tags of NAT gateways and Elastic IPs are found by their resource type;
- the tags of one object are looked up, where moto walks over the tags of everything;
- under which names a member of an answer is looked for is worked out once, not for each object;
- launch templates: see template_patches.

What the roles meet beyond these stands in patches.py.
"""

from __future__ import annotations

import hashlib

from moto.core.serialize import (
    AttributePickerContext,
    ResponseSerializer,
    XFormedAttributePicker,
)
from moto.core.utils import MISSING, get_value, utcnow
from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.utils import EC2_PREFIX_TO_RESOURCE, get_prefix
from moto.ssm.models import Parameter, ParameterDict

from lab.aws import template_patches
from lab.aws.eks_clusters import VERSIONS

_EKS_IMAGES = "/aws/service/eks/optimized-ami"
# The account that publishes EKS's images in the commercial regions.
_EKS_OWNER = "602401143452"
_RELEASE = "20261105"
_PATCH = {"1.34": "1.34.6", "1.35": "1.35.4", "1.36": "1.36.3"}
_VARIANTS = ("standard", "nvidia", "neuron")
_plain_keys = XFormedAttributePicker.get_possible_keys
_known_keys: dict[tuple[type, str, object], list[str]] = {}
_plain_value = ResponseSerializer.get_value
_plain_check = ParameterDict._check_loading_status


def _image(account_id: str, region: str, version: str, arch: str, variant: str) -> str:
    """The image's id; it is registered at its first use."""
    name = f"amazon-eks-node-al2023-{arch}-{variant}-{version}-v{_RELEASE}"
    image_id = "ami-" + hashlib.sha256(f"{region}{name}".encode()).hexdigest()[:17]
    backend = ec2_backends[account_id][region]
    if image_id not in backend.amis:
        backend.amis[image_id] = Ami(
            backend,
            image_id,
            name=name,
            description=f"EKS-optimized Kubernetes node based on Amazon Linux 2023 ({variant})",
            owner_id=_EKS_OWNER,
            owner_alias="amazon",
            public=True,
            virtualization_type="hvm",
            architecture=arch,
            root_device_type="ebs",
            root_device_name="/dev/xvda",
            region_name=f"{region}a",
        )
    return image_id


def _possible_keys(self: XFormedAttributePicker, context: AttributePickerContext) -> list[str]:
    """The names depend on the class, the member and its shape alone; botocore keeps the shapes."""
    place = (type(context.obj), context.key, context.shape)
    if place not in _known_keys:
        _known_keys[place] = list(dict.fromkeys(_plain_keys(self, context)))
    return _known_keys[place]


def _value(self: ResponseSerializer, value: object, key: str, shape: object) -> object:
    """moto's own, without the path of each member where nothing asks for it."""
    picker = self._value_picker
    if type(picker) is not XFormedAttributePicker or picker.response_transformers:
        return _plain_value(self, value, key, shape)
    place = (type(value), key, shape)
    keys = _known_keys.get(place)
    if keys is None:
        context = AttributePickerContext(obj=value, key=key, shape=shape)
        keys = _possible_keys(picker, context)
    for name in keys:
        found = get_value(value, name, MISSING)
        if found is not MISSING:
            return found
    return None


def _tags_of(self: TaggedEC2Resource) -> list[dict[str, str]]:
    """What describe_tags filtered by this ID answers; 1,000 instances take it a minute."""
    kind = EC2_PREFIX_TO_RESOURCE.get(get_prefix(self.id), "") if self.id else ""
    tags = dict(self.ec2_backend.tags.get(self.id) or {}) if self.id else {}
    return [
        {"resource_id": self.id, "key": key, "value": value, "resource_type": kind}
        for key, value in tags.items()
    ]


def _check_loading(self: ParameterDict, key: str) -> None:
    _plain_check(self, key)
    loaded = self.__dict__.get("eks_images_loaded", False)
    if loaded or not str(key or "").startswith(_EKS_IMAGES):
        return
    self.__dict__["eks_images_loaded"] = True
    for version in VERSIONS:
        for arch in ("x86_64", "arm64"):
            for variant in _VARIANTS:
                image_id = _image(self.account_id, self.region_name, version, arch, variant)
                path = f"{_EKS_IMAGES}/{version}/amazon-linux-2023/{arch}/{variant}/recommended"
                release = f"{_PATCH[version]}-{_RELEASE}"
                _parameter(self, f"{path}/image_id", image_id)
                _parameter(self, f"{path}/release_version", release)


def _parameter(parameters: ParameterDict, name: str, value: str) -> None:
    # dict's own method: ParameterDict's would look whether it has to load.
    super(ParameterDict, parameters).__getitem__(name).append(
        Parameter(
            account_id=parameters.account_id,
            name=name,
            value=value,
            parameter_type="String",
            description=None,
            allowed_pattern=None,
            keyid=None,
            last_modified_date=utcnow(),
            version=1,
            data_type="text",
        )
    )


def apply() -> None:
    """Put all of it in place; a second call changes nothing."""
    ParameterDict._check_loading_status = _check_loading
    EC2_PREFIX_TO_RESOURCE["nat"] = "natgateway"
    EC2_PREFIX_TO_RESOURCE["eipalloc"] = "elastic-ip"
    TaggedEC2Resource.get_tags = _tags_of
    XFormedAttributePicker.get_possible_keys = _possible_keys
    ResponseSerializer.get_value = _value
    template_patches.apply()
