"""Shared access signatures, made as the SDKs make them."""

import base64
import hashlib
import hmac
from urllib.parse import quote_plus


def token(audience: str, name: str, key: str, until: float) -> str:
    resource, expires = quote_plus(audience), str(int(until))
    digest = hmac.digest(key.encode(), f"{resource}\n{expires}".encode(), hashlib.sha256)
    return f"SharedAccessSignature sr={resource}&sig={quote_plus(base64.b64encode(digest))}&se={expires}&skn={quote_plus(name)}"
