"""The lookup: tokens by environment, by options, typed errors."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import pytest
from ansible.errors import AnsibleError
from ansible.plugins.loader import init_plugin_loader, lookup_loader

NAME = "gpushare.eks.eks_token"
COLLECTIONS = Path(__file__).resolve().parents[3] / "collections"


@pytest.fixture(scope="session", autouse=True)
def _loader():
    # Ansible configures its loader once for a process: another test may have done it already.
    if not any("AnsibleCollectionFinder" in type(finder).__name__ for finder in sys.meta_path):
        init_plugin_loader(prefix_collections_path=[str(COLLECTIONS)])


@pytest.fixture
def lookup(monkeypatch, tmp_path):
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLEKEY00")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "example-secret-key")
    plugin = lookup_loader.get(NAME)
    return lambda *terms, **options: plugin.run(list(terms), {}, **options)


def url_of(token):
    body = token.removeprefix("k8s-aws-v1.")
    return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode()


def test_one_token_for_each_cluster(lookup):
    one, two = lookup("one", "two", region="eu-west-1")
    assert one != two
    assert url_of(one).startswith("https://sts.eu-west-1.amazonaws.com/?")


def test_endpoint_of_the_environment_and_of_the_option(lookup, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:5001")
    (token,) = lookup("demo", region="us-east-1")
    assert url_of(token).startswith("http://127.0.0.1:5001/?")
    (token,) = lookup("demo", region="us-east-1", endpoint_url="http://127.0.0.1:5002")
    assert url_of(token).startswith("http://127.0.0.1:5002/?")


def test_profile_wins_over_the_environment(lookup, monkeypatch, tmp_path):
    file = tmp_path / "credentials"
    file.write_text(
        "[lab]\naws_access_key_id = AKIDPROFILEKEY00\naws_secret_access_key = example-other-key\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    (token,) = lookup("demo", region="us-east-1", profile="lab")
    assert "AKIDPROFILEKEY00" in url_of(token)


@pytest.mark.parametrize(
    ("unset", "options", "told"),
    [
        (["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"], {"region": "us-east-1"}, "credentials"),
        (["AWS_REGION", "AWS_DEFAULT_REGION"], {}, "region"),
        ([], {"region": "us-east-1", "profile": "missing"}, "missing"),
    ],
)
def test_errors_are_for_a_person(lookup, monkeypatch, unset, options, told):
    for name in unset:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(AnsibleError, match=told) as caught:
        lookup("demo", **options)
    assert "Remedy" in str(caught.value)
