"""Nodes over HTTP against a local API server: paging, parallel writes, every way of collision."""

from __future__ import annotations

import copy
import http.server
import io
import json
import ssl
import threading
from collections import Counter, defaultdict
from urllib.parse import parse_qs, urlsplit

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import _kube_api, _nodes
from ansible_collections.gpushare.eks.plugins.module_utils._capacity import decide
from ansible_collections.gpushare.eks.plugins.module_utils._errors import (
    AccessDenied,
    NotFound,
    Unreachable,
)

RESOURCE = "gpushare.eks/gpu-memory"


def node(number, uid=None):
    return {
        "metadata": {
            "name": f"node-{number}",
            "uid": uid or f"uid-{number}",
            "resourceVersion": "1",
            "labels": {},
            "annotations": {"kept": "yes"},
        },
        "spec": {"providerID": f"aws:///us-east-1a/i-{number:017x}"},
        "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}},
    }


def reading(number, total=15360):
    return {
        "schema": 1,
        "boot_id": "boot",
        "instance_id": f"i-{number:017x}",
        "time": "2026-11-21T09:15:54Z",
        "driver": "580.105.08",
        "cuda": "13.0",
        "error": None,
        "gpus": [
            {
                "index": 0,
                "uuid": "GPU-1",
                "name": "T4",
                "cc": "7.5",
                "total_mib": total,
                "reserved_mib": 450,
                "used_mib": 0,
                "mig": False,
                "error": None,
            }
        ],
    }


class Api:
    """A small API server: nodes by name; `faults` {(method, name): [(status, headers) ...]}."""

    def __init__(self, nodes):
        self.nodes = {one["metadata"]["name"]: one for one in nodes}
        self.faults, self.seen, self.tokens = defaultdict(list), Counter(), Counter()
        self.good_token, self.lock, self.before_patch = "good", threading.Lock(), {}
        self.keep_patches = True
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def _reply(self, status, answer, headers=()):
                data = json.dumps(answer).encode()
                self.send_response(status)
                for key, value in headers:
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def _serve(self):
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                with api.lock:
                    self._reply(*api.answer(self.command, self.path, body, self.headers))

            do_GET = do_PATCH = _serve

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, method, path, body, headers):
        url = urlsplit(path)
        name = url.path.split("/")[4] if url.path.count("/") > 3 else ""
        self.seen[(method, name or url.path.rpartition("/")[2])] += 1
        token = headers["Authorization"].removeprefix("Bearer ")
        self.tokens[token] += 1
        if token != self.good_token:
            return 401, {"message": "Unauthorized"}
        if self.faults[(method, name)]:
            status, extra = self.faults[(method, name)].pop(0)
            return status, {"kind": "Status", "message": f"fault {status}"}, extra
        if not name:
            return self.page(url)
        if method == "PATCH":
            self.before_patch.pop(name, lambda: None)()
            return self.patch(name, body, headers)
        if name not in self.nodes:
            return 404, {"message": "not found"}
        return 200, self.nodes[name]

    def page(self, url):
        query = parse_qs(url.query)
        items = list(self.nodes.values()) if url.path.endswith("/nodes") else []
        start, limit = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
        more = str(start + limit) if start + limit < len(items) else ""
        return 200, {"items": items[start : start + limit], "metadata": {"continue": more}}

    def patch(self, name, body, headers):
        if headers["Content-Type"] != "application/json-patch+json":
            return 415, {"message": "no JSON patch"}
        if name not in self.nodes:
            return 404, {"message": "not found"}
        after = copy.deepcopy(self.nodes[name])
        for operation in body:
            keys = operation["path"].split("/")[1:]
            *parents, last = [k.replace("~1", "/").replace("~0", "~") for k in keys]
            holder = after
            for key in parents:
                holder = holder[int(key)] if isinstance(holder, list) else holder[key]
            last = int(last) if isinstance(holder, list) else last
            if operation["op"] == "test":
                if (holder[last] if isinstance(holder, list) else holder.get(last)) != operation[
                    "value"
                ]:
                    return 422, {"message": "the test failed"}
            elif operation["op"] == "add":
                holder[last] = operation["value"]
            else:
                del holder[last]
        if self.keep_patches:
            self.nodes[name] = after
        return 200, after if self.keep_patches else self.nodes[name]


@pytest.fixture
def api():
    made = []

    def make(nodes):
        made.append(Api(nodes))
        return made[-1]

    yield make
    for one in made:
        one.server.shutdown()
        one.server.server_close()


class Slept(list):
    """Sleeps that cost no time but move the clock."""

    now = 0.0

    def __call__(self, seconds):
        self.append(seconds)
        self.now += seconds


def connect(server, token=lambda renew: "good", timeout=60):
    slept = Slept()
    url = server if isinstance(server, str) else server.url
    cluster = _nodes.Cluster(
        "demo", url, None, token, timeout=timeout, clock=lambda: slept.now, sleep=slept
    )
    return cluster, slept


def plan(readings):
    policy = {"resource": RESOURCE, "headroom_mib": 0, "multi_gpu": "refuse"}
    by_id = {one["instance_id"]: one for one in readings}

    def decide_one(one):
        return decide(one, by_id.get(one["spec"]["providerID"].rpartition("/")[2]), policy)

    return decide_one


def write(cluster, decide_one, nodes):
    return cluster.write_all({n["metadata"]["name"]: decide_one(n) for n in nodes}, decide_one)


def one_write(server, *, token=lambda renew: "good", timeout=60):
    cluster, slept = connect(server, token, timeout)
    decide_one = plan([reading(0)])
    listed = cluster.nodes()
    return write(cluster, decide_one, listed)["node-0"], cluster, slept


def test_one_paged_list_and_one_patch_each(api):
    server = api([node(i) for i in range(600)])
    cluster, _ = connect(server)
    decide_one = plan([reading(i) for i in range(600)])
    listed = cluster.nodes()
    writes = write(cluster, decide_one, listed)
    assert {w.action for w in writes.values()} == {"patch"}
    assert cluster.counts == {"list": 1, "pages": 2, "patch": 600}
    standing = {n["status"]["capacity"][RESOURCE] for n in server.nodes.values()}
    assert standing == {"14910Mi"}
    assert all(n["status"]["allocatable"][RESOURCE] == "14910Mi" for n in server.nodes.values())
    assert all(n["metadata"]["annotations"]["kept"] == "yes" for n in server.nodes.values())
    assert all(decide_one(n).action == "none" for n in cluster.nodes())


def test_a_list_whose_token_expired_begins_again(api):
    server = api([node(i) for i in range(600)])
    server.faults[("GET", "")] = []
    cluster, _ = connect(server)
    pages = []
    inner = server.page

    def page(url):
        pages.append(url)
        if len(pages) == 2:
            return 410, {"message": "expired"}
        return inner(url)

    server.page = page
    assert len(cluster.nodes()) == 600
    assert cluster.counts["list"] == 2


@pytest.mark.parametrize("status", [409, 429, 500, 503, 504])
def test_faults_that_pass(api, status):
    server = api([node(0)])
    server.faults[("PATCH", "node-0")] = [(status, ())] * 3
    result, cluster, _ = one_write(server)
    assert result.action == "patch"
    assert server.nodes["node-0"]["status"]["capacity"][RESOURCE] == "14910Mi"
    assert cluster.counts["retry"] == (0 if status == 409 else 3)


def test_retry_after_is_respected(api):
    server = api([node(0)])
    server.faults[("PATCH", "node-0")] = [(429, [("Retry-After", "7")])]
    result, _, slept = one_write(server)
    assert result.action == "patch"
    assert slept == [7.0]


def test_too_busy_for_ever_is_a_failure_of_that_node(api):
    server = api([node(0), node(1)])
    server.faults[("PATCH", "node-0")] = [(429, ())] * 1000
    cluster, slept = connect(server, timeout=30)
    decide_one = plan([reading(0), reading(1)])
    writes = write(cluster, decide_one, cluster.nodes())
    assert writes["node-0"].action == "failed"
    assert "429" in writes["node-0"].reason
    assert writes["node-1"].action == "patch"
    assert slept.now <= 31


def test_a_conflict_without_end_is_given_up(api):
    server = api([node(0)])
    server.faults[("PATCH", "node-0")] = [(409, ())] * 100
    result, cluster, _ = one_write(server)
    assert result.action == "failed"
    assert cluster.counts["patch"] == _nodes.ROUNDS


def test_a_replaced_node_never_gets_the_number(api):
    server = api([node(0)])
    other = node(0, uid="another")
    other["spec"]["providerID"] = "aws:///us-east-1a/i-0000000000000beef"
    server.before_patch["node-0"] = lambda: server.nodes.update({"node-0": other})
    result, cluster, _ = one_write(server)
    assert result.action == "refuse"
    assert "took its name" in result.reason
    assert RESOURCE not in server.nodes["node-0"]["status"]["capacity"]
    assert cluster.counts["patch"] == 1


def test_a_node_made_again_on_the_same_instance_gets_it(api):
    server = api([node(0)])
    server.before_patch["node-0"] = lambda: server.nodes.update({"node-0": node(0, uid="new")})
    result, cluster, _ = one_write(server)
    assert result.action == "patch"
    assert cluster.counts["patch"] == 2
    claim = json.loads(server.nodes["node-0"]["metadata"]["annotations"]["gpushare.eks/published"])
    assert claim["node_uid"] == "new"


def test_a_deleted_node_is_gone(api):
    server = api([node(0)])
    server.before_patch["node-0"] = lambda: server.nodes.pop("node-0")
    result, _, _ = one_write(server)
    assert result.action == "gone"


def test_deleted_between_the_refusal_and_the_second_look(api):
    server = api([node(0)])
    server.faults[("PATCH", "node-0")] = [(422, ())]
    server.faults[("GET", "node-0")] = [(404, ())]
    result, _, _ = one_write(server)
    assert result.action == "gone"


def test_somebody_else_wrote_the_same_meanwhile(api):
    server = api([node(0)])
    cluster, _ = connect(server)
    decide_one = plan([reading(0)])
    listed = cluster.nodes()
    decisions = {"node-0": decide_one(listed[0])}
    write(connect(server)[0], decide_one, listed)
    server.faults[("PATCH", "node-0")] = [(409, ())]
    assert cluster.write_all(decisions, decide_one)["node-0"].action == "none"


def test_a_patch_that_is_accepted_but_not_kept_is_a_failure(api):
    server = api([node(0)])
    server.keep_patches = False
    result, _, _ = one_write(server)
    assert result.action == "failed"
    assert "did not keep" in result.reason


def test_an_expired_token_is_renewed_once(api):
    server = api([node(0)])
    tokens = {"now": "expired"}

    def token(renew):
        if renew:
            tokens["now"] = "good"
        return tokens["now"]

    result, cluster, _ = one_write(server, token=token)
    assert result.action == "patch"
    assert server.tokens["expired"] == 1
    assert cluster.counts["token"] == 1


def test_a_token_that_stays_refused_names_the_access_entry(api):
    with pytest.raises(AccessDenied) as caught:
        one_write(api([node(0)]), token=lambda renew: "bad")
    assert "access entry" in caught.value.remedy


def test_forbidden_is_told_for_that_node(api):
    server = api([node(0)])
    server.faults[("PATCH", "node-0")] = [(403, ())]
    result, _, _ = one_write(server)
    assert result.action == "failed"
    assert isinstance(result.error, AccessDenied)


def test_an_unreachable_server_is_given_up_in_time():
    cluster, slept = connect("http://127.0.0.1:1", timeout=600)
    with pytest.raises(Unreachable) as caught:
        cluster.nodes()
    assert "demo" in str(caught.value)
    assert caught.value.remedy
    assert slept.now <= _kube_api.UNREACHABLE_S + 5


def test_a_server_that_comes_back_is_awaited(api):
    server = api([node(0)])
    cluster, _ = connect(server)
    inner = cluster._pool
    failures = [3]

    class Flaky:
        def request(self, *args, **kwargs):
            import urllib3

            if failures[0]:
                failures[0] -= 1
                raise urllib3.exceptions.ProtocolError("connection reset")
            return inner.request(*args, **kwargs)

    cluster._pool = Flaky()
    assert len(cluster.nodes()) == 1


@pytest.mark.parametrize(
    ("cause", "passes"),
    [
        (ssl.SSLEOFError("EOF occurred in violation of protocol"), True),
        (ssl.SSLCertVerificationError("certificate verify failed"), False),
    ],
)
def test_a_handshake_cut_short_passes_and_a_foreign_certificate_does_not(api, cause, passes):
    cluster, slept = connect(api([node(0)]), timeout=600)
    pool, failures = cluster._pool, [cause] * 2

    class Tls:
        def request(self, *args, **kwargs):
            import urllib3

            if failures:
                raise urllib3.exceptions.SSLError(failures.pop())
            return pool.request(*args, **kwargs)

    cluster._pool = Tls()
    if passes:
        assert len(cluster.nodes()) == 1
    else:
        with pytest.raises(Unreachable) as caught:
            cluster.nodes()
        assert "certificate" in caught.value.cause
        assert slept.now == 0


class Restarting:
    """A pool whose server is lost, and refuses everybody for a while when it is back."""

    def __init__(self, cluster, status, times):
        self._inner, self._status, self._times = cluster._pool, status, times
        self._lost = False
        cluster._pool = self

    def request(self, *args, **kwargs):
        import urllib3

        if not self._lost:
            self._lost = True
            raise urllib3.exceptions.ProtocolError("connection reset")
        if self._times:
            self._times -= 1
            answer = b'{"message": "forbidden: no RBAC policy matched"}'
            return urllib3.HTTPResponse(io.BytesIO(answer), status=self._status)
        return self._inner.request(*args, **kwargs)


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_comes_back_knows_nobody_yet(api, status):
    cluster, _ = connect(api([node(0)]))
    Restarting(cluster, status, 3)
    assert len(cluster.nodes()) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_came_back_and_goes_on_refusing_is_believed(api, status):
    cluster, slept = connect(api([node(0)]), timeout=600)
    Restarting(cluster, status, 10**6)
    with pytest.raises(AccessDenied):
        cluster.nodes()
    assert slept.now <= _kube_api.RETURNING_S + _kube_api.LONGEST_PAUSE_S


class Eks:
    def __init__(self, **cluster):
        self.cluster = cluster

    def describe_cluster(self, name):
        return {"cluster": {"name": name, **self.cluster}}


def test_a_cluster_without_endpoint_is_not_ready_yet():
    with pytest.raises(NotFound) as caught:
        _nodes.connect(Eks(status="CREATING"), None, "demo")
    assert "CREATING" in str(caught.value)


def test_the_proxy_of_the_environment_is_used_with_its_login(monkeypatch):
    for name in ("NO_PROXY", "no_proxy", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert _kube_api._pool("https://api.example", None).proxy is None
    monkeypatch.setenv("https_proxy", "http://me:p%40ss@proxy.example:3128")
    pool = _kube_api._pool("https://api.example", None)
    assert pool.proxy.url == "http://me:p%40ss@proxy.example:3128"
    assert pool.proxy_headers == {"proxy-authorization": "Basic bWU6cEBzcw=="}
    monkeypatch.setenv("no_proxy", "api.example")
    assert _kube_api._pool("https://api.example", None).proxy is None
