# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""IAM's OIDC providers, by which service accounts of a cluster get roles (IRSA). Tags and clients
can change; the address is the identity. AWS trusts EKS's issuers without a thumbprint."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import urlsplit

from ansible_collections.gpushare.eks.plugins.module_utils._aws import (
    client,
    own_tags,
    tag_list,
    tags_of,
)
from ansible_collections.gpushare.eks.plugins.module_utils._errors import InvalidInput, aws_errors
from ansible_collections.gpushare.eks.plugins.module_utils._pool_names import CLUSTER_TAG
from ansible_collections.gpushare.eks.plugins.module_utils._sync import Outcome, merge, sync


def keep(module: Any) -> dict[str, Any]:
    """What the module iam_oidc_provider returns."""
    params = module.params
    providers = Providers(client(module, "iam"))
    tags = {**own_tags(params["tags"]), CLUSTER_TAG: params["cluster_name"]}
    address = _address(params["url"]) if params["url"] else None
    wanted = {"url": address, "client_ids": sorted(set(params["client_ids"])), "tags": tags}
    purge = params["purge_tags"] and params["tags"] is not None
    outcomes: dict[str, Outcome] = {}
    with aws_errors("OIDC providers of IAM"):
        there = providers.of(address, params["cluster_name"])
        for current in there or ([None] if address else []):
            title = f"OIDC provider {address or current['url']}"
            if params["state"] == "absent" and current and not _ours(current, params):
                module.warn(f"{title} stays: it does not carry our tag {CLUSTER_TAG}")
                current = None
            outcomes[title] = sync(
                state=params["state"],
                current=current,
                desired=wanted,
                differs=partial(_differs, purge),
                create=partial(providers.create, wanted),
                update=providers.update,
                delete=providers.delete,
                check_mode=module.check_mode,
                view=_view,
            )
    last = next(iter(outcomes.values()), Outcome(False, {}, {}, None))
    arn = last.value["arn"] if last.value else ""
    facts = {**wanted, **last.after, "arn": arn, "exists": bool(last.value)}
    return {**merge(outcomes), "provider": facts}


class Providers:
    """The providers of one account. iam: a boto3 client."""

    def __init__(self, iam: Any) -> None:
        self._iam = iam

    def of(self, address: str | None, cluster_name: str) -> list[dict[str, Any]]:
        """[{"arn", "url", "client_ids", "tags"}] of the address, or else of the cluster."""
        found = []
        listed = self._iam.list_open_id_connect_providers()["OpenIDConnectProviderList"]
        for arn in (one["Arn"] for one in listed):
            url = arn.partition(":oidc-provider/")[2]
            if address not in (None, url):
                continue
            raw = self._iam.get_open_id_connect_provider(OpenIDConnectProviderArn=arn)
            tags = tags_of(raw.get("Tags"))
            if address or tags.get(CLUSTER_TAG) == cluster_name:
                clients = sorted(raw.get("ClientIDList") or [])
                found.append({"arn": arn, "url": url, "client_ids": clients, "tags": tags})
        return found

    def create(self, wanted: dict[str, Any]) -> dict[str, Any]:
        answer = self._iam.create_open_id_connect_provider(
            Url=f"https://{wanted['url']}",
            ClientIDList=wanted["client_ids"],
            Tags=tag_list(wanted["tags"]),
        )
        return {**wanted, "arn": answer["OpenIDConnectProviderArn"]}

    def update(self, current: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
        where = {"OpenIDConnectProviderArn": current["arn"]}
        clients = changes.get("client_ids", current["client_ids"])
        for one in sorted(set(clients) - set(current["client_ids"])):
            self._iam.add_client_id_to_open_id_connect_provider(ClientID=one, **where)
        for one in sorted(set(current["client_ids"]) - set(clients)):
            self._iam.remove_client_id_from_open_id_connect_provider(ClientID=one, **where)
        old, new = current["tags"], changes.get("tags", current["tags"])
        if gone := sorted(set(own_tags(old)) - set(new)):
            self._iam.untag_open_id_connect_provider(TagKeys=gone, **where)
        if more := {name: value for name, value in new.items() if old.get(name) != value}:
            self._iam.tag_open_id_connect_provider(Tags=tag_list(more), **where)
        return {**current, **changes}

    def delete(self, current: dict[str, Any]) -> None:
        self._iam.delete_open_id_connect_provider(OpenIDConnectProviderArn=current["arn"])


def _view(raw: dict[str, Any]) -> dict[str, Any]:
    return {
        "url": raw["url"],
        "client_ids": raw["client_ids"],
        "tags": own_tags(raw["tags"]),
    }


def _differs(purge: bool, before: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    tags = wanted["tags"] if purge else {**before["tags"], **wanted["tags"]}
    after = {**wanted, "tags": tags}
    return {name: value for name, value in after.items() if before[name] != value}


def _ours(found: dict[str, Any], params: dict[str, Any]) -> bool:
    return found["tags"].get(CLUSTER_TAG) == params["cluster_name"]


def _address(url: str) -> str:
    """The part by which IAM knows a provider: host and path, no scheme."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.query:
        raise InvalidInput(
            f"url {url!r} is no issuer",
            field="url",
            value=url,
            remedy="give https://<host>/<path>, as eks_result.oidc_issuer tells it",
        )
    return f"{parts.netloc}{parts.path}".rstrip("/")
