"""The dashboard in a real browser: what an operator does with it."""

from __future__ import annotations

import json

import pytest

import wire
from broker import until
from brokers import Cluster
from browser import Keys, eventually
from operating import Admin, bury


@pytest.fixture
def tokens(broker_with):
    """A broker with tokens, and the text of one for each role, and of a viewer of the tenant `acme`."""
    broker = broker_with("[sys]\ninterval = 1\n[tenants.acme]\n")
    admin = Admin(broker)
    made = {"admin": admin.does("POST", "/v1/tokens", {"role": "admin"})["token"]}
    for name, body in {"viewer": {"role": "viewer"}, "operator": {"role": "operator"}, "acme": {"role": "viewer", "tenant": "acme"}}.items():
        made[name] = admin.does("POST", "/v1/tokens", body, made["admin"])["token"]
    return broker, made


@pytest.fixture(scope="module")
def three():
    cluster = Cluster(3)
    yield cluster
    cluster.close()


def observed(broker, topic: str) -> None:
    """Waits until the messages of a topic are shown."""
    until(lambda: "$observer-" in json.dumps(Admin(broker).does("GET", f"/v1/tenants/default/receivers?topic={topic}")))


# --------------------------------------------------------------------------------------------------------- log-in

def test_log_in(page, tokens):
    broker, texts = tokens
    page.open(broker)
    page.heading("Barid")
    page.fill("Token", texts["viewer"][:-1] + "x")
    page.press("Log in")
    page.shows("The token is wrong, has ended or was revoked.")
    page.complaints()  # that it was refused
    page.fill("Token", texts["viewer"])
    page.type(Keys.ENTER)
    page.heading("Overview")
    page.shows("viewer, token ")
    assert page.driver.execute_script("return localStorage.length") == 0, "the token goes with the tab"
    assert page.driver.execute_script("return document.cookie") == ""
    page.driver.refresh()
    page.heading("Overview")
    page.press("Log out")
    page.shows("Token")
    page.driver.refresh()
    page.shows("Token")
    page.complaints()


def test_a_token_that_is_revoked_ends_the_visit(page, tokens):
    broker, texts = tokens
    page.open(broker, texts["viewer"])
    Admin(broker).does("DELETE", f"/v1/tokens/{texts['viewer'].split('_')[1]}", token=texts["admin"])
    page.go("clients", "default")
    page.shows("The token has ended or was revoked.")
    page.complaints()


def test_what_a_role_shows(page, tokens, connect):
    broker, texts = tokens
    connect(client_id="c1", to=broker)
    for role, may in (("viewer", False), ("operator", True)):
        page.open(broker, texts[role])
        page.go("client", "default", "mqtt", "c1")
        page.shows("Session lasts")
        assert ("Disconnect" in page.texts("button")) == may
    page.open(broker, texts["acme"])
    assert not {"Cluster", "Health"} & set(page.texts("nav a"))
    page.go("clients", "default")
    page.shows('the token is for the tenant "acme" only')
    page.complaints()


# --------------------------------------------------------------------------------------------------------- views

def test_overview_has_rates_and_a_history(page, ours, connect):
    client = connect()
    page.open(ours)
    page.shows("MQTT messages", "CPU", "Disk free")

    def rate() -> str:
        client.publish("o/v", b"x")
        return page.driver.execute_script(
            "return [...document.querySelectorAll('.card')].find((one) => one.textContent.startsWith('Messages in'))?.textContent ?? ''")

    until(lambda: any(digit in rate() for digit in "123456789"), 30)
    assert page.attributes(".chart polyline", "points")[0], "there is a line"
    # The history of a broker that has just been started has no earlier moment yet.
    eventually(lambda: [page.one(".chart svg").click()])
    until(lambda: [page.type(Keys.ARROW_LEFT)] and " ago: in " in page.attributes(".chart svg", "aria-label")[0], 30)
    page.shows("Tenants", "default")


def test_the_brokers_of_a_cluster_are_shown_together_and_one_by_one(page, three, unique):
    name, far = unique("far"), three[1]
    client = wire.Client(far.address)
    client.connect(name)
    page.open(three[0])
    page.heading("Overview")
    page.shows("Brokers", "b1", "b2", "b3")
    choose = "const s = document.getElementById('broker'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))"
    page.go("clients", "default")
    page.shows("No client is connected.")
    page.driver.execute_script(choose, "b2")
    page.shows(name)
    page.go("overview")
    page.shows("Running for")
    page.driver.execute_script(choose, "*")
    # The history has a point every five seconds.
    until(lambda: any("Connections\n1" in text and "Brokers\n3" in text for text in page.texts(".cards")), 20)
    page.driver.execute_script(choose, "")
    client.drop()


def test_a_slot_is_moved(page):
    cluster = Cluster(3, homes=True)
    page.open(cluster[1])
    page.go("cluster")
    page.shows("Slots", "b1 has 11. b2 has 11. b3 has 10.")
    page.fill("Slot", "7")
    page.fill("To", "b3")
    page.press("Move")
    page.sure("Move")
    page.shows("Slot 7 is at b3, with 0 sessions.", "b3 has 11.")
    page.complaints()
    cluster.close()


def test_a_client_is_found_and_disconnected(page, ours, connect, unique):
    name = unique()
    clients = {number: connect(client_id=f"{name}-{number}") for number in range(3)}
    page.open(ours)
    page.press("Clients")
    page.fill("Search client identifiers", f"{name}-1")
    page.shows(f"{name}-1")
    until(lambda: f"{name}-2" not in page.text)
    page.press(f"{name}-1")
    page.heading("Clients")
    page.shows("MQTT 5.0", "It has subscribed to nothing.")
    page.press("Trace")
    page.shows("is connected with MQTT 5.0")
    clients[1].publish(f"{name}/t", b"not shown", qos=1)
    page.shows("PUBLISH", f'topic="{name}/t"', "PUBACK", "2 packets", "1 messages, ", "/s")
    assert "not shown" not in page.text
    page.press("Stop")
    page.press("Disconnect")
    clients[1].expect(wire.DISCONNECT, reason=0x98)
    page.shows(f"{name}-1 was disconnected")
    clients[2].ping()


def test_a_session_and_why_nothing_came(page, ours, connect, unique):
    name = unique()
    client = connect(client_id=name, properties={"session_expiry_interval": 600})
    client.subscribe(f"{name}/#", qos=0)
    client.drop()
    until(lambda: not Admin(ours).does("GET", f"/v1/tenants/default/sessions/{name}")["connected"])
    connect().publish(f"{name}/a", b"nobody listens")
    page.open(ours)
    page.go("sessions", "default", name)
    page.shows("not connected", f"{name}/#")
    page.press("Why not delivered?", "main")
    page.shows(f"{name}/a", "offline")
    page.go("sessions", "default", name)
    page.shows("not connected")
    page.press("End the session")
    page.sure("End the session")
    page.shows(f"The session of {name} was ended.")
    assert Admin(ours).ask("GET", f"/v1/tenants/default/sessions/{name}")[0] == 404


def test_topics(page, ours, connect, unique):
    name = unique()
    client = connect(client_id=name)
    client.subscribe(f"{name}/+/t", qos=1)
    client.publish(f"{name}/kept", b"here I am", retain=True, qos=1)
    page.open(ours)
    page.press("Topics")
    page.fill("Topic", f"{name}/4/t")
    page.press("Ask")
    page.shows(f"{name}/+/t", "with QoS 1")
    page.fill("Topic filter, such as plant/#", f"{name}/#")
    page.press(f"{name}/kept")
    page.shows("here I am")
    page.press("Remove")
    page.sure("Remove")
    page.shows("was removed.")
    page.press("Follow")
    page.shows("No message has passed yet.")
    until(lambda: [client.publish(f"{name}/4/t/{level}", b"x") for level in "ab"] and name in page.text)
    eventually(lambda: [page.one(".tree summary").click()])
    page.shows("4")
    page.press("Stop")


def test_a_dead_letter_is_resubmitted(page, ours, admin, unique):
    name = unique()
    admin.does("PUT", f"/v1/tenants/default/queues/{name}", {})
    bury(ours, name, "one", "two")
    page.open(ours)
    page.press("Queues")
    page.press(name)
    page.fill("Part", "Dead letters")
    page.shows("Unreadable: no JSON")
    page.press_in_row("id-two", "button")
    page.shows("DeadLetterErrorDescription", "two")
    page.press_in_row("id-two", "input")
    page.press("Resubmit 1")
    page.shows("1 resubmitted")
    until(lambda: "id-two" not in page.text)
    counts = admin.does("GET", f"/v1/tenants/default/queues/{name}")["counts"]
    assert (counts["active"], counts["dead_lettered"]) == (1, 1)
    page.press("Resubmit all")
    page.sure("Resubmit all")
    page.shows("There are no messages here.")
    assert admin.does("GET", f"/v1/tenants/default/queues/{name}")["counts"]["active"] == 2


def test_queues_and_bindings_are_made_and_deleted(page, ours, admin, unique):
    name = unique()
    page.open(ours)
    page.press("Queues")
    page.fill("Name", name)
    page.fill("Properties", '{"RequiresSession": true}')
    page.press("Create")
    page.shows(f"The queue {name} was created.")
    assert admin.does("GET", f"/v1/tenants/default/queues/{name}")["properties"]["RequiresSession"] is True
    page.press("Bindings")
    page.heading("Bindings")
    for label, text in {"Binding": name, "Topic filter": f"{name}/+", "Queue or topic": name, "Session": "{2}"}.items():
        page.fill(label, text)
    page.press("Create")
    page.shows(f"The binding {name} was created.")
    page.press_in_row(name, "button")
    page.sure("Remove")
    until(lambda: admin.ask("GET", f"/v1/tenants/default/bindings/{name}")[0] == 404)
    page.go("queue", "default", name)
    page.shows("RequiresSession")
    page.press("Write one")
    for label, text in {"Body": "by hand", "Session": "s-1", "Application properties": '{"amount": 3}'}.items():
        page.fill(label, text)
    page.press("Send")
    page.shows(f"Sent to {name} as message 1.", "s-1")
    page.press_in_row("s-1", "button")
    page.shows("by hand", "amount")
    page.press("Delete")
    page.sure("Delete")
    page.shows(f"{name} was deleted.")
    assert admin.ask("GET", f"/v1/tenants/default/queues/{name}")[0] == 404


def test_tenants_users_bans_and_tokens(page, tokens):
    broker, texts = tokens
    admin = Admin(broker)
    page.open(broker, texts["admin"])
    page.press("Tenants")
    page.fill("Tenant", "acme")
    page.press("Create")
    page.shows("Settings", "Quotas")
    page.fill("Settings", '{"limits": {"max_sessions": 7}}')
    page.press("Save")
    page.shows("The settings of acme are in force.")
    assert admin.does("GET", "/v1/tenants/acme", token=texts["admin"])["limits_in_force"]["max_sessions"] == 7
    page.press("Create a user")
    for label, text in {"User": "ada", "Password": "correct horse", "May publish to": "a/#, b"}.items():
        page.fill(label, text)
    page.press("Create")
    page.shows("The user acme/ada was created.")
    assert admin.does("GET", "/v1/users/acme/ada", token=texts["admin"])["publish"] == ["a/#", "b"]
    page.press_in_row("acme/ada", "button")
    page.shows("Enable")
    page.press("Ban somebody")
    page.fill("Ban a", "client identifier")
    page.fill("Name or address", "c1")
    page.press("Ban")
    page.shows("The ban of c1 is in force.")
    page.press_in_row("client c1", "button")
    until(lambda: admin.does("GET", "/v1/bans", token=texts["admin"])["bans"] == [])
    page.go("tenants")
    page.press("Create a token")
    page.fill("Note", "made here")
    page.press("Create", "details[open]")
    page.shows("Copy the token now")
    made = eventually(lambda: page.texts("pre"))[0]
    assert admin.ask("GET", "/v1/tenants", token=made)[0] == 200
    page.press_in_row("made here", "button")
    page.sure("Revoke")
    until(lambda: admin.ask("GET", "/v1/tenants", token=made)[0] == 401 and "made here" not in page.text)


def test_try_it(page, ours, connect, unique):
    name = unique()
    page.open(ours)
    page.press("Try it")
    page.fill("Topic filter", f"{name}/#")
    page.press("Subscribe")
    page.shows("Waiting for messages.")
    observed(ours, f"{name}/a")
    page.fill("Topic", f"{name}/a")
    page.fill("Payload", "from the browser")
    page.press("Publish")
    page.shows("from the browser", "sessions and 0 shared subscriptions had subscribed")
    connect().publish(f"{name}/b", b"from a device", qos=1)
    page.shows("from a device")
    page.press("Unsubscribe")
    page.press("Clients")
    page.heading("Clients")


def test_events(page, ours, connect, unique):
    name = unique()
    page.open(ours)
    page.press("Events")
    page.shows("Waiting for events.")
    until(lambda: connect(client_id=f"{name}-<b>", version=wire.V311) and f"{name}-<b>" in page.text)
    page.shows("connected", "protocol: MQTT 3.1.1")
    page.press("Stop")
    page.fill("Kinds", "denials")
    page.press("Follow")
    page.shows("Waiting for events.")
    assert f"{name}-<b>" not in page.text


# -------------------------------------------------------------------------------------------------------- hostile

HOSTILE = ("<img src=x onerror=document.title='stolen'>", "\"><script>document.title='stolen'</script>", "javascript:alert(1)",
           "{{7*7}}${7*7}", "a\u202egpj.exe", "line\u2028break")


def test_nothing_that_a_client_can_name_is_html(page, ours, connect, admin, unique):
    prefix = unique()
    for number, text in enumerate(HOSTILE):
        client = connect(client_id=f"{prefix}{text}", properties={"session_expiry_interval": 600})
        client.subscribe(f"{prefix}/{text}", qos=1)
        properties = {"content_type": text, "response_topic": text, "user_property": [(text, text)]}
        client.publish(f"{prefix}/{text}", text.encode(), retain=True, qos=1, properties=properties)
        admin.does("POST", "/v1/bans", {"client": f"{prefix}{number}", "tenant": "default", "reason": text.replace("\u2028", "")})
    for number, text in enumerate(HOSTILE[:3]):
        admin.does("PUT", f"/v1/tenants/default/queues/{prefix}{number}", {"UserMetadata": text})
        bury(ours, f"{prefix}{number}", text, reason=text)
    page.open(ours)

    def harmless(*texts: str) -> None:
        page.shows(*(text.replace("\u202e", "\\u202e").replace("\u2028", "\\u2028") for text in texts))
        assert page.all("img:not([src='icon.svg'])") == [] and page.all("main script, iframe, object, embed") == []
        assert all(href.startswith(page.base) for href in page.driver.execute_script("return [...document.querySelectorAll('a')].map((one) => one.href)"))
        assert "stolen" not in page.driver.title

    page.go("clients", "default")
    harmless(*(prefix + text for text in HOSTILE))
    page.go("sessions", "default")
    harmless(*(prefix + text for text in HOSTILE))
    for text in HOSTILE:
        page.go("client", "default", "mqtt", prefix + text)
        page.shows("Session lasts")
        harmless(f"{prefix}/{text}")
    hostile = connect(client_id=f"{prefix}-traced")
    page.go("client", "default", "mqtt", f"{prefix}-traced")
    page.fill("Show payloads", True)
    page.press("Trace")
    page.shows("is connected with")
    for text in HOSTILE:
        hostile.publish(f"{prefix}/{text}", text.encode())
    page.shows("6 packets")
    harmless(HOSTILE[0], HOSTILE[3])
    page.go("topics", "default")
    page.fill("Topic filter, such as plant/#", f"{prefix}/#")
    harmless(*(f"{prefix}/{text}" for text in HOSTILE))
    page.press(f"{prefix}/{HOSTILE[0]}")
    page.shows("Content type")
    harmless(HOSTILE[0])
    page.go("tenants")
    harmless(*(text.replace("\u2028", "") for text in HOSTILE))
    for number, text in enumerate(HOSTILE[:3]):
        page.go("queue", "default", f"{prefix}{number}")
        page.fill("Part", "Dead letters")
        harmless(f"{text}: no JSON")
        page.press_in_row("no JSON", "button")
        page.shows("DeadLetterReason")
        harmless(text)
    page.go("try", "default")
    page.fill("Topic filter", f"{prefix}/#")
    page.press("Subscribe")
    page.shows("Waiting for messages.")
    observed(ours, f"{prefix}/a")
    publisher = connect()
    for text in HOSTILE:
        publisher.publish(f"{prefix}/{text}", text.encode())
    page.shows("6 received")
    harmless(*(f"{prefix}/{text}" for text in HOSTILE))


def test_a_name_that_a_browser_would_change_is_not_asked_for(page, ours, connect, admin):
    connect(client_id="..")
    page.open(ours)
    page.go("client", "default", "mqtt", "..")
    page.shows('a browser cannot ask for the name ".."')


def test_the_policy_forbids_what_a_mistake_might_allow(page, ours):
    page.open(ours)
    page.heading("Overview")
    for attempt in ("document.body.innerHTML = '<b>x</b>'", "document.createElement('script').text = 'x'",
                    "document.write('<b>x</b>')", "document.createElement('iframe').srcdoc = 'x'"):
        assert page.driver.execute_script(f"try {{ {attempt}; return null }} catch (error) {{ return error.name }}"), attempt
    blocked = page.driver.execute_async_script("""
        const done = arguments[0], seen = [];
        document.addEventListener("securitypolicyviolation", (event) => seen.push(event.effectiveDirective));
        const image = new Image(); image.src = "http://127.0.0.1:1/x"; document.body.append(image);
        const frame = document.createElement("iframe"); frame.src = location.href; document.body.append(frame);
        const style = document.createElement("link"); style.rel = "stylesheet"; style.href = "http://127.0.0.1:1/x"; document.head.append(style);
        fetch("http://127.0.0.1:1/x").catch(() => setTimeout(() => done(seen), 200));
    """)
    assert {"img-src", "frame-src", "style-src-elem", "connect-src"} <= set(blocked)
    page.complaints()


# ---------------------------------------------------------------------------------------------------- everybody

VIEWS = [("overview",), ("tenants",), ("tenants", "default"), ("clients", "default"), ("topics", "default"), ("sessions", "default"),
         ("why", "default"), ("queues", "default"), ("state", "default"), ("bindings", "default"), ("try", "default"), ("cluster",), ("health",)]

# What a screen reader needs: a name for each control, a caption for each table, headings in their order.
NAMELESS = """
    const named = (one) => one.textContent.trim() || one.getAttribute("aria-label") || one.closest("label")?.textContent.trim();
    const found = [...document.querySelectorAll("button, a, input, select, textarea")].filter((one) => !named(one));
    const bare = [...document.querySelectorAll("table")].filter((one) => !one.caption && !one.closest("section")?.querySelector("h2"));
    const levels = [...document.querySelectorAll("h1, h2, h3")].map((one) => Number(one.tagName[1]));
    const jumps = levels.filter((level, at) => at > 0 && level > levels[at - 1] + 1);
    return [...found, ...bare].map((one) => one.outerHTML).concat(jumps);
"""

# The contrast of text and its background, as WCAG 2 computes it, of all elements with text of their own.
CONTRAST = """
    const paint = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    const channels = (colour) => {
        paint.clearRect(0, 0, 1, 1);
        paint.fillStyle = colour;
        paint.fillRect(0, 0, 1, 1);
        return [...paint.getImageData(0, 0, 1, 1).data];
    };
    const light = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
    const behind = (one) => {
        for (; one; one = one.parentElement) {
            const colour = channels(getComputedStyle(one).backgroundColor);
            if (colour[3] === 255) return colour;
        }
        return [255, 255, 255];
    };
    const low = [];
    for (const one of document.querySelectorAll("body *")) {
        if (![...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()) || !one.checkVisibility() || one.disabled) continue;
        const [a, b] = [light(channels(getComputedStyle(one).color)), light(behind(one))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) low.push(`${ratio.toFixed(2)}: ${one.outerHTML.slice(0, 120)}`);
    }
    return low;
"""


def test_every_view_can_be_read_by_everybody(page, ours, connect, unique):
    """In both themes, on a screen and on a phone."""
    connect(client_id=unique()).publish(unique() + "/a", b"x", retain=True)
    page.open(ours)
    for theme in ("light", "dark"):
        page.fill("Theme", theme.capitalize())
        for view in VIEWS:
            page.go(*view)
            until(lambda: page.all("main h1") and not page.all("main:empty"))
            assert page.driver.execute_script(NAMELESS) == [], view
            assert page.driver.execute_script(CONTRAST) == [], (theme, view)
            assert page.all("main > [role=alert]") == [], (view, page.text)
    try:
        page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 375, "height": 740, "deviceScaleFactor": 1, "mobile": True})
        for view in VIEWS:
            page.go(*view)
            until(lambda: page.all("main h1"))
            wide, seen = page.driver.execute_script("return [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
            assert wide <= seen, (view, wide)
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_it_works_with_the_keyboard_alone(page, ours, connect, unique):
    name = unique()
    client = connect(client_id=name)
    page.open(ours)

    def focused() -> str:
        return page.driver.execute_script("return document.activeElement.textContent || document.activeElement.getAttribute('aria-label') || ''")

    def reach(text: str, most: int = 60) -> None:
        for _ in range(most):
            if focused() == text:
                return
            page.type(Keys.TAB)
        raise AssertionError(f"{text} is not reached; at {focused()}")

    page.driver.execute_script("document.activeElement.blur()")
    reach("Clients")
    page.type(Keys.ENTER)
    page.heading("Clients")
    page.shows(name)
    reach("Search client identifiers")
    page.type(*name)
    until(lambda: len(page.all("tbody tr")) == 1)
    reach(name)
    page.type(Keys.ENTER)
    page.shows("Session lasts")
    reach("Disconnect")
    page.type(Keys.ENTER)
    client.expect(wire.DISCONNECT, reason=0x98)
    page.shows("was disconnected")


def test_the_focus_stays_where_it_is_when_something_is_drawn_anew(page, ours, connect, unique):
    def loses_nothing(css: str, text: str, cause) -> None:
        """Gives the focus to the element with the text; what causes a drawing leaves it there."""
        until(lambda: [cause()] and page.driver.execute_script("""
            window.focused = [...document.querySelectorAll(arguments[0])].find((one) => one.textContent.includes(arguments[1]));
            window.focused?.focus();
            return Boolean(window.focused);
        """, css, text))
        until(lambda: [cause()] and not page.driver.execute_script("return window.focused.isConnected"))
        assert text in page.driver.execute_script("return document.activeElement.textContent")
        assert page.driver.execute_script("return document.activeElement.matches(arguments[0])", css)

    name = unique()
    others = [connect(client_id=f"{name}-{number}") for number in range(3)]
    page.open(ours)
    page.press("Clients")
    refresh = "[...document.querySelectorAll('button')].find((one) => one.textContent === 'Refresh').click()"
    loses_nothing("tbody a", f"{name}-1", lambda: page.driver.execute_script(refresh))
    others[0].disconnect()
    loses_nothing("tbody a", f"{name}-2", lambda: page.driver.execute_script(refresh))
    page.press("Topics")
    page.press("Follow")
    loses_nothing(".tree summary", name, lambda: others[1].publish(f"{name}/a", b"x"))
    page.press("Stop")


def test_ten_thousand_rows_do_not_matter(page, ours, admin):
    """The list of clients is that of the broker; here its answer is replaced by a long one."""
    page.open(ours)
    rows = [{"client": f"c{number:05}", "connection": number, "protocol": "MQTT", "version": "5.0", "user": None, "key": None,
             "address": f"10.0.{number % 256}.7:{number}", "listener": "mqtt", "connected_at": "2026-11-26T12:00:00.000Z", "keep_alive": 60,
             "expiry_seconds": 0, "subscriptions": number % 7, "in_flight": 0, "queued_messages": 0, "queued_bytes": 0} for number in range(10_000)]
    page.driver.execute_script("""
        const real = window.fetch, answer = arguments[0];
        window.fetch = (target, options) => String(target).includes("/clients?")
            ? Promise.resolve(new Response(answer, {headers: {"content-type": "application/json"}})) : real(target, options);
    """, json.dumps({"clients": rows, "next": None}))
    page.press("Clients")
    page.shows("10,000")
    assert len(page.all("tbody tr")) == 200
    page.press("Subscriptions")
    longest = page.driver.execute_script("""
        const heads = [...document.querySelectorAll("thead button")], started = performance.now();
        let longest = 0;
        for (const head of heads) {
            const before = performance.now();
            head.click();
            document.body.offsetHeight;
            longest = Math.max(longest, performance.now() - before);
        }
        return longest;
    """)
    assert longest < 2000, f"{longest} ms"
    page.press("Show more")
    until(lambda: len(page.all("tbody tr")) == 400)
