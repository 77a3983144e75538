"""Pods that admission allows or refuses: (what it is, namespace, pod, guard or None, remedy)."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._names import (
    COMPUTE_ANNOTATION,
    POOL_LABEL,
)

from .admission import SHARE, TAINT, TEAM, WHOLE, asks, box, on, pod

SEES = "NVIDIA_VISIBLE_DEVICES"
DRIVER = "NVIDIA_DRIVER_CAPABILITIES"
FROM = {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
ROOT = {"securityContext": {"privileged": True}}
SLICES, MPS, TURNS, ONLY = ({POOL_LABEL: name} for name in ("slices", "mps", "turns", "whole"))
EVERYTHING = {"operator": "Exists"}


def tolerates(**fields: str) -> dict[str, Any]:
    return {"tolerations": [fields]}


def mounts(path: str) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "hostPath": {"path": path}}]}


def _percent(text: str, **spec: Any) -> dict[str, Any]:
    return pod(box(resources=asks("3Gi")), annotations={COMPUTE_ANNOTATION: text}, **spec)


_SHOWN = "visible-devices", "ask for memory of a GPU"
_BOTH = "whole-gpu", "for a share leave nvidia.com/gpu out"
_HOST = "host-access", "a namespace of gpushare_system_namespaces"
_POWER = "privileged", "run it without privileged"
_SIZE = "request-size", "Remedy: ask for less"
_COUNT = "uncounted-share", "say how much"
_SHARES = "foreign-share", "ask for nvidia.com/gpu: 1"
_OK = None, ""

Case = tuple[str, str, dict[str, Any], str | None, str]


def _in(namespace: str, **cases: Any) -> list[Case]:
    return [(name.replace("_", " "), namespace, *case) for name, case in cases.items()]


CASES: list[Case] = _in(
    "default",
    plain=(pod(), *_OK),
    # -- variables that show a GPU
    all_GPUs=(pod(box(env={SEES: "all"})), *_SHOWN),
    one_GPU_by_its_number=(pod(box(env={SEES: "0"})), *_SHOWN),
    void=(pod(box(env={SEES: "void"})), *_OK),
    none=(pod(box(env={SEES: "none"})), *_OK),
    empty=(pod(box(env={SEES: ""})), *_OK),
    none_and_then_all=(
        pod({**box(), "env": [{"name": SEES, "value": v} for v in ("none", "all")]}), *_SHOWN),
    capabilities_of_the_driver=(pod(box(env={DRIVER: "all"})), *_SHOWN),
    void_with_capabilities=(pod(box(env={SEES: "void", DRIVER: "compute"})), *_SHOWN),
    no_capabilities=(pod(box(env={DRIVER: "none"})), *_OK),
    from_elsewhere=(pod(box(env={SEES: FROM})), *_SHOWN),
    in_an_init_container=(pod(initContainers=[box("init", env={SEES: "all"})]), *_SHOWN),
    in_the_second_container=(pod(box(), box("second", env={SEES: "all"})), *_SHOWN),
    with_a_share=(pod(box(env={SEES: "all"}, resources=asks("1Gi"))), *_OK),
    with_a_share_of_the_plugin=(
        pod(box(env={SEES: "all"}, resources=asks("1", SHARE)), nodeSelector=TURNS), *_OK),
    with_a_whole_GPU=(pod(box(env={SEES: "all"}, resources=asks("1", WHOLE))), *_OK),
    with_a_slice_of_MIG=(
        pod(box(env={SEES: "all"}, resources=asks("1", "nvidia.com/mig-1g.5gb"))), *_OK),
    with_a_share_of_0=(pod(box(env={SEES: "all"}, resources=asks("0"))), *_SHOWN),
    another_variable=(pod(box(env={"CUDA_VISIBLE_DEVICES": "0"})), *_OK),
    # -- a share and a whole GPU
    share_and_whole_GPU=(pod(box(resources=asks("1Gi", **{WHOLE: "1"}))), *_BOTH),
    share_and_whole_GPU_apart=(
        pod(box(resources=asks("1Gi")), box("two", resources=asks("1", WHOLE))), *_BOTH),
    share_and_no_whole_GPU=(pod(box(resources=asks("1Gi", **{WHOLE: "0"}))), *_OK),
    whole_GPU=(pod(box(resources=asks("1", WHOLE))), *_OK),
    # -- the host
    hostIPC=(pod(hostIPC=True), *_HOST),
    hostPID=(pod(hostPID=True), *_HOST),
    hostNetwork=(pod(hostNetwork=True), *_OK),
    pipes_of_MPS=(pod(**mounts("/run/nvidia/mps")), *_HOST),
    one_pipe_of_MPS=(pod(**mounts("/run/nvidia/mps/nvidia.com/gpu/pipe")), *_HOST),
    pipes_by_another_way=(pod(**mounts("//run/./nvidia//mps/")), *_HOST),
    pipes_by_var_run=(pod(**mounts("/var/run/nvidia/mps")), *_HOST),
    pipes_of_NVIDIAs_default=(pod(**mounts("/tmp/nvidia-mps")), *_HOST),
    the_folder_above=(pod(**mounts("/run")), *_HOST),
    the_whole_disk=(pod(**mounts("/")), *_HOST),
    a_folder_with_a_like_name=(pod(**mounts("/run/nvidia/mps-notes")), *_OK),
    another_folder=(pod(**mounts("/var/log")), *_OK),
    # -- privileged
    privileged_elsewhere=(pod(box(**ROOT)), *_OK),
    privileged_with_a_share=(pod(box(resources=asks("1Gi"), **ROOT)), *_POWER),
    privileged_that_tolerates_all=(pod(box(**ROOT), tolerations=[EVERYTHING]), *_POWER),
    privileged_that_tolerates_the_key=(
        pod(box(**ROOT), **tolerates(key=TAINT, operator="Exists")), *_POWER),
    privileged_that_tolerates_a_pool=(
        pod(box(**ROOT), **tolerates(key=TAINT, value="turns", effect="NoSchedule")), *_POWER),
    privileged_that_tolerates_no_pool=(
        pod(box(**ROOT), **tolerates(key=TAINT, value="gone", effect="NoSchedule")), *_OK),
    privileged_that_tolerates_NoExecute=(
        pod(box(**ROOT), **tolerates(operator="Exists", effect="NoExecute")), *_OK),
    privileged_that_tolerates_whole_GPUs=(
        pod(box(**ROOT), **tolerates(key=WHOLE, operator="Exists")), *_OK),
    privileged_that_selects=(pod(box(**ROOT), nodeSelector=MPS), *_POWER),
    privileged_by_affinity=(pod(box(**ROOT), affinity=on("whole", "slices")), *_POWER),
    privileged_on_whole_GPUs=(pod(box(**ROOT), affinity=on("whole")), *_OK),
    privileged_by_the_plugins_label=(
        pod(box(**ROOT), nodeSelector={"nvidia.com/device-plugin.config": "mps"}), *_POWER),
    privileged_on_a_named_node=(pod(box(**ROOT), nodeName="node-1"), *_POWER),
    privileged_init_container=(
        pod(initContainers=[box("init", **ROOT)], tolerations=[EVERYTHING]), *_POWER),
    tolerates_all_unprivileged=(pod(tolerations=[EVERYTHING]), *_OK),
    # -- how much
    all_of_a_GPU=(pod(box(resources=asks("14848Mi")), nodeSelector=SLICES), *_OK),
    more_than_a_GPU=(pod(box(resources=asks("14849Mi")), nodeSelector=SLICES), *_SIZE),
    more_than_any_GPU=(pod(box(resources=asks("40Gi"))), *_SIZE),
    all_of_a_client=(pod(box(resources=asks("3840Mi")), nodeSelector=MPS), *_OK),
    more_than_a_client=(pod(box(resources=asks("3841Mi")), nodeSelector=MPS), *_SIZE),
    more_than_a_client_by_affinity=(
        pod(box(resources=asks("4Gi")), affinity=on("mps")), *_SIZE),
    enough_by_affinity=(pod(box(resources=asks("4Gi")), affinity=on("slices")), *_OK),
    might_meet_a_smaller_client=(pod(box(resources=asks("4Gi"))), *_SIZE),
    fits_everywhere=(pod(box(resources=asks("3Gi"))), *_OK),
    in_the_second_container_too_much=(
        pod(box(), box("two", resources=asks("15Gi")), nodeSelector=SLICES), *_SIZE),
    too_much_together=(
        pod(*(box(n, resources=asks("8Gi")) for n in ("a", "b")), nodeSelector=SLICES), *_SIZE),
    one_after_the_other=(
        pod(box(resources=asks("8Gi")), initContainers=[box("i", resources=asks("8Gi"))],
            nodeSelector=SLICES), *_OK),
    together_with_a_sidecar=(
        pod(box(resources=asks("8Gi")), nodeSelector=SLICES,
            initContainers=[box("i", resources=asks("8Gi"), restartPolicy="Always")]), *_SIZE),
    two_clients_of_MPS=(
        pod(*(box(n, resources=asks("3Gi")) for n in ("a", "b")), nodeSelector=MPS), *_OK),
    without_its_unit=(pod(box(resources=asks("3"))), "request-size", "write the unit"),
    more_than_there_are_numbers=(pod(box(resources=asks("99Ei"))), "request-size", "such as 3Gi"),
    a_pool_without_memory=(
        pod(box(resources=asks("1Gi")), nodeSelector=TURNS),
        "request-size", "select one of slices, mps, or none"),
    a_pool_that_is_not_there=(
        pod(box(resources=asks("1Gi")), nodeSelector={POOL_LABEL: "gone"}),
        "request-size", "does not exist (gone)"),
    a_limit_from_elsewhere=(
        pod(box(resources=asks("1Gi"), env={"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": FROM})),
        "request-size", "leave the variable out"),
    compute=(_percent("25", nodeSelector=MPS), *_OK),
    too_much_compute=(_percent("26", nodeSelector=MPS), "request-size", "at most 25 on pool mps"),
    compute_without_MPS=(_percent("10"), "request-size", "with the pool selected"),
    compute_in_words=(_percent("half", nodeSelector=MPS), "request-size", "a whole number"),
    # -- what an exclusive pool has not
    share_of_memory_on_whole_GPUs=(
        pod(box(resources=asks("1Gi")), nodeSelector=ONLY), *_SHARES),
    share_of_the_plugin_on_whole_GPUs=(
        pod(box(resources=asks("1", SHARE)), nodeSelector=ONLY), *_SHARES),
    share_by_affinity_on_whole_GPUs=(
        pod(box(resources=asks("1", SHARE)), affinity=on("whole")), *_SHARES),
    somebody_elses_share_on_whole_GPUs=(
        pod(box(resources=asks("1", "aliyun.com/gpu-mem")), nodeSelector=ONLY), *_SHARES),
    whole_GPU_on_whole_GPUs=(pod(box(resources=asks("1", WHOLE)), nodeSelector=ONLY), *_OK),
    share_on_either=(
        pod(box(resources=asks("1", SHARE)), affinity=on("whole", "turns")), *_OK),
    share_that_tolerates_whole_GPUs=(
        pod(box(resources=asks("1", SHARE)), nodeSelector=TURNS,
            **tolerates(key=WHOLE, operator="Exists")), *_OK),
    # -- a share that nobody counts
    share_in_turns=(pod(box(resources=asks("1", SHARE)), nodeSelector=TURNS), *_OK),
    share_of_anywhere=(pod(box(resources=asks("1", SHARE))), *_COUNT),
    share_of_a_pool_by_memory=(
        pod(box(resources=asks("1", SHARE)), nodeSelector=SLICES),
        "uncounted-share", "select a pool that shares without it (gpushare.eks/pool: turns)"),
    share_of_turns_or_memory=(
        pod(box(resources=asks("1", SHARE)), affinity=on("turns", "mps")), *_COUNT),
    share_beside_one_that_is_counted=(
        pod(box(resources=asks("1Gi")), box("two", resources=asks("1", SHARE))), *_COUNT),
    share_of_an_init_container=(
        pod(box(resources=asks("1Gi")), initContainers=[box("i", resources=asks("1", SHARE))]),
        *_COUNT),
    share_with_its_number=(pod(box(resources=asks("1Gi", **{SHARE: "1"}))), *_OK),
    no_share=(pod(box(resources=asks("0", SHARE))), *_OK),
)  # fmt: skip
CASES += _in(
    TEAM,
    all_that_a_pod_of_the_team_may=(pod(box(resources=asks("4Gi")), nodeSelector=SLICES), *_OK),
    more_than_a_pod_of_the_team_may=(
        pod(box(resources=asks("4097Mi")), nodeSelector=SLICES),
        "request-size", "max_per_pod of the namespace raised in gpushare_team_quotas"),
    more_than_a_pod_of_the_team_may_together=(
        pod(*(box(n, resources=asks("3Gi")) for n in ("a", "b")), nodeSelector=SLICES),
        "request-size", "max_per_pod"),
)  # fmt: skip
CASES += _in(
    "kube-system",
    node_agent=(
        pod(box(env={SEES: "all"}, **ROOT), hostPID=True, hostIPC=True,
            tolerations=[EVERYTHING], **mounts("/")), *_OK),
)  # fmt: skip
