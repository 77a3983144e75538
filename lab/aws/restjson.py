"""A REST-JSON service from botocore's model of it: routes, validates, pages and checks answers.

The handlers are plain functions `operation(params, context) -> dict`, with the parameters as the
API names them; everything that the model knows is done here and nowhere else.
"""

from __future__ import annotations

import base64
import datetime
import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, unquote

import botocore.session
from botocore.model import OperationModel, Shape

from lab.aws import Context, ServiceError

# One session for the process: it keeps the service models that it has read, which are large.
SESSION = botocore.session.get_session()
Handler = Callable[[dict[str, Any], Context], dict[str, Any]]
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "long": (int,),
    "boolean": (bool,),
    "float": (int, float),
    "double": (int, float),
    "list": (list,),
    "map": (dict,),
    "structure": (dict,),
    "timestamp": (int, float, str),
}


class AnswerError(Exception):
    """One of our handlers answered what the service's model does not allow: a fault of the lab."""


class Router:
    """From method and path to the operation, by the URI templates of a service's model."""

    def __init__(self, service: str) -> None:
        self.model = SESSION.get_service_model(service)
        loader = SESSION.get_component("data_loader")
        self.pages = loader.load_service_model(service, "paginators-1")["pagination"]
        self._routes: list[tuple[str, re.Pattern[str], OperationModel]] = []
        for name in self.model.operation_names:
            operation = self.model.operation_model(name)
            path = operation.http["requestUri"].split("?")[0]
            pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path)
            pattern = re.sub(r"\{(\w+)\+\}", r"(?P<\1>.+)", pattern)
            self._routes.append((operation.http["method"], re.compile(pattern + "/?"), operation))
        # A literal segment wins over a parameter: the longest template first.
        self._routes.sort(key=lambda route: route[1].pattern.count("(?P"))

    def resolve(self, method: str, path: str) -> tuple[OperationModel, dict[str, str]] | None:
        """The operation and its path parameters; `path` is still percent-encoded."""
        for verb, pattern, operation in self._routes:
            if verb == method and (match := pattern.fullmatch(path)):
                return operation, {k: unquote(v) for k, v in match.groupdict().items()}
        return None


def _scalar(shape: Shape, text: str) -> Any:
    if shape.type_name in ("integer", "long"):
        try:
            return int(text)
        except ValueError:
            raise ServiceError("ValidationException", f"{text!r} is not a number") from None
    return text == "true" if shape.type_name == "boolean" else text


def parse_params(
    operation: OperationModel, uri: Mapping[str, str], query: str, body: bytes
) -> dict[str, Any]:
    """All members of the operation's input, from path, query string and JSON body."""
    try:
        params = json.loads(body) if body.strip() else {}
    except ValueError as error:
        raise ServiceError("SerializationException", f"the body is not JSON: {error}") from error
    if not isinstance(params, dict):
        raise ServiceError("SerializationException", "the body is not a JSON object")
    shape = operation.input_shape
    if shape is None:
        return params
    given = parse_qs(query, keep_blank_values=True)
    for name, member in shape.members.items():
        location = member.serialization.get("location")
        wire = member.serialization.get("name", name)
        if location == "uri" and wire in uri:
            params[name] = _scalar(member, uri[wire])
        elif location == "querystring" and wire in given:
            values = given[wire]
            params[name] = values if member.type_name == "list" else _scalar(member, values[0])
    validate(shape, params, "")
    return params


def validate(shape: Shape, value: Any, where: str) -> None:
    """Refuse what the model forbids: missing members, wrong types, lengths, unknown values."""
    wanted = _PYTHON_TYPES.get(shape.type_name)
    number_for_bool = isinstance(value, bool) and shape.type_name in ("integer", "long")
    if wanted and (not isinstance(value, wanted) or number_for_bool):
        raise ServiceError(
            "SerializationException", f"{where or 'the input'}: {shape.type_name} expected"
        )
    if shape.type_name == "structure":
        for name in shape.required_members:
            if value.get(name) is None:
                raise ServiceError(
                    "ValidationException",
                    f"1 validation error detected: Value null at '{where}{name}' failed to satisfy"
                    " constraint: Member must not be null",
                )
        for name, member in shape.members.items():
            if value.get(name) is not None:
                validate(member, value[name], f"{where}{name}.")
    elif shape.type_name == "list":
        for index, item in enumerate(value):
            validate(shape.member, item, f"{where[:-1]}[{index}].")
    elif shape.type_name == "map":
        for key, item in value.items():
            validate(shape.value, item, f"{where}{key}.")
    _constraints(shape, value, where[:-1])


def _constraints(shape: Shape, value: Any, where: str) -> None:
    allowed = shape.metadata.get("enum")
    if allowed and value not in allowed:
        raise ServiceError(
            "InvalidParameterException",
            f"{value!r} at '{where}' is none of: {', '.join(allowed)}",
        )
    size = value if isinstance(value, int) else len(value) if hasattr(value, "__len__") else None
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if size is not None and not isinstance(value, bool):
        if least is not None and size < least:
            raise ServiceError("InvalidParameterException", f"{where}: below the minimum {least}")
        if most is not None and size > most:
            raise ServiceError("InvalidParameterException", f"{where}: above the maximum {most}")


def render(shape: Shape, value: Any, where: str = "") -> Any:
    """The value as it goes over the wire; AnswerError when the model does not know a part of it."""
    kind = shape.type_name
    if kind == "structure":
        unknown = set(value) - set(shape.members)
        if unknown:
            raise AnswerError(f"{where or shape.name}: unknown members {sorted(unknown)}")
        return {
            name: render(shape.members[name], item, f"{where}.{name}")
            for name, item in value.items()
            if item is not None
        }
    if kind == "list":
        return [render(shape.member, item, f"{where}[]") for item in value]
    if kind == "map":
        return {key: render(shape.value, item, f"{where}.{key}") for key, item in value.items()}
    if kind == "timestamp":
        return value.timestamp() if isinstance(value, datetime.datetime) else float(value)
    if kind == "blob":
        return base64.b64encode(value).decode()
    if not isinstance(value, _PYTHON_TYPES[kind]):
        raise AnswerError(f"{where}: {value!r} is no {kind}")
    allowed = shape.metadata.get("enum")
    if allowed and value not in allowed:
        raise AnswerError(f"{where}: {value!r} is none of {allowed}")
    return value


class RestJson:
    """One service: `handlers` maps an operation's name to its function."""

    def __init__(self, service: str, handlers: Mapping[str, Handler]) -> None:
        self.router = Router(service)
        unknown = set(handlers) - set(self.router.model.operation_names)
        if unknown:
            raise AnswerError(f"{service} has no operations {sorted(unknown)}")
        self._handlers = handlers

    def dispatch(
        self, method: str, path: str, query: str, body: bytes, context: Context
    ) -> tuple[int, dict[str, str], bytes]:
        """(HTTP status, headers, body) of one call."""
        found = self.router.resolve(method, path)
        try:
            if found is None:
                raise ServiceError("NotFoundException", f"no operation at {method} {path}")
            operation, uri = found
            params = parse_params(operation, uri, query, body)
            handler = self._handlers.get(operation.name)
            if handler is None:
                # 400, not 500: boto3 repeats a 500 for half a minute before it says anything.
                raise ServiceError(
                    "InvalidRequestException", f"the lab does not know {operation.name}"
                )
            answer = self._page(operation.name, handler(params, context), params)
            shape = operation.output_shape
            rendered = render(shape, answer) if shape is not None else {}
            return 200, {"Content-Type": "application/json"}, json.dumps(rendered).encode()
        except ServiceError as error:
            return self.error(error)

    def error(self, error: ServiceError) -> tuple[int, dict[str, str], bytes]:
        """An error as REST-JSON carries it: the code in a header, the fields in the body."""
        shapes = {shape.name: shape for shape in self.router.model.error_shapes}
        status = 400
        if error.code in shapes:
            status = shapes[error.code].metadata.get("error", {}).get("httpStatusCode", 400)
        body = {"message": error.message, **error.fields}
        headers = {"Content-Type": "application/json", "x-amzn-ErrorType": error.code}
        return status, headers, json.dumps(body).encode()

    def _page(self, name: str, answer: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        """Cut the list of a paged operation; the token is the offset, opaque to clients."""
        page = self.router.pages.get(name)
        if page is None:
            return answer
        items = answer[page["result_key"]]
        try:
            start = int(base64.b64decode(params.get(page["input_token"]) or b"") or 0)
        except ValueError:
            raise ServiceError("InvalidParameterException", "nextToken is not valid") from None
        end = start + int(params.get(page["limit_key"]) or 100)
        paged = {**answer, page["result_key"]: items[start:end]}
        if end < len(items):
            paged[page["output_token"]] = base64.b64encode(str(end).encode()).decode()
        return paged
