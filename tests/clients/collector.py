"""A collector of OpenTelemetry: an HTTP server that reads OTLP with the Protobuf definitions of the project itself."""

from __future__ import annotations

import http.server
import threading

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

REQUESTS = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


def attributes(of) -> dict:
    return {one.key: one.value.string_value or one.value.int_value for one in of.attributes}


class Collector:
    """Keeps what brokers send. `status` is that of its answers."""

    def __init__(self, port: int = 0):
        self.status, self.traces, self.metrics, self.headers = 200, [], [], []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.headers["Content-Type"] == "application/x-protobuf"
                if collector.status == 200:
                    request = REQUESTS[self.path].FromString(body)
                    (collector.traces if "traces" in self.path else collector.metrics).append(request)
                    collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def spans(self) -> list:
        return [span for request in list(self.traces) for one in request.resource_spans for scope in one.scope_spans for span in scope.spans]

    def values(self) -> dict:
        """Returns the values of the last request with metrics, by name and labels."""
        found = {}
        for one in self.metrics[-1].resource_metrics:
            for metric in (metric for scope in one.scope_metrics for metric in scope.metrics):
                data = metric.gauge if metric.HasField("gauge") else metric.sum if metric.HasField("sum") else metric.summary
                for point in data.data_points:
                    labels = tuple(sorted(attributes(point).items()))
                    value = point.count if metric.HasField("summary") else point.as_int if point.HasField("as_int") else point.as_double
                    found[metric.name, labels] = (metric, value)
        return found

    def close(self):
        self._server.shutdown()
        self._server.server_close()
