"""User data as nodeadm reads it: NodeConfig documents, alone or as parts of a MIME message."""

from __future__ import annotations

import base64
import contextlib
import email
import gzip
from email.message import EmailMessage
from typing import Any

import yaml

API_VERSION = "node.eks.aws/v1alpha1"
CONTENT_TYPE = "application/node.eks.aws"


def _text(user_data: str | bytes) -> str:
    """User data as EC2 keeps it (base64), as text; gzip is unpacked as cloud-init does."""
    raw = user_data if isinstance(user_data, bytes) else str(user_data).encode()
    # What is no base64 was plain text already.
    with contextlib.suppress(ValueError):
        raw = base64.b64decode(raw, validate=True)
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    return raw.decode("utf-8", errors="replace")


def parts(user_data: str | bytes) -> list[tuple[str, str]]:
    """(content type, text) of every part; plain user data is one part."""
    text = _text(user_data)
    if "multipart/" not in text[:1000].lower():
        kind = CONTENT_TYPE if API_VERSION in text else "text/x-shellscript"
        return [(kind, text)] if text.strip() else []
    found = []
    for part in email.message_from_string(text).walk():
        if not part.is_multipart():
            payload = part.get_payload(decode=True) or b""
            found.append((part.get_content_type(), payload.decode("utf-8", errors="replace")))
    return found


def _merge(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: _merge(old.get(key), value) for key, value in new.items()}}
    if isinstance(old, list) and isinstance(new, list):
        return old + new
    return new


def parse(user_data: str | bytes | None) -> dict[str, Any] | None:
    """The merged spec of all NodeConfigs in the user data; None where there is none."""
    spec: dict[str, Any] | None = None
    for _, text in parts(user_data) if user_data else []:
        if API_VERSION not in text:
            continue
        try:
            documents = list(yaml.safe_load_all(text))
        except yaml.YAMLError:
            continue  # nodeadm fails on it, and the node never joins: so it is here
        for document in documents:
            if isinstance(document, dict) and document.get("apiVersion") == API_VERSION:
                spec = _merge(spec or {}, document.get("spec") or {})
    return spec


def labels_and_taints(spec: dict[str, Any]) -> tuple[dict[str, str], list[dict[str, str]]]:
    """What the kubelet registers with: from its flags and its configuration."""
    kubelet = spec.get("kubelet") or {}
    labels: dict[str, str] = {}
    taints = list((kubelet.get("config") or {}).get("registerWithTaints") or [])
    for flag in kubelet.get("flags") or []:
        name, _, value = flag.partition("=")
        items = [item for item in value.strip("\"'").split(",") if item]
        if name == "--node-labels":
            labels.update(dict(item.partition("=")[::2] for item in items))
        elif name == "--register-with-taints":
            for item in items:
                left, _, effect = item.rpartition(":")
                key, _, taint_value = left.partition("=")
                taints.append({"key": key, "value": taint_value, "effect": effect})
    return labels, taints


def render(spec: dict[str, Any], others: list[tuple[str, str]]) -> str:
    """Base64 user data: the caller's own parts first, then the NodeConfig, as EKS merges them."""
    config = {"apiVersion": API_VERSION, "kind": "NodeConfig", "spec": spec}
    message = EmailMessage()
    message.make_mixed()
    for kind, text in [*others, (CONTENT_TYPE, yaml.safe_dump(config, sort_keys=False))]:
        main, _, sub = kind.partition("/")
        part = EmailMessage()
        part.set_content(text.encode(), maintype=main, subtype=sub, cte="7bit")
        message.attach(part)
    return base64.b64encode(message.as_bytes()).decode()
