"""What a container finds when it starts: volumes, token, environment and command.

Everything lies below one folder of the pod. A container's paths are those of its image, so each
path below or above a mount is rewritten to where it lies here, in command, arguments and values.
"""

from __future__ import annotations

import base64
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lab import LabError
from lab.kubeclient import KubeClient

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# The kubelet's default, and when it renews a token.
TOKEN_LIFE_S, TOKEN_RENEW_AT = 3607, 0.8
_LISTED_TIMEOUT_S = 10.0
_PATH = re.compile(r"(?<![\w./-])/(?!/)[\w.+@%-]+(?:/[\w.+@%-]+)*")
_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
_METADATA = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class ConfigMaps:
    """The ConfigMaps of every namespace in which a pod uses one; `changed` is called after each."""

    def __init__(self, client: KubeClient, changed: Callable[[], None]) -> None:
        self._client, self._changed = client, changed
        self._known: dict[str, dict[str, dict[str, bytes]]] = {}
        self._listed: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def read(self, namespace: str, name: str) -> dict[str, bytes] | None:
        """The entries of one; None where there is none. The first look at a namespace lists it."""
        with self._lock:
            listed = self._listed.get(namespace)
            if listed is None:
                listed = self._listed[namespace] = threading.Event()
                threading.Thread(
                    target=self._follow, args=(namespace, listed), daemon=True, name="lab-maps"
                ).start()
        if not listed.wait(_LISTED_TIMEOUT_S):
            raise LabError(
                f"the ConfigMaps of namespace {namespace} cannot be listed; "
                "`python -m lab status` shows whether the API server runs"
            )
        with self._lock:
            return self._known[namespace].get(name)

    def _follow(self, namespace: str, listed: threading.Event) -> None:
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        for event in self._client.follow(path):
            with self._lock:
                if event["type"] == "SYNC":
                    found = {item["metadata"]["name"]: _entries(item) for item in event["items"]}
                    self._known[namespace] = found
                elif event["type"] == "DELETED":
                    self._known[namespace].pop(event["object"]["metadata"]["name"], None)
                else:
                    item = event["object"]
                    self._known[namespace][item["metadata"]["name"]] = _entries(item)
            listed.set()
            self._changed()


def _entries(config_map: Mapping[str, Any]) -> dict[str, bytes]:
    entries = {key: text.encode() for key, text in (config_map.get("data") or {}).items()}
    for key, text in (config_map.get("binaryData") or {}).items():
        entries[key] = base64.b64decode(text)
    return entries


class PodFiles:
    """One pod's files below `root`; LabError says what the pod waits for."""

    def __init__(
        self,
        client: KubeClient,
        config_maps: ConfigMaps,
        pod: Mapping[str, Any],
        host_ip: str,
        root: Path,
    ) -> None:
        self._client, self._config_maps = client, config_maps
        self._pod, self._host_ip, self._root = pod, host_ip, root
        self._tokens: dict[tuple[str, str], bytes] = {}
        self.renew_due = float("inf")

    @property
    def namespace(self) -> str:
        return self._pod["metadata"]["namespace"]

    # -- volumes --------------------------------------------------------------------------------

    def renew_tokens(self) -> None:
        """Request every token of the pod's volumes anew; write() brings them to the files."""
        self.renew_due = float("inf")
        for volume in self._pod["spec"].get("volumes") or []:
            for source in (volume.get("projected") or {}).get("sources") or []:
                asked = source.get("serviceAccountToken")
                if asked:
                    life_s = asked.get("expirationSeconds") or TOKEN_LIFE_S
                    token = self._token(asked.get("audience"), life_s)
                    self._tokens[volume["name"], asked["path"]] = token
                    due = time.monotonic() + TOKEN_RENEW_AT * life_s
                    self.renew_due = min(self.renew_due, due)

    def _token(self, audience: str | None, life_s: int) -> bytes:
        meta = self._pod["metadata"]
        account = self._pod["spec"].get("serviceAccountName") or "default"
        # Bound to the pod, the API server itself adds the claims of pod and node.
        bound = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [audience] if audience else [],
                "expirationSeconds": life_s,
                "boundObjectRef": bound,
            },
        }
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token"
        status, answer = self._client.request("POST", path, body)
        if status >= 300:
            raise LabError(f"no token for {account}: {status} {(answer or {}).get('message')}")
        return answer["status"]["token"].encode()

    def write(self) -> None:
        """Bring every volume to what its sources say now; files that agree are left alone."""
        for volume in self._pod["spec"].get("volumes") or []:
            folder = self._root / "volumes" / volume["name"]
            folder.mkdir(parents=True, exist_ok=True)
            if "emptyDir" not in volume:
                _bring(folder, self._files(volume))

    def _files(self, volume: Mapping[str, Any]) -> dict[str, bytes]:
        if "configMap" in volume:
            return self._config_map(volume["configMap"])
        if "downwardAPI" in volume:
            return self._downward(volume["downwardAPI"])
        if "projected" not in volume:
            kind = next((key for key in volume if key != "name"), "none")
            raise LabError(
                f"volume {volume['name']} is a {kind}; the lab's pods take configMap, projected,"
                " downwardAPI and emptyDir"
            )
        files: dict[str, bytes] = {}
        for source in volume["projected"].get("sources") or []:
            if "serviceAccountToken" in source:
                path = source["serviceAccountToken"]["path"]
                files[path] = self._tokens[volume["name"], path]
            elif "configMap" in source:
                files |= self._config_map(source["configMap"])
            elif "downwardAPI" in source:
                files |= self._downward(source["downwardAPI"])
            else:
                raise LabError(f"volume {volume['name']}: the lab projects no {', '.join(source)}")
        return files

    def _config_map(self, source: Mapping[str, Any]) -> dict[str, bytes]:
        entries = self._config_maps.read(self.namespace, source["name"])
        optional = source.get("optional", False)
        if entries is None:
            if optional:
                return {}
            raise LabError(f'configmap "{source["name"]}" not found')
        if not source.get("items"):
            return dict(entries)
        files = {}
        for item in source["items"]:
            if item["key"] in entries:
                files[item["path"]] = entries[item["key"]]
            elif not optional:
                raise LabError(f'configmap "{source["name"]}" has no key {item["key"]}')
        return files

    def _downward(self, source: Mapping[str, Any]) -> dict[str, bytes]:
        items = source.get("items") or []
        return {item["path"]: self._field(item.get("fieldRef") or {}).encode() for item in items}

    # -- containers -----------------------------------------------------------------------------

    def environment(self, container: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, str]:
        """The container's environment: `given` by the lab, and over it what the pod says."""
        rebase = self._rebase(container)
        env = dict(given)
        for name, path in (("GPUSHARE_TOKEN_FILE", "token"), ("GPUSHARE_CA_FILE", "ca.crt")):
            if any(m["mountPath"] == ACCOUNT for m in container.get("volumeMounts") or []):
                env[name] = rebase(f"{ACCOUNT}/{path}")
        for entry in container.get("env") or []:
            source = entry.get("valueFrom")
            if source is None:
                text = _expand(entry.get("value") or "", env)
            elif "fieldRef" in source:
                text = self._field(source["fieldRef"])
            elif "configMapKeyRef" in source:
                wanted = source["configMapKeyRef"]
                found = self._config_maps.read(self.namespace, wanted["name"]) or {}
                if wanted["key"] not in found:
                    if wanted.get("optional"):
                        continue
                    raise LabError(f'configmap "{wanted["name"]}" has no key {wanted["key"]}')
                text = found[wanted["key"]].decode()
            else:
                raise LabError(f"variable {entry['name']}: the lab knows no {', '.join(source)}")
            env[entry["name"]] = rebase(text)
        return env

    def command(self, container: Mapping[str, Any], env: Mapping[str, str]) -> list[str]:
        """The container's command line; python's image starts python3 where there is none."""
        rebase = self._rebase(container)
        words = [*(container.get("command") or []), *(container.get("args") or [])]
        return [rebase(_expand(word, env)) for word in words or ["python3"]]

    def _rebase(self, container: Mapping[str, Any]) -> Callable[[str], str]:
        """Make the container's mounts; a function that rewrites the paths in a text to them."""
        base = self._root / "root" / container["name"]
        mounts = sorted(container.get("volumeMounts") or [], key=lambda m: len(m["mountPath"]))
        for mount in mounts:
            link = base / mount["mountPath"].lstrip("/")
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(self._root / "volumes" / mount["name"] / mount.get("subPath", ""))
        paths = [mount["mountPath"].rstrip("/") for mount in mounts]
        paths.append(message_path(container))

        def inside(match: re.Match[str]) -> str:
            path = match[0]
            below = any(path == p or path.startswith(f"{p}/") for p in paths)
            # PYTHONPATH may name a folder above the mounts, but /etc stays this machine's.
            above = path.count("/") > 1 and any(p.startswith(f"{path}/") for p in paths)
            return f"{base}{path}" if below or above else path

        return lambda text: _PATH.sub(inside, text)

    def _field(self, reference: Mapping[str, Any]) -> str:
        path, meta = reference.get("fieldPath", ""), self._pod["metadata"]
        special = _METADATA.fullmatch(path)
        if special:
            return (meta.get(special[1]) or {}).get(special[2], "")
        known = {
            "metadata.name": meta["name"],
            "metadata.namespace": meta["namespace"],
            "metadata.uid": meta["uid"],
            "spec.nodeName": self._pod["spec"]["nodeName"],
            "spec.serviceAccountName": self._pod["spec"].get("serviceAccountName", ""),
            "status.hostIP": self._host_ip,
            "status.podIP": (self._pod.get("status") or {}).get("podIP", ""),
        }
        if path not in known:
            raise LabError(f"the lab's pods know no field {path or reference}")
        return known[path]


def message_path(container: Mapping[str, Any]) -> str:
    """Where a container leaves its last words."""
    return container.get("terminationMessagePath") or "/dev/termination-log"


def _expand(text: str, env: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda match: env.get(match[1], match[0]), text)


def _bring(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make the folder hold these files and no others, each replaced as a whole."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if not path.is_dir() and str(path.relative_to(folder)) not in files:
            path.unlink()
    for name, content in files.items():
        path = folder / name
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise LabError(f"{name} is no path inside a volume")
        if path.is_file() and path.read_bytes() == content:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_bytes(content)
        temporary.chmod(0o600)
        os.replace(temporary, path)
