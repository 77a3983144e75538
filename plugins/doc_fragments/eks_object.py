# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Docs that every module of ours for AWS shares."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options: {}
notes:
  - Errors are typed. A failed module returns RV(ignore:error) with C(type), C(object), C(cause) and
    C(remedy).
  - Throttled calls and short outages are retried up to ten times, adaptively.
"""
