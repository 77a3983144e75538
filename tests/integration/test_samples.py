"""The samples side by side on real schedulers and controllers, with pods of our Python that run."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils._names import RESOURCE
from lab import nvml
from lab.nvml import nodes

from .support import playbook, samples
from .support.samples import DERIVED, NAMESPACE, Watcher, World, settled

PUBLISHED_MIB = {pool["name"]: pool["predicted"]["gpu_memory_mib"] for pool in DERIVED["pools"]}
SCALER = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers/resnet"
JOB = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/vector-add"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with samples.world(tmp_path_factory.mktemp("samples")) as made:
        yield made


def applied(world: World, **variables: object) -> playbook.Run:
    done = world.play(**variables)
    assert done.rc == 0, done
    return done


def running(world: World, name: str) -> list[dict]:
    return [pod for pod in world.pods(name) if not pod["metadata"].get("deletionTimestamp")]


def limits(pod: dict) -> dict:
    return pod["spec"]["containers"][0]["resources"]["limits"]


def test_resnet_grows_and_is_updated_within_the_memory_of_one_gpu(world: World) -> None:
    watcher = Watcher(world, world.nodes["shared"])
    assert applied(world, pool="shared").recap["changed"] == 1
    assert applied(world, pool="shared").recap["changed"] == 0
    applied(world, pool="shared", replicas=4)
    before = {pod["metadata"]["uid"] for pod in running(world, "resnet")}
    assert len(before) == 4
    newer = "docker.io/tensorflow/serving:2.20.0-gpu"
    applied(world, pool="shared", replicas=4, image=newer)
    after = running(world, "resnet")
    assert [pod["spec"]["containers"][0]["image"] for pod in after] == [newer] * 4
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in after)
    # Four fit, a fifth would not: a new pod is bound when its predecessor is gone.
    assert watcher.most_mib == 4 * 3072 <= PUBLISHED_MIB["shared"] < 5 * 3072
    assert watcher.most_pods == 4
    assert watcher.events > 12


def test_the_autoscaler_alone_counts_the_replicas(world: World) -> None:
    scale = {"min_replicas": 2, "max_replicas": 4, "cpu_percent": 60}
    pods = {pod["metadata"]["uid"] for pod in running(world, "resnet")}
    assert applied(world, pool="shared", autoscaling=scale).recap["changed"] > 0
    spec = world.get(SCALER)["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 4)
    assert spec["metrics"][0]["resource"]["target"]["averageUtilization"] == 60
    assert spec["scaleTargetRef"]["name"] == "resnet"
    # It was told about four pods and has no metrics to say otherwise: none of them went.
    new = {pod["metadata"]["uid"] for pod in running(world, "resnet")}
    assert len(new) == len(pods) == 4
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/resnet/scale"
    world.patch(path, {"spec": {"replicas": 3}})
    again = applied(world, pool="shared", autoscaling=scale)
    assert again.recap["changed"] == 0, again
    assert settled(lambda: world.deployment()["spec"]["replicas"]) == 3
    applied(world, pool="shared", replicas=2)
    assert world.get(SCALER) is None
    assert settled(lambda: world.deployment()["spec"]["replicas"]) == 2


def test_vector_add_runs_ten_times_beside_it_and_anew_with_another_number(world: World) -> None:
    applied(world, sample="vector_add", pool="shared")
    first = world.get(JOB)
    assert first["status"]["succeeded"] == 10
    pods = world.pods("vector-add")
    assert {pod["spec"]["nodeName"] for pod in pods} == {world.nodes["shared"]}
    assert limits(pods[0])[RESOURCE] == "512Mi"
    again = applied(world, sample="vector_add", pool="shared", gpu_memory="256Mi")
    second = world.get(JOB)
    assert again.recap["changed"] == 2, again
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert limits(world.pods("vector-add")[0])[RESOURCE] == "256Mi"


def test_check_mode_tries_a_sample_and_makes_nothing(world: World) -> None:
    check = world.play("--check", "--diff", sample="tensorflow")
    assert check.rc == 0, check
    assert check.recap["changed"] == 1, check
    assert world.get(JOB.replace("vector-add", "tensorflow")) is None


def proven(world: World) -> dict[str, ET.Element]:
    suite = ET.fromstring(world.built("prove_sharing.xml"))
    return {case.get("name", ""): case for case in suite.iter("testcase")}


def test_the_proof_finds_one_gpu_under_all_pods(world: World) -> None:
    done = world.play(entry="prove_sharing", pool="shared", proof_seconds=3)
    assert done.rc == 0, done
    cases = proven(world)
    assert nvml.gpu_uuid("i-shared", 0) in cases["all pods had the same GPU"][0].text
    verdicts = {name: case[0].tag for name, case in cases.items()}
    assert verdicts == {
        "every pod ran to its end": "system-out",
        "all pods were on one node": "system-out",
        "all pods had the same GPU": "system-out",
        "all pods ran at the same time": "system-out",
        # There is no CUDA in the lab: skipped with the reason, never passed.
        "CUDA gave every pod memory of its share": "skipped",
        "a pod that asks for too much dies alone": "skipped",
    }
    assert "libcuda.so.1" in cases["CUDA gave every pod memory of its share"][0].get("message")
    assert world.get(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/prove-sharing") is None


def test_a_proof_that_fails_says_why_and_still_writes_its_report(world: World) -> None:
    nodes.set_fault("i-mps", code=15)
    try:
        done = world.play(entry="prove_sharing", pool="mps", proof_seconds=1, proof_pods=2)
    finally:
        nodes.clear_fault("i-mps")
    assert done.rc != 0, done
    said = " ".join(done.output.split())
    assert "GPU_IS_LOST" in said
    assert "Remedy: make room on one node of the pool for 3 pods of 1Gi" in said
    assert proven(world)["every pod ran to its end"][0].tag == "failure"


@contextlib.contextmanager
def model_server() -> Iterator[tuple[str, list[int]]]:
    """What answers as TensorFlow Serving does, and how long each request was."""
    sizes: list[int] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            sizes.append(len(asked["instances"][0]))
            answer = b'{"predictions": [[0.5]]}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/models/resnet:predict", sizes
    finally:
        server.shutdown()
        server.server_close()


def test_the_load_test_drives_requests_and_tells_how_they_were_answered(world: World) -> None:
    with model_server() as (url, sizes):
        done = world.play(
            entry="measure", measure_url=url, measure_seconds=1, measure_connections=2
        )
    assert done.rc == 0, done
    found = json.loads(world.built("measure.json"))
    assert found["load"]["requests"] == len(sizes) > 0
    assert set(sizes) == {224}
    assert found["load"]["errors"] == 0
    assert 0 < found["load"]["p50_ms"] <= found["load"]["p99_ms"]
    assert found["replicas_after"] == 2


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"sample": "resnet50"}, "value of sample_app_sample must be one of: resnet, vector_add"),
        ({"sample": "exclusive_pair", "exclusive_pool": "mps"}, "exclusive pools: exclusive"),
    ],
)
def test_a_bad_choice_is_refused_with_what_is_allowed(
    world: World, variables: dict, told: str
) -> None:
    done = world.play(entry="plan", **variables)
    assert done.rc != 0
    assert told in " ".join(done.output.split()), done


def test_a_sample_goes_alone_and_the_namespace_with_the_last(world: World) -> None:
    assert applied(world, sample="vector_add", state="absent").recap["changed"] == 1
    assert world.get(JOB) is None
    assert world.pods("vector-add") == []
    assert len(running(world, "resnet")) == 2
    applied(world, state="absent")
    assert world.get(f"/api/v1/namespaces/{NAMESPACE}") is None
