"""What an eye, a keyboard and a browser's console say of a page."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from playwright.sync_api import Browser, BrowserContext, Page

WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
CONTRAST_MIN = 7.0
"""AAA of WCAG 2.2, 1.4.6."""
TABS_MAX = 400

PALE = (Path(__file__).parent / "pale.js").read_text()
"""Text of too little contrast: a function of the least ratio; lists text and ratio."""
NAMELESS = """() => [...document.querySelectorAll("a, button, input, select, textarea")]
  .filter((one) => one.checkVisibility() && one.type !== "hidden")
  .filter((one) => !(one.innerText?.trim() || one.getAttribute("aria-label") || one.title
    || one.labels?.length || one.querySelector("img[alt]:not([alt=''])") || one.type === "submit"))
  .map((one) => one.outerHTML)"""
"""What can be used and has no name to read out."""
FOCUSED = """() => {
  const one = document.activeElement;
  if (!one || one === document.body) return null;
  const stops = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
    .filter((each) => each.checkVisibility() && !each.disabled && each.type !== "hidden");
  const style = getComputedStyle(one);
  return {
    place: stops.indexOf(one), stops: stops.length, what: one.outerHTML.slice(0, 120),
    seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
  };
}"""


@contextlib.contextmanager
def looking(browser: Browser, *, expected: str | None = None, **more: Any) -> Iterator[Page]:
    """A page of a new context; whatever it complains of must have `expected` in it."""
    complaints: list[str] = []
    context = browser.new_context(viewport=more.pop("viewport", WIDE), **more)
    try:
        page = context.new_page()
        page.on("console", lambda told: told.type == "error" and complaints.append(told.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield page
    finally:
        close(context)
    assert [told for told in complaints if expected is None or expected not in told] == []


def close(context: BrowserContext) -> None:
    for page in context.pages:
        page.close()
    context.close()


def links(page: Page) -> list[str]:
    """Of this site, without what comes behind a #."""
    hrefs = page.eval_on_selector_all("a[href]", "all => all.map(one => one.getAttribute('href'))")
    found = [urlsplit(urljoin(page.url, href)) for href in hrefs]
    here = urlsplit(page.url).netloc
    return [each._replace(fragment="").geturl() for each in found if each.netloc == here]


def focus_stops(page: Page) -> list[Mapping[str, Any]]:
    """Where Tab stops, one by one, from the top of the page to its end."""
    found: list[Mapping[str, Any]] = []
    for _ in range(TABS_MAX):
        page.keyboard.press("Tab")
        stop = page.evaluate(FOCUSED)
        if stop is None or (found and stop["place"] <= found[-1]["place"]):
            return found
        found.append(stop)
    raise AssertionError(f"Tab stops more than {TABS_MAX} times at {page.url}")
