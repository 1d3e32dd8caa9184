"""JSON Web Tokens that are signed with a secret."""

from __future__ import annotations

import base64
import hmac
import json
import time

KEY = "0123456789abcdef0123456789abcdef"


def encoded(value: bytes) -> bytes:
    return base64.urlsafe_b64encode(value).rstrip(b"=")


def token(user: str, seconds: float, key: str = KEY, **claims) -> bytes:
    body = {"sub": user, "tenant": "acme", "exp": int(time.time() + seconds), **claims}
    signed = encoded(json.dumps({"alg": "HS256", "typ": "JWT"}).encode()) + b"." + encoded(json.dumps(body).encode())
    return signed + b"." + encoded(hmac.digest(key.encode(), signed, "sha256"))
