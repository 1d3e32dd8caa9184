"""A real Chromium, without a window, that looks at the dashboard."""

from __future__ import annotations

import tempfile

from selenium import webdriver
from selenium.common.exceptions import ElementClickInterceptedException, ElementNotInteractableException, StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from broker import until

# The page is drawn anew while a test looks at it: it looks again.
DRAWN_ANEW = (StaleElementReferenceException, ElementNotInteractableException, ElementClickInterceptedException)


def eventually(act):
    """Does something until it returns something, and is not disturbed by the page."""
    done = []

    def attempt() -> bool:
        try:
            done.append(act())
        except DRAWN_ANEW:
            return False
        return bool(done[-1])

    until(attempt)
    return done[-1]


class Browser:
    """The browser, with one page open. Each new page begins without what earlier ones have stored."""

    def __init__(self, *more: str):
        self._profile = tempfile.TemporaryDirectory(prefix="barid-chromium-")
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        # Background networking and component updates would look for hosts on the Internet.
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
                         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--lang=en-GB",
                         "--window-size=1280,900", f"--user-data-dir={self._profile.name}", *more):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        # No manager of drivers looks for one on the Internet.
        service = webdriver.ChromeService("/usr/bin/chromedriver")
        self.driver = webdriver.Chrome(options=options, service=service)
        self.base = ""

    def close(self) -> None:
        self.driver.quit()
        self._profile.cleanup()

    def open(self, broker, token: str | None = None) -> None:
        """Opens the dashboard of a broker, and logs in with the token, if there is one."""
        self.base = f"http://127.0.0.1:{broker.admin_port}/dashboard/"
        self.driver.get("about:blank")
        self.driver.get(self.base)
        self.driver.execute_script("sessionStorage.clear(); localStorage.clear()")
        self.driver.get("about:blank")
        self.driver.get(self.base)
        if token:
            self.fill("Token", token)
            self.press("Log in")
            self.heading("Overview")
            self.complaints()  # that a token was needed

    def go(self, *names: str) -> None:
        """Goes to a view by its address."""
        place = "#/" + "/".join(self.driver.execute_script("return arguments[0].map(encodeURIComponent)", list(names)))
        self.driver.execute_script("location.hash = arguments[0]", place)

    def all(self, css: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def one(self, css: str) -> WebElement:
        return eventually(lambda: self.all(css))[0]

    def texts(self, css: str) -> list[str]:
        """The texts of all elements, read in one step: an element that is drawn anew between two steps cannot be read."""
        return self.driver.execute_script("return [...document.querySelectorAll(arguments[0])].map((one) => one.innerText)", css)

    def attributes(self, css: str, name: str) -> list[str | None]:
        """An attribute of all elements, read in one step."""
        return self.driver.execute_script(
            "return [...document.querySelectorAll(arguments[0])].map((one) => one.getAttribute(arguments[1]))", css, name)

    @property
    def text(self) -> str:
        """What a user reads."""
        return self.driver.execute_script("return document.body.innerText")

    def shows(self, *texts: str) -> None:
        """Waits until the page has all these texts."""
        for text in texts:
            until(lambda text=text: text in self.text)

    def heading(self, text: str) -> None:
        """Waits for a view."""
        until(lambda: self.driver.execute_script("return document.querySelector('h1')?.innerText ?? ''").startswith(text))

    def _found(self, script: str, *arguments) -> WebElement | None:
        """The element that a script returns. A script is asked once; single questions about hundreds of elements take seconds."""
        return self.driver.execute_script("const seen = (one) => one.checkVisibility(); " + script, *arguments)

    def _clicks(self, element: WebElement) -> bool:
        """Clicks where an element is. Returns false if it is not there any more when the click comes."""
        self.driver.execute_script("""
            window.hit = false;
            arguments[0].addEventListener("click", () => (window.hit = true), {once: true, capture: true});
        """, element)
        element.click()
        return self.driver.execute_script("return window.hit")

    def press(self, text: str, within: str = "body") -> None:
        """Presses a button or follows a link with exactly this text."""
        def attempt() -> bool:
            one = self._found("""
                const all = document.querySelectorAll(["button", "a", "summary"].map((kind) => `${arguments[1]} ${kind}`).join());
                return [...all].find((one) => seen(one) && one.innerText.trim() === arguments[0]);
            """, text, within)
            return one is not None and self._clicks(one)
        eventually(attempt)

    def press_in_row(self, row: str, css: str) -> None:
        """Presses something in the first row of a table that has the text."""
        def attempt() -> bool:
            one = self._found("""
                const rows = [...document.querySelectorAll("tbody tr")];
                return rows.find((row) => row.innerText.includes(arguments[0]))?.querySelector(arguments[1]);
            """, row, css)
            return one is not None and self._clicks(one)
        eventually(attempt)

    def sure(self, action: str) -> None:
        """Confirms the question of a dialog."""
        self.press(action, "dialog[open]")

    def fill(self, label: str, text: str | bool) -> None:
        """Writes into the control with this label, or ticks it."""
        def attempt() -> bool:
            control = self._found("""
                const labelled = [...document.querySelectorAll("label.field")].filter((one) => one.firstElementChild.innerText === arguments[0]);
                const controls = labelled.map((one) => one.querySelector("input, textarea, select"));
                return [...controls, ...document.querySelectorAll("[aria-label]")]
                    .find((one) => seen(one) && (controls.includes(one) || one.ariaLabel === arguments[0]));
            """, label)
            if control is None:
                return False
            if isinstance(text, bool):
                if control.is_selected() != text:
                    control.click()
            elif control.tag_name == "select":
                control.find_element(By.XPATH, f'option[.="{text}"]').click()
            else:
                control.clear()
                control.send_keys(text)
            return True
        eventually(attempt)

    def type(self, *keys: str) -> None:
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def complaints(self) -> list[str]:
        """What the browser has complained about since the last call: errors of scripts, and what the policy has forbidden. Something
        that does not exist is an answer."""
        told = [one["message"] for one in self.driver.get_log("browser") if one["level"] == "SEVERE"]
        return [message for message in told if "status of 404" not in message]


__all__ = ["Browser", "Keys"]
