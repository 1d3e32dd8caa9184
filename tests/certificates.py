"""Certificates for tests: an authority, a server and a client certified by it, and a self-signed stranger."""

from __future__ import annotations

import subprocess
from pathlib import Path

KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n"


class Certificates:
    """The certificates `ca`, `server`, `client` and `stranger`, each NAME.pem with NAME.key, in a directory."""

    def __init__(self, directory: Path):
        self.directory = directory
        (directory / "names").write_text(NAMES)
        self._self_signed("ca")
        self._self_signed("stranger")
        self.issue("server")
        self.issue("client")

    def issue(self, name: str, days: int = 30) -> None:
        """Issues a certificate of the authority, which replaces the one with that name."""
        self._openssl("req", *KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                      "-days", str(days), "-extfile", "names", "-out", f"{name}.pem")

    def certificate(self, name: str) -> Path:
        return self.directory / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self.directory / f"{name}.key"

    def toml(self, more: str = "") -> str:
        """Returns the [tls] table of a broker that uses the server's certificate."""
        return f'[tls]\ncertificate = "{self.certificate("server")}"\nkey = "{self.key("server")}"\n{more}\n'

    def _self_signed(self, name: str) -> None:
        self._openssl("req", "-x509", *KEY, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.directory, check=True, capture_output=True)
