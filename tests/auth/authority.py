"""An authority for client certificates, and a broker that asks for them."""

from __future__ import annotations

import socket
import ssl

import wire
from broker import free_port
from certificates import Certificates
from wire import V5


class Authority(Certificates):
    """An authority that issues certificates with any names, and revokes them."""

    def __init__(self, directory):
        super().__init__(directory)
        (directory / "index.txt").write_text("")
        (directory / "crlnumber").write_text("01\n")
        (directory / "ca.cnf").write_text(
            f"[ca]\ndefault_ca = own\n[own]\ndatabase = {directory}/index.txt\ncrlnumber = {directory}/crlnumber\n"
            f"default_md = sha256\ncertificate = {directory}/ca.pem\nprivate_key = {directory}/ca.key\n")
        self.list()

    def client(self, file: str, subject: str, names: str = "DNS:x") -> str:
        """Issues a certificate, and returns the name of its file."""
        (self.directory / "own").write_text(f"subjectAltName={names}\nbasicConstraints=CA:FALSE\n")
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{file}.key",
                      "-out", f"{file}.csr", "-subj", subject, "-utf8")
        self._openssl("x509", "-req", "-in", f"{file}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30",
                      "-extfile", "own", "-out", f"{file}.pem")
        return file

    def revoke(self, file: str) -> None:
        self._openssl("ca", "-config", "ca.cnf", "-revoke", f"{file}.pem")
        self.list()

    def list(self, *options: str) -> None:
        self._openssl("ca", "-config", "ca.cnf", "-gencrl", *(options or ("-crldays", "30")), "-out", "crl.pem")


class Secure:
    """A broker that asks for certificates."""

    def __init__(self, broker_with, authority: Authority, config: str, tls: str = ""):
        self.authority, self.port = authority, free_port()
        self.config = f"""
            {config}
            {authority.toml(f'client_ca = "{authority.certificate("ca")}"' + chr(10) + tls)}
            [listeners.mqtts]
            address = "127.0.0.1:{self.port}"
        """
        self.broker = broker_with(self.config)

    def open(self, file: str | None, version: int = V5) -> wire.Client:
        context = ssl.create_default_context(cafile=self.authority.certificate("ca"))
        if file:
            context.load_cert_chain(self.authority.certificate(file), self.authority.key(file))
        stream = socket.create_connection(("127.0.0.1", self.port), 5)
        return wire.Client(context.wrap_socket(stream, server_hostname="localhost"), version)

    def log_in(self, file: str | None, user: str | None = None, password: bytes | None = None, version: int = V5,
               client_id: str = "c") -> wire.Client:
        client = self.open(file, version)
        client.connect(client_id, username=user, password=password)
        return client
