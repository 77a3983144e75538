"""ssm_document: {absent, present} x {missing, same, differs} x {check, real}, ownership, purge."""

from __future__ import annotations

import hashlib

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args
from ansible_collections.amazon.aws.plugins.module_utils.modules import AnsibleAWSModule
from botocore.exceptions import ClientError

from ansible_collections.gpushare.eks.plugins.module_utils._scripts import documents
from ansible_collections.gpushare.eks.plugins.modules import ssm_document

OURS, PROCESSES = documents()
NAMES = [OURS["name"], PROCESSES["name"]]
DEMO, OTHER = "gpushare.eks/cluster/demo", "gpushare.eks/cluster/other"


class Exit(Exception):
    """What the module returned: (failed, result)."""


def refuse(code):
    raise ClientError({"Error": {"Code": code, "Message": code}}, "Operation")


class Ssm:
    """Documents {name: {"versions": [text], "default": n, "tags": {}}}."""

    def __init__(self, **documents):
        self.documents, self.writes = {}, []
        for name, (text, tags) in documents.items():
            self.documents[name.replace("_", "-")] = {
                "versions": [text],
                "default": 1,
                "tags": dict(tags),
            }

    def _find(self, name):
        return self.documents.get(name) or refuse("InvalidDocument")

    def describe_document(self, Name, DocumentVersion=None):
        found = self._find(Name)
        latest = len(found["versions"])
        number = {None: found["default"], "$LATEST": latest}.get(DocumentVersion)
        number = number or int(DocumentVersion)
        return {
            "Document": {
                "Name": Name,
                "Hash": hashlib.sha256(found["versions"][number - 1].encode()).hexdigest(),
                "DefaultVersion": str(found["default"]),
                "LatestVersion": str(latest),
            }
        }

    def get_document(self, Name):
        found = self._find(Name)
        return {"Content": found["versions"][found["default"] - 1]}

    def list_tags_for_resource(self, ResourceType, ResourceId):
        tags = self._find(ResourceId)["tags"]
        return {"TagList": [{"Key": key, "Value": value} for key, value in tags.items()]}

    def create_document(self, Name, Content, DocumentType, DocumentFormat, Tags):
        self.writes.append("create")
        tags = {tag["Key"]: tag["Value"] for tag in Tags}
        self.documents[Name] = {"versions": [Content], "default": 1, "tags": tags}

    def update_document(self, Name, Content, DocumentFormat, DocumentVersion):
        found = self._find(Name)
        if Content in found["versions"]:
            refuse("DuplicateDocumentContent")
        self.writes.append("update")
        found["versions"].append(Content)
        return {"DocumentDescription": {"DocumentVersion": str(len(found["versions"]))}}

    def update_document_default_version(self, Name, DocumentVersion):
        self.writes.append("default")
        self._find(Name)["default"] = int(DocumentVersion)

    def add_tags_to_resource(self, ResourceType, ResourceId, Tags):
        self.writes.append("tags")
        self._find(ResourceId)["tags"].update({tag["Key"]: tag["Value"] for tag in Tags})

    def remove_tags_from_resource(self, ResourceType, ResourceId, TagKeys):
        self.writes.append("untag")
        for key in TagKeys:
            del self._find(ResourceId)["tags"][key]

    def delete_document(self, Name):
        self.writes.append("delete")
        self.documents.pop(Name, None) or refuse("InvalidDocument")

    def list_documents(self, Filters, MaxResults, NextToken="0"):
        names = sorted(self.documents)
        start = int(NextToken)
        rows = [
            {
                "Name": name,
                "Tags": [{"Key": k, "Value": v} for k, v in self.documents[name]["tags"].items()],
            }
            for name in names[start : start + 2]
        ]
        more = {"NextToken": str(start + 2)} if start + 2 < len(names) else {}
        return {"DocumentIdentifiers": rows, **more}


@pytest.fixture
def run(monkeypatch):
    def call(ssm, *, check=False, **params):
        monkeypatch.setattr(AnsibleAWSModule, "client", lambda self, name, **_: ssm)
        monkeypatch.setattr(
            AnsibleModule, "exit_json", lambda self, **r: (_ for _ in ()).throw(Exit(False, r))
        )
        monkeypatch.setattr(
            AnsibleModule, "fail_json", lambda self, **r: (_ for _ in ()).throw(Exit(True, r))
        )
        arguments = {"region": "us-east-1", "_ansible_check_mode": check, **params}
        with patch_module_args(arguments), pytest.raises(Exit) as caught:
            ssm_document.main()
        failed, result = caught.value.args
        assert not failed, result
        return result

    return call


def standing(text=OURS["text"], **tags):
    both = zip(NAMES, (text, PROCESSES["text"]), strict=True)
    return Ssm(**{k.replace("-", "_"): (v, {DEMO: "used", **tags}) for k, v in both})


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("state", "ssm", "changed", "writes"),
    [
        ("present", Ssm, True, ["create", "create"]),
        ("present", standing, False, []),
        ("present", lambda: standing('{"old":1}'), True, ["update", "default"]),
        ("absent", Ssm, False, []),
        ("absent", standing, True, ["delete", "delete"]),
        ("absent", lambda: standing('{"old":1}'), True, ["delete", "delete"]),
    ],
)
def test_truth_table(run, state, ssm, changed, writes, check):
    ssm = ssm()
    result = run(ssm, state=state, check=check, cluster="demo")
    assert result["changed"] is changed
    assert ssm.writes == ([] if check else writes)
    assert bool(result["diff"]) is changed
    assert result["document"]["name"] == OURS["name"]
    assert result["documents"] == NAMES
    assert result["document"]["hash"] == OURS["hash"] or state == "absent"
    if not check:
        assert run(ssm, state=state, cluster="demo")["changed"] is False
        assert sorted(ssm.documents) == (sorted(NAMES) if state == "present" else [])


def test_a_version_that_has_the_content_already_becomes_the_default(run):
    ssm = standing('{"old":1}')
    run(ssm)
    ssm.documents[OURS["name"]]["default"] = 1
    result = run(ssm)
    assert result["changed"] is True
    assert ssm.documents[OURS["name"]]["default"] == 2
    assert len(ssm.documents[OURS["name"]]["versions"]) == 2


def test_missing_tags_are_added_and_others_stay(run):
    ssm = standing(team="ml")
    result = run(ssm, cluster="demo", tags={"stage": "test"})
    assert result["changed"] is True
    assert ssm.documents[OURS["name"]]["tags"] == {DEMO: "used", "team": "ml", "stage": "test"}


def test_a_document_goes_with_the_last_cluster_that_uses_it(run):
    ssm = Ssm()
    made = ["create", "create"]
    for cluster, writes in (("demo", made), ("other", [*made, "tags", "tags"])):
        assert run(ssm, cluster=cluster)["changed"] is True
        assert run(ssm, cluster=cluster)["changed"] is False
        assert ssm.writes == writes
    assert all(ssm.documents[one]["tags"] == {DEMO: "used", OTHER: "used"} for one in NAMES)
    # The one that made it goes first, and the other one's document stays.
    left = run(ssm, state="absent", cluster="demo")
    assert left["changed"] is True
    assert left["document"]["exists"] is True
    assert left["diff"][0]["after"]["tags"] == {OTHER: "used"}
    assert all(ssm.documents[one]["tags"] == {OTHER: "used"} for one in NAMES)
    assert run(ssm, state="absent", cluster="demo")["changed"] is False
    gone = run(ssm, state="absent", cluster="other")
    assert gone["changed"] is True
    assert gone["document"]["exists"] is False
    assert ssm.documents == {}


def test_check_mode_leaves_the_tag_of_a_document_that_others_use(run):
    ssm = standing(**{OTHER: "used"})
    assert run(ssm, state="absent", cluster="demo", check=True)["changed"] is True
    assert ssm.documents[OURS["name"]]["tags"] == {DEMO: "used", OTHER: "used"}
    assert ssm.writes == []


@pytest.mark.parametrize("check", [True, False])
def test_purge_gives_up_this_clusters_older_documents_only(run, check):
    ssm = Ssm(
        gpushare_probe_00000001=("{}", {DEMO: "used"}),
        gpushare_probe_00000002=("{}", {OTHER: "used"}),
        gpushare_probe_00000003=("{}", {}),
        gpushare_probe_00000004=("{}", {DEMO: "used", OTHER: "used"}),
        something_else=("{}", {DEMO: "used"}),
    )
    result = run(ssm, purge=True, cluster="demo", check=check)
    assert result["purged"] == ["gpushare-probe-00000001"]
    assert ("gpushare-probe-00000001" in ssm.documents) is check
    assert (DEMO in ssm.documents["gpushare-probe-00000004"]["tags"]) is check
    assert {"gpushare-probe-00000002", "gpushare-probe-00000003", "something-else"} <= set(
        ssm.documents
    )


def test_an_own_document(run):
    ssm = Ssm()
    content = {"schemaVersion": "2.2", "description": "x", "mainSteps": []}
    assert run(ssm, name="mine", content=content)["changed"] is True
    assert run(ssm, name="mine", content=content)["changed"] is False
    assert run(ssm, name="mine", state="absent")["changed"] is True
    assert ssm.documents == {}


def test_one_of_ours_by_its_name(run):
    ssm = Ssm()
    assert run(ssm, name=PROCESSES["name"], cluster="demo")["documents"] == NAMES[1:]
    assert list(ssm.documents) == NAMES[1:]
    assert run(ssm, name=PROCESSES["name"], state="absent", cluster="demo")["changed"] is True
    assert ssm.documents == {}


@pytest.mark.parametrize(
    "params",
    [
        {"name": "mine"},
        {"content": {"schemaVersion": "2.2"}},
        {"purge": True},
        {"name": "mine", "content": {"description": "x" * 70000}},
    ],
    ids=["no content", "no name", "purge without a cluster", "too large"],
)
def test_what_cannot_work_is_refused(run, monkeypatch, params):
    class Refused(Exception):
        pass

    monkeypatch.setattr(AnsibleAWSModule, "client", lambda self, name, **_: Ssm())
    monkeypatch.setattr(
        AnsibleModule, "fail_json", lambda self, msg, **r: (_ for _ in ()).throw(Refused(msg))
    )
    with patch_module_args({"region": "us-east-1", **params}), pytest.raises(Refused) as caught:
        ssm_document.main()
    assert str(caught.value)
