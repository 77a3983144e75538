#!/usr/bin/python
# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: ssm_document
version_added: 0.1.0
short_description: Keep an SSM command document as wanted
description:
  - Creates, updates and deletes a command document of AWS Systems Manager. Its content is compared
    by hash; a new version becomes the default one.
  - Without O(name) and O(content) it keeps the collection's own two documents
    C(gpushare-probe-<hash8>); one reads GPU memory by NVML, one who uses it, by process. Their
    content is fixed and takes no parameter, so that IAM can allow C(ssm:SendCommand) on these
    documents alone, or on one of them.
  - These documents serve all clusters of a region. Each cluster has a tag
    C(gpushare.eks/cluster/<name>) on them, see O(cluster). O(state=absent) takes this tag away, and
    a document with the last one.
author:
  - gpushare.eks contributors (@gpushare)
options:
  name:
    description: Name of the document. A name of your own needs O(content) unless O(state=absent).
    type: str
  content:
    description: The document (schema version 2.2) as a dictionary. Needs O(name).
    type: dict
  tags:
    description: Tags that the document must have. Other tags stay.
    type: dict
    default: {}
  cluster:
    description:
      - The cluster whose run this is. A document that other clusters use stays when this one goes.
      - Without it O(state=absent) deletes the document whoever uses it.
    type: str
  purge:
    description:
      - Also give up the older probe documents that this O(cluster) uses, which deletes those that
        no other cluster uses.
    type: bool
    default: false
  state:
    description: Whether the document is there.
    type: str
    choices: [present, absent]
    default: present
attributes:
  check_mode:
    description: Can run in check mode and tells what would change, without changing it.
    support: full
  diff_mode:
    description: Returns what changed, or in check mode what would change.
    support: full
extends_documentation_fragment:
  - amazon.aws.common.modules
  - amazon.aws.region.modules
  - amazon.aws.boto3
"""

EXAMPLES = r"""
- name: Keep the documents that read GPU memory, and remove their predecessors
  gpushare.eks.ssm_document:
    cluster: demo
    purge: true

- name: Remove them, unless another cluster uses them
  gpushare.eks.ssm_document:
    cluster: demo
    state: absent
"""

RETURN = r"""
document:
  description:
    - The document; in check mode as it would be. Of the collection's own the one that reads GPU
      memory.
  returned: success
  type: dict
  contains:
    name:
      description: Its name.
      type: str
      sample: gpushare-probe-86cbb46f
    hash:
      description: SHA-256 of its content.
      type: str
      sample: 86cbb46f324c5b7a0f1f0c2a5b7d9f6f6bb4c7d8c2b1f3f0a9d8e7c6b5a49382
    version:
      description: Its default version; V(null) when it does not exist.
      type: str
      sample: "1"
    exists:
      description: Whether it exists now.
      type: bool
      sample: true
documents:
  description: The names of all documents that were kept or removed.
  returned: success
  type: list
  elements: str
  sample: [gpushare-probe-86cbb46f, gpushare-probe-1b4f0e98]
purged:
  description: Names of older probe documents that were deleted.
  returned: success
  type: list
  elements: str
  sample: [gpushare-probe-11223344]
"""

from typing import Any

from ansible_collections.amazon.aws.plugins.module_utils.modules import AnsibleAWSModule

from ansible_collections.gpushare.eks.plugins.module_utils import _scripts
from ansible_collections.gpushare.eks.plugins.module_utils._documents import Documents, wanted
from ansible_collections.gpushare.eks.plugins.module_utils._errors import InvalidInput, run
from ansible_collections.gpushare.eks.plugins.module_utils._sync import merge


def keep(module: Any) -> dict[str, Any]:
    """One run of the module: the documents themselves, then their predecessors."""
    params = module.params
    tags = {str(key): str(value) for key, value in params["tags"].items()}
    cluster = params["cluster"] or ""
    chosen = [wanted(name, content, tags) for name, content in _chosen(params).items()]
    documents = Documents(module.client("ssm"))
    outcomes = {}
    for desired in chosen:
        outcomes[f"SSM document {desired['name']}"] = documents.sync(
            desired["name"],
            desired,
            state=params["state"],
            cluster=cluster,
            check_mode=module.check_mode,
        )
    first = next(iter(outcomes.values()))
    there = first.value or {}
    document = {
        "name": chosen[0]["name"],
        "hash": first.after.get("hash", chosen[0]["hash"]),
        "version": there.get("version"),
        "exists": bool(first.after) and bool(there),
    }
    names = [desired["name"] for desired in chosen]
    purged = []
    for one in documents.older(set(names), cluster) if params["purge"] else []:
        released = documents.release(one, cluster, check_mode=module.check_mode)
        outcomes[f"SSM document {one}"] = released
        purged += [] if released.after else [one]
    return {**merge(outcomes), "document": document, "documents": names, "purged": purged}


def _chosen(params: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """{name: content} of what this run is about."""
    ours = {one["name"]: one["content"] for one in _scripts.documents()}
    name, content = params["name"], params["content"]
    if name is None:
        return ours
    content = content or ours.get(name)
    if content is None and params["state"] == "present":
        raise InvalidInput(
            f"SSM document {name}: there is no content",
            field="content",
            remedy="give content, or leave name out to keep the collection's own documents",
        )
    return {name: content or {}}


def main() -> None:
    spec = {
        "name": {"type": "str"},
        "content": {"type": "dict"},
        "tags": {"type": "dict", "default": {}},
        "cluster": {"type": "str"},
        "purge": {"type": "bool", "default": False},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    }
    module = AnsibleAWSModule(
        argument_spec=spec,
        supports_check_mode=True,
        required_by={"content": "name"},
        required_if=[("purge", True, ("cluster",))],
    )
    run(module, lambda: keep(module))


if __name__ == "__main__":
    main()
