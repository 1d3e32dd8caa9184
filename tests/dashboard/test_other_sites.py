"""Pages of other sites in the browser of an operator: they neither see nor change anything."""

from __future__ import annotations

import http.server
import threading

import pytest

from broker import until
from browser import Browser
from operating import Admin

ATTACK = """<!doctype html><title>attacking</title><body><script>
const target = "http://127.0.0.1:%(port)d", seen = [];
const read = (path, options) => fetch(target + path, options).then((answer) => answer.text()).then((text) => seen.push(path + text), () => null);
const image = (path) => new Promise((done) => { const one = new Image(); one.onload = one.onerror = done; one.src = target + path; });
const script = (path) => new Promise((done) => {
    const one = document.createElement("script"); one.onload = () => (seen.push(path), done()); one.onerror = done; one.src = target + path;
    document.body.append(one);
});
const post = (type) => {
    const frame = document.createElement("iframe"); frame.name = "sent" + type; document.body.append(frame);
    const form = document.createElement("form");
    form.method = "POST"; form.action = target + "/v1/bans"; form.target = frame.name; form.enctype = type;
    const field = document.createElement("input"); field.name = '{"client": "formed", "tenant": "default", "reason": "'; field.value = '"}';
    form.append(field); document.body.append(form); form.submit();
};
const framed = new Promise((done) => {
    const frame = document.createElement("iframe"); frame.src = target + "/dashboard/"; frame.onload = () => setTimeout(() => {
        try { if (frame.contentDocument.querySelector("header")) seen.push("framed"); } catch { }
        done();
    }, 300);
    document.body.append(frame);
});
const body = '{"client": "fetched", "tenant": "default"}';
Promise.all([read("/v1/tenants"), read("/v1/broker"), read("/dashboard/"), read("/v1/bans", {method: "POST", body}),
    read("/v1/bans", {method: "POST", body, mode: "no-cors"}), read("/v1/bans", {method: "POST", body, headers: {"Content-Type": "application/json"}}),
    read("/v1/tenants/default", {method: "DELETE"}), image("/v1/tenants"), image("/dashboard/icon.svg"), script("/dashboard/main.js"),
    script("/v1/tenants"), framed]).then(() => {
    post("text/plain"); post("application/x-www-form-urlencoded");
    setTimeout(() => { document.title = seen.length ? seen.join(" ") : "nothing was seen"; }, 500);
});
</script>"""


@pytest.fixture
def site(ours):
    """Another site on this machine, with a page that attacks the broker."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            page = (ATTACK % {"port": ours.admin_port}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def misled():
    """A browser in which names of a stranger lead to this machine."""
    browser = Browser("--host-resolver-rules=MAP *.example 127.0.0.1")
    yield browser
    browser.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "evil.example"])
def test_pages_of_other_sites(misled, ours, site, host):
    admin = Admin(ours)
    before = admin.does("GET", "/v1/bans")["bans"]
    misled.driver.get(f"http://{host}:{site}/")
    until(lambda: misled.driver.title not in ("", "attacking"), 20)
    assert misled.driver.title == "nothing was seen"
    assert admin.does("GET", "/v1/bans")["bans"] == before


def test_a_name_that_leads_here(misled, ours):
    """DNS rebinding: the browser takes the broker for the stranger's site."""
    for path in ("/dashboard/", "/v1/tenants", "/"):
        misled.driver.get(f"http://evil.example:{ours.admin_port}{path}")
        assert "protects against DNS rebinding" in misled.driver.page_source
