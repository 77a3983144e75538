"""moto's launch templates where they do not answer as AWS does; applied before the first request.

- DeleteLaunchTemplateVersions, which moto lacks: the default version stays, numbers are never
  given twice;
- a template's tags are those it has now, and a listing is not cut at 15.
"""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import InvalidLaunchTemplateVersionNotFound
from moto.ec2.models.launch_templates import LaunchTemplate, LaunchTemplateVersion
from moto.ec2.responses.launch_templates import LaunchTemplates

_MOST_LISTED = 200
_plain_int = LaunchTemplates._get_int_param


def _create_version(
    self: LaunchTemplate, data: dict[str, Any], description: str
) -> LaunchTemplateVersion:
    self.last_number = getattr(self, "last_number", 0) + 1
    version = LaunchTemplateVersion(self, self.last_number, data, description)
    self.versions.append(version)
    return version


def _get_version(self: LaunchTemplate, num: Any) -> LaunchTemplateVersion:
    wanted = {
        "$latest": self.versions[-1].number,
        "$default": self.default_version_number,
    }.get(str(num).lower(), num)
    for version in self.versions:
        if str(version.number) == str(wanted):
            return version
    raise InvalidLaunchTemplateVersionNotFound(template_id=self.id, version=num)


def _delete_versions(self: LaunchTemplates) -> ActionResult:
    backend = self.ec2_backend
    name = self._get_param("LaunchTemplateName")
    template = (
        backend.get_launch_template_by_name(name)
        if name
        else backend.get_launch_template(self._get_param("LaunchTemplateId"))
    )
    done, failed = [], []
    for number in self._get_param("Versions", []):
        said = {
            "LaunchTemplateId": template.id,
            "LaunchTemplateName": template.name,
            "VersionNumber": int(number),
        }
        known = [v for v in template.versions if str(v.number) == str(number)]
        if known and known[0].number != template.default_version_number:
            template.versions.remove(known[0])
            done.append(said)
        else:
            code = "unexpectedError" if known else "launchTemplateVersionDoesNotExist"
            error = {"Code": code, "Message": f"version {number} cannot be deleted"}
            failed.append({**said, "ResponseError": error})
    return ActionResult(
        {
            "SuccessfullyDeletedLaunchTemplateVersions": done,
            "UnsuccessfullyDeletedLaunchTemplateVersions": failed,
        }
    )


def _int_param(self: LaunchTemplates, name: str, if_none: Any = None) -> Any:
    return _plain_int(self, name, _MOST_LISTED if name == "MaxResults" else if_none)


def apply() -> None:
    """Put all of it in place; a second call changes nothing."""
    LaunchTemplate.create_version = _create_version
    LaunchTemplate.get_version = _get_version
    LaunchTemplate.default_version = lambda self: self.get_version("$Default")
    # moto keeps the tags of the creation in an attribute: what CreateTags adds later is not seen.
    LaunchTemplate.tags = property(lambda self: self.get_tags(), lambda self, value: None)
    LaunchTemplates.delete_launch_template_versions = _delete_versions
    LaunchTemplates._get_int_param = _int_param
