"""What the admin API says about itself (`/v1/openapi.json`), and a check of every answer that a test gets from it.

`watch` is called once for each process of a test run. From then on each answer that Python code reads over HTTP is compared
with the document, if it comes from the admin API: its status, its type, its members, and that it has no others.
"""

from __future__ import annotations

import http.client
import json
import re
from functools import cache

from jsonschema import Draft202012Validator

# Answers that have come so far: method and path as in the document, and the status.
seen: set[tuple[str, str, int]] = set()


class Contract:
    """What the document says."""

    def __init__(self, document: dict):
        self.document = document
        self._shapes = [(shape(path), path) for path in document["paths"]]
        self._components = {"schemas": {name: closed(schema) for name, schema in document["components"]["schemas"].items()}}
        for name in self._parts(document):
            self._components["schemas"][name] = document["components"]["schemas"][name]

    @staticmethod
    def _parts(document: dict) -> set[str]:
        """Returns the names of the schemas that are only parts of others."""
        parts, waiting = set(), [document]
        while waiting:
            one = waiting.pop()
            waiting += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
            if isinstance(one, dict):
                parts |= {part["$ref"].rsplit("/", 1)[1] for part in one.get("allOf", ()) if "$ref" in part}
        return parts

    def path_of(self, target: str) -> str | None:
        """Returns the path, as in the document, that a request has asked for."""
        target = target.split("?")[0]
        found = [path for shape, path in self._shapes if shape.fullmatch(target)]
        # Literal parts come before parameters, and a path is as long as it can be.
        return min(found, key=lambda path: (-path.count("/"), path.count("{")), default=None)

    def check(self, method: str, target: str, status: int, kind: str | None, text: bytes):
        """Compares an answer with the document."""
        path = self.path_of(target)
        operation = self.document["paths"].get(path, {}).get(method.lower())
        if operation is None:
            assert status in (400, 401, 403, 404, 405, 408, 413, 429, 503), f"{method} {target} is not in the document: {status}"
            return
        seen.add((method, path, status))
        responses = operation["responses"]
        assert status >= 400 or str(status) in responses, f"{method} {path} has answered {status}, which is not in the document"
        content = responses.get(str(status), responses.get("default", {})).get("content")
        if content is None:
            assert not text, f"{method} {path} {status} has a body"
            return
        kinds = [known for known in content if (kind or "").startswith(known)]
        assert kinds, f"{method} {path} {status} is {kind}, not {list(content)}"
        if kinds[0] == "application/json":
            validator = self._validator(json.dumps(content[kinds[0]]["schema"]))
            errors = [f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(json.loads(text))]
            assert not errors, f"{method} {path} {status}: {errors[:3]}"

    @cache
    def _validator(self, schema: str) -> Draft202012Validator:
        return Draft202012Validator({**json.loads(schema), "components": self._components})


def shape(path: str) -> re.Pattern:
    """Returns the form of the requests for a path. At its end, a name may have slashes that are not encoded."""
    inner = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))
    return re.compile(inner.removesuffix("[^/]+") + ".+" if inner.endswith("[^/]+") else inner)


def closed(schema):
    """Returns the schema of an object without any member that it does not name."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {name: one if name == "allOf" else closed(one) for name, one in schema.items()}
    names_all = "properties" in schema and "type" in schema and "additionalProperties" not in schema
    return {**schema, "unevaluatedProperties": False} if names_all or "allOf" in schema else schema


_known: list[Contract | None] = []


def contract() -> Contract | None:
    """Returns the document, from a broker that does nothing else: it takes memory, which some tests measure. `None`: that broker is
    being asked."""
    if not _known:
        _known.append(None)
        try:
            _known[0] = read_contract()
        except BaseException:
            # Otherwise nothing would be checked from now on.
            _known.clear()
            raise
    return _known[0]


def read_contract() -> Contract:
    from broker import Broker

    one = Broker("")
    try:
        connection = http.client.HTTPConnection("127.0.0.1", one.admin_port, timeout=15)
        connection.request("GET", "/v1/openapi.json")
        return Contract(json.loads(connection.getresponse().read()))
    finally:
        one.close()


def watch():
    """Checks all answers from now on."""
    connection, response = http.client.HTTPConnection, http.client.HTTPResponse
    put, get, read = connection.putrequest, connection.getresponse, response.read

    def putrequest(self, method, url, *arguments, **named):
        self.asked = method, url
        return put(self, method, url, *arguments, **named)

    def getresponse(self):
        answer = get(self)
        # No other server of the tests says this. That for administration clients of Service Bus speaks XML.
        is_barid = answer.headers.get("Cross-Origin-Resource-Policy") == "same-origin"
        is_xml = "xml" in answer.headers.get("Content-Type", "")
        if is_barid and not is_xml and self.asked[0] != "HEAD" and re.sub(r"^http://[^/]+", "", self.asked[1]).startswith(("/v1/", "/health", "/metrics")):
            answer.asked = self.asked
        return answer

    def checked_read(self, amt=None):
        text = read(self) if amt is None else read(self, amt)
        method, target = getattr(self, "asked", (None, ""))
        if method and amt is None and "openapi.json" not in target and (known := contract()):
            known.check(method, re.sub(r"^http://[^/]+", "", target), self.status, self.headers.get("Content-Type"), text)
        return text

    connection.putrequest, connection.getresponse, response.read = putrequest, getresponse, checked_read
