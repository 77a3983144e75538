"""iam_oidc_provider: {absent, present} x {missing, same, differs} x {check, real}, ownership."""

from __future__ import annotations

import pytest

from tests.unit.eks_fake import FakeService, refusal

ISSUER = "https://oidc.eks.us-east-1.amazonaws.com/id/1CC0FFEE"
ADDRESS = ISSUER.removeprefix("https://")
ARN = f"arn:aws:iam::123456789012:oidc-provider/{ADDRESS}"
OURS = {"gpushare.eks/cluster": "demo"}
STS = ["sts.amazonaws.com"]


class FakeIam(FakeService):
    service = "iam"

    def __init__(self):
        super().__init__()
        foreign = {"tags": {}, "clients": []}
        self.providers = {"arn:aws:iam::123456789012:oidc-provider/example.org": foreign}

    def put(self, tags=OURS, clients=STS):
        self.providers[ARN] = {"tags": dict(tags), "clients": list(clients)}

    def answer(self, name, params):
        arn = params.get("OpenIDConnectProviderArn", ARN)
        provider = self.providers.get(arn, {})
        if name == "list_open_id_connect_providers":
            return {"OpenIDConnectProviderList": [{"Arn": arn} for arn in self.providers]}
        if name == "get_open_id_connect_provider":
            tags = [{"Key": key, "Value": value} for key, value in provider["tags"].items()]
            return {"ClientIDList": provider["clients"], "Tags": tags}
        if name == "create_open_id_connect_provider":
            assert params["Url"] == ISSUER
            self.put({tag["Key"]: tag["Value"] for tag in params["Tags"]}, params["ClientIDList"])
            return {"OpenIDConnectProviderArn": ARN}
        if name == "delete_open_id_connect_provider":
            del self.providers[arn]
        elif name == "tag_open_id_connect_provider":
            provider["tags"].update({tag["Key"]: tag["Value"] for tag in params["Tags"]})
        elif name == "untag_open_id_connect_provider":
            for key in params["TagKeys"]:
                del provider["tags"][key]
        elif name == "add_client_id_to_open_id_connect_provider":
            provider["clients"].append(params["ClientID"])
        elif name == "remove_client_id_from_open_id_connect_provider":
            provider["clients"].remove(params["ClientID"])
        return {}

    def writes(self):
        return [name for name, _p in self.calls if not name.startswith(("list", "get"))]


@pytest.fixture
def iam():
    return FakeIam()


@pytest.fixture
def go(run_module, iam):
    def go(**options):
        wanted = {"cluster_name": "demo", "url": ISSUER, **options}
        return run_module("iam_oidc_provider", clients={"iam": iam}, **wanted)

    return go


@pytest.mark.parametrize("check", [True, False])
def test_one_that_is_missing_is_made(go, iam, check):
    result = go(check=check)
    assert result["changed"]
    assert result["diff"][0]["after"] == {"url": ADDRESS, "client_ids": STS, "tags": OURS}
    assert result["provider"]["exists"] is not check
    assert result["provider"]["arn"] == ("" if check else ARN)
    assert iam.writes() == ([] if check else ["create_open_id_connect_provider"])
    if not check:
        assert not go()["changed"]


def test_one_that_is_as_wanted_is_left(go, iam):
    iam.put(tags={**OURS, "team": "ml"})
    assert not go()["changed"]
    assert iam.writes() == []


@pytest.mark.parametrize("check", [True, False])
def test_what_differs_is_changed_in_place(go, iam, check):
    iam.put(tags={"team": "ml", "aws:x": "1"}, clients=["other"])
    options = {"tags": {"a": "b"}, "check": check}
    result = go(**options)
    assert result["changed"]
    if check:
        assert iam.writes() == []
        return
    assert iam.providers[ARN]["clients"] == STS
    assert iam.providers[ARN]["tags"] == {**OURS, "a": "b", "aws:x": "1"}
    assert not go(**options)["changed"]


@pytest.mark.parametrize("check", [True, False])
def test_ours_is_deleted(go, iam, check):
    iam.put()
    assert go(state="absent", check=check)["changed"]
    assert (ARN in iam.providers) is check
    if not check:
        assert not go(state="absent")["changed"]
    assert len(iam.providers) == 1 + check


def test_without_an_address_all_of_the_cluster_are_deleted_and_no_others(go, iam):
    iam.put()
    assert go(state="absent", url=None)["changed"]
    assert [arn.rpartition("/")[2] for arn in iam.providers] == ["example.org"]
    assert not go(state="absent", url=None)["changed"]


def test_somebody_elses_is_not_deleted(go, iam):
    iam.put(tags={"gpushare.eks/cluster": "other"})
    result = go(state="absent")
    assert not result["changed"]
    assert ADDRESS in result["warnings"][0]
    assert ARN in iam.providers


@pytest.mark.parametrize("url", ["http://oidc.example", "oidc.example/id/1", "https://a/?x=1"])
def test_what_is_no_issuer_is_refused_before_the_first_call(go, iam, url):
    assert go(url=url)["error"]["field"] == "url"
    assert iam.calls == []


def test_a_denied_action_is_named(go, iam):
    denied = "User: arn:aws:iam::1:user/me is not authorized to perform: iam:CreateOpenIDConnect"
    iam.errors["create_open_id_connect_provider"] = [refusal("AccessDenied", denied + "Provider")]
    assert go()["error"]["action"] == "iam:CreateOpenIDConnectProvider"
