"""A real browser, as scenarios of the page see it: Debian's Chromium, driven by its own chromedriver.

What the reader would notice is asked for in his words (`cells`, `rows`, `says`); what he would not, the console's
errors and every request that the page made, is kept and checked when a scenario ends (`faults`)."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from e2e.scenario import PATIENCE, wait_until

PROGRAMS = ("chromium", "chromedriver")
TOKEN = "muster-token"
"""Where the page keeps the token in sessionStorage."""

OWN = ("about:", "data:", "chrome:")
"""What a browser has in itself (the cross in a search field is chrome://resources/...)."""


def missing() -> str:
    """Why no browser can be started, "" where one can."""
    lacks = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"no {' and no '.join(lacks)}: apt-get install chromium chromium-driver" if lacks else ""


def start(folder: Path) -> Chrome:
    """A browser of its own, with an empty profile in `folder`. Ends with `quit`."""
    browser, driver = (str(shutil.which(name)) for name in PROGRAMS)
    options = ChromeOptions()
    options.binary_location = browser
    arguments = [
        "--headless=new",
        "--window-size=1500,1100",
        "--hide-scrollbars",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--no-proxy-server",
        f"--user-data-dir={folder}",
    ]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")  # Chromium's sandbox refuses root
    for argument in arguments:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    with patch.dict(os.environ, no_proxy="127.0.0.1,localhost"):  # where packages come through a proxy
        chrome = Chrome(options=options, service=Service(driver))
    chrome.set_script_timeout(PATIENCE)
    return chrome


class Page:
    """Muster's page in one tab."""

    def __init__(self, driver: Chrome, address: str) -> None:
        self.driver, self.address = driver, address
        self.requests: list[str] = []
        self.console: list[str] = []
        self._read_logs()
        self.requests.clear()
        self.console.clear()

    # ---- going there ----

    def open(self, token: str = "", fragment: str = "", shows: bool = True) -> None:
        """Load the page afresh, with this token in the tab ("" = none); `shows`: until the cluster is seen."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.address}/pages/page.css")  # of the origin, and runs no script
        self.driver.execute_script("sessionStorage.clear()")
        if token:
            self.driver.execute_script("sessionStorage.setItem(arguments[0], arguments[1])", TOKEN, token)
        self.driver.get(f"{self.address}/{'#' + fragment if fragment else ''}")
        if token and shows:
            self.until(lambda: not self.find("#main").get_property("hidden"), "the page shows the cluster")

    def prefer(self, scheme: str) -> None:
        """The reader's system is "light" or "dark"."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def picture(self, file: Path) -> None:
        """The whole page as a PNG."""
        size = self.script(
            "return [document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
        )
        data = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot",
            {
                "captureBeyondViewport": True,
                "clip": {"x": 0, "y": 0, "width": size[0], "height": min(size[1], 4000), "scale": 1},
            },
        )
        file.write_bytes(base64.b64decode(data["data"]))

    # ---- what is there ----

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def script(self, code: str, *arguments: object) -> Any:
        return self.driver.execute_script(code, *arguments)

    def says(self, selector: str = "body") -> str:
        """The text that a reader sees there; "" where nothing is."""
        try:
            return self.find(selector).text
        except (NoSuchElementException, StaleElementReferenceException):
            return ""

    def cells(self) -> dict[str, Counter[tuple[str, str]]]:
        """By node: how many GPUs are shown for whom ("team/train", else what the cell says) in which state."""
        told = self.script(
            """return [...document.querySelectorAll('.node')].map((node) => [
                 node.querySelector('.node-name').firstChild.textContent,
                 [...node.querySelectorAll('.cell')].map((cell) => [cell.dataset.tip, cell.className])])"""
        )
        states = ("bound", "held", "ending", "closed", "free", "foreign")
        return {
            name: Counter((tip, next(s for s in states if s in look.split())) for tip, look in found)
            for name, found in told
        }

    def shown_for(self, job: str) -> int:
        """GPUs that are drawn for a job ("team/job-train")."""
        return sum(count for node in self.cells().values() for (tip, _), count in node.items() if tip == job)

    def cell(self, whose: str) -> WebElement:
        """The first cell that is drawn for a job ("team/job-train")."""
        return self.find(f'.node .cell[data-tip="{whose}"]')

    def focus(self, selector: str) -> None:
        self.script("document.querySelector(arguments[0]).focus()", selector)

    def rows(self, table: str) -> dict[str, list[str]]:
        """Cells of each row of "queue" or "jobs", by namespace/name."""
        told = self.script(
            """return [...document.querySelectorAll(arguments[0] + ' tbody tr')].map((row) => [
                 row.querySelector('.link').textContent, [...row.children].map((cell) => cell.textContent)])""",
            f"#{table}",
        )
        return dict(told)

    def press(self, *keys: str) -> None:
        """Keys to whatever has the focus."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def focused(self) -> str:
        """What a screen reader would say of the element that has the focus."""
        return str(
            self.script(
                "const at = document.activeElement; return at.getAttribute('aria-label') || at.textContent || at.id"
            )
        )

    def until(self, predicate: Callable[[], Any], what: str, within: float = PATIENCE) -> Any:
        """Poll; an element or a row that is drawn again meanwhile, or not there, counts as not yet."""

        def attempt() -> Any:
            try:
                return predicate()
            except (NoSuchElementException, StaleElementReferenceException, LookupError):
                return None

        return wait_until(attempt, within=within, what=what, also=lambda: self.says()[:3000])

    # ---- what nobody sees ----

    def _read_logs(self) -> None:
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
        self.console += [
            e["message"] for e in self.driver.get_log("browser") if e["level"] in ("SEVERE", "WARNING")
        ]

    def asked(self) -> list[str]:
        """Paths that were asked for so far, in order."""
        self._read_logs()
        return [urlsplit(url).path for url in self.requests if url.startswith(self.address)]

    def faults(self, expected: tuple[str, ...] = ()) -> list[str]:
        """Requests that left the origin, and what the console complains of, but for what a scenario expects there."""
        self._read_logs()
        left = [f"asked for {u}" for u in self.requests if not u.startswith((f"{self.address}/", *OWN))]
        return left + [line for line in self.console if not any(words in line for words in expected)]


TAB, ENTER, ESCAPE = Keys.TAB, Keys.ENTER, Keys.ESCAPE
RIGHT, DOWN = Keys.ARROW_RIGHT, Keys.ARROW_DOWN
