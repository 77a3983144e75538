# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Docs of the options that _aws.list_spec() gives to modules which keep a list of objects."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  cluster_name:
    description: Name of the EKS cluster.
    type: str
    required: true
  state:
    description:
      - With V(present) each listed object is made, or changed where it differs.
      - With V(absent) each listed object is deleted.
    type: str
    choices: [present, absent]
    default: present
  purge:
    description:
      - With O(state=present), also delete the objects of this kind which are not listed and carry
        the tag C(gpushare.eks/cluster) with the name of this cluster. Others are left alone.
      - Every listed object gets that tag.
    type: bool
    default: false
  purge_tags:
    description:
      - Remove tags that are not listed, from objects for which tags are given. Tags that start
        with C(aws:) are never touched.
    type: bool
    default: true
attributes:
  check_mode:
    description: Can run in check mode and tells what would change, without changing it.
    support: full
  diff_mode:
    description: Returns what changed, or in check mode what would change.
    support: full
notes:
  - The items of a list are worked on side by side. Where some fail, the module fails with every
    failed item and its reason in RV(ignore:error.items); what succeeded stays done and is returned
    as well.
"""

    WAIT = r"""
options:
  wait:
    description:
      - Wait until AWS has finished. Objects that are under way already are waited for in any case
        where they have to change.
      - Modules cannot show progress while they run. It goes to the target's system log.
    type: bool
    default: true
"""
