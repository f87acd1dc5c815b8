"""The page in a real browser: what it shows, on a desk and on a phone, by keyboard, and that it kills only after a yes.

With COTENANT_TEST_SCREENSHOTS=FOLDER it leaves its pictures there; docs/images has two of them.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
pytest.importorskip("playwright", reason="playwright is not installed")

from playwright.sync_api import Browser, Page, expect, sync_playwright

from cotenant import segment
from cotenant.dashboard import jobs_shown
from cotenant.figures import class_name
from cotenant.tenants import jobs
from tests.dashboard.serving import an_hour, pass_a_second, scene, served

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium"
)

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]
MORE_FLAGS = ["--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"]
PATIENCE_MS = 120_000
SHARES = {4101: 0.46, 4230: 0.11, 4388: 0.38, 5007: 0.33, 5120: 0.31, 5121: 0.3}
# Whether the left half of the first chart has the colour of a class in it.
PAINTED = """() => {
    const canvas = document.querySelector(".gpu canvas");
    const quarter = canvas.width / 4;
    const seen = canvas.getContext("2d").getImageData(quarter, 0, quarter, canvas.height).data;
    for (let i = 0; i < seen.length; i += 4) {
        const [red, green, blue, alpha] = seen.slice(i, i + 4);
        if (alpha > 60 && Math.max(red, green, blue) - Math.min(red, green, blue) > 60) return true;
    }
    return false;
}"""
PICTURES = os.environ.get("COTENANT_TEST_SCREENSHOTS")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *MORE_FLAGS])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, url: str, **how: Any) -> Iterator[Page]:
    """Fails where the page logs an error: a blocked resource is one."""
    context = browser.new_context(**how)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(url)
    yield page
    context.close()
    assert wrong == []


@contextmanager
def a_day_at_work(folder: Path, **how: Any) -> Iterator[Any]:
    """A served scene that goes on, with an hour behind it."""
    written = scene()
    path = written.to(folder / "segment")
    ended = threading.Event()

    def go_on() -> None:
        at = time.monotonic()
        while not ended.wait(0.2):
            passed, at = time.monotonic() - at, time.monotonic()
            pass_a_second(written, {pid: share * passed for pid, share in SHARES.items()})
            for slot in written.slots.values():
                slot.heartbeat_ns = segment.now_ns()
            written.to(folder / "next").rename(path)

    with served(path, **how) as server:
        keys = {
            f"job/{jobs_shown.key_of(one)}": f"gpu/{one.tenants[0].uses[0].gpu}/{class_name(one.tenants[0])}"
            for one in jobs.of(segment.read(path).tenants)
        }
        an_hour(server.feed.history, segment.now_ns() / 1e9 - 4, keys)
        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield server
        finally:
            ended.set()
            thread.join()


def row(page: Page, name: str) -> Any:
    return page.locator("tr.job", has=page.locator(".name", has_text=name))


def test_the_page_shows_gpus_and_jobs(browser: Browser, tmp_path: Path) -> None:
    with (
        a_day_at_work(tmp_path) as server,
        opened(browser, server.url, viewport={"width": 1280, "height": 900}) as page,
    ):
        expect(page.locator("#link")).to_have_text("live")
        assert page.url == f"http://127.0.0.1:{server.port}/", "the token does not stay in the address"
        expect(page.locator(".gpu")).to_have_count(2)
        expect(page.locator("tr.job")).to_have_count(6)
        expect(page.locator(".gpu canvas")).to_have_count(2)
        serve = row(page, "llm-serve")
        expect(serve.locator(".cell-promise")).to_contain_text("at most 5% kept")
        expect(serve.locator(".cell-memory")).to_contain_text("38.5 GiB of 48 GiB")
        expect(serve.locator(".cell-waits")).to_contain_text("204 µs, p99 996 µs")
        expect(row(page, "embeddings").locator(".cell-promise")).to_contain_text("broken")
        expect(row(page, "finetune.py").locator(".cell-waits")).to_contain_text("higher class")
        expect(row(page, "finetune.py").locator(".cell-waits")).to_contain_text("preempted")
        expect(row(page, "sweep-17").locator(".cell-memory")).to_contain_text("21 GiB on the host")
        expect(row(page, "pretrain").locator(".who")).to_contain_text("PID 5120, 5121")
        expect(serve.locator(".number")).to_contain_text("%")
        page.wait_for_function(PAINTED)  # the charts show the hour before the page was opened

        page.get_by_label("Filter by").fill("pretrain")
        expect(page.locator("tr.job")).to_have_count(1)
        page.get_by_label("Filter by").fill("")
        page.get_by_label("Sort by").select_option("memory")
        expect(page.locator("tr.job").first).to_contain_text("pretrain")
        page.get_by_label("Sort by").select_option("gpu")
        page.locator("#ranges label", has_text="1 h").click()
        picture(page, "dashboard.png")
        expect(page.locator("tr.job").first).to_contain_text("llm-serve")


def picture(page: Page, name: str, whole: bool = True) -> None:
    if PICTURES:
        page.wait_for_timeout(2500)
        page.screenshot(path=Path(PICTURES) / name, full_page=whole)


def test_it_fits_a_phone_and_the_dark(browser: Browser, tmp_path: Path) -> None:
    phone = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "device_scale_factor": 2}
    with a_day_at_work(tmp_path) as server, opened(browser, server.url, **phone) as page:
        expect(page.locator("tr.job")).to_have_count(6)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, (
            "nothing is wider than the screen"
        )
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert sum(int(one) for one in background[4:-1].split(",")) < 120
        picture(page, "dashboard-phone.png", whole=False)


def test_everything_can_be_done_by_keyboard(browser: Browser, tmp_path: Path) -> None:
    with a_day_at_work(tmp_path) as server, opened(browser, server.url) as page:
        name = row(page, "finetune.py").locator("button.name")
        name.focus()
        page.keyboard.press("Enter")
        expect(name).to_have_attribute("aria-expanded", "true")
        expect(page.locator(".details")).to_contain_text("4388")
        page.wait_for_function("n => document.querySelector('#link').dataset.state === 'live' && n", arg=1)
        assert page.evaluate("document.activeElement.textContent") == "finetune.py", "updates leave the focus"
        reached = []
        for _ in range(4):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.getAttribute('aria-label')"))
        assert reached[:3] == ["Class of finetune.py", "Pause finetune.py", "Kill finetune.py"]
        unnamed = page.evaluate(
            """() => [...document.querySelectorAll("button, select, input, [role=img]")].filter((one) =>
                !(one.textContent.trim() || one.getAttribute("aria-label") || one.labels?.length)).length"""
        )
        assert unnamed == 0


def test_readonly_has_no_buttons_that_steer(browser: Browser, tmp_path: Path) -> None:
    with a_day_at_work(tmp_path, readonly=True) as server, opened(browser, server.url) as page:
        expect(page.locator("#link")).to_have_text("live, read only")
        expect(page.locator("tr.job")).to_have_count(6)
        expect(page.locator("button.act:visible")).to_have_count(0)
        expect(page.locator("td select")).to_have_count(0)


def test_a_job_is_killed_only_after_yes(
    browser: Browser,
    job: Any,
    path: Path,
) -> None:
    with served(path) as server, opened(browser, server.url) as page:
        page.get_by_role("button", name="Kill").click()
        dialog = page.locator("dialog")
        expect(dialog).to_contain_text(str(job.pid))
        picture(page, "dashboard-kill.png")
        page.keyboard.press("Escape")
        expect(dialog).not_to_be_visible()
        assert job.poll() is None
        page.locator("td select").select_option("standard")
        expect(page.locator(".notice")).to_contain_text("class standard")
        page.get_by_role("button", name="Kill").click()
        dialog.get_by_role("button", name="SIGTERM").click()
        expect(page.locator(".notice", has_text="SIGTERM sent")).to_be_visible()
        assert job.wait(60) == -15
        expect(page.locator("#empty")).to_be_visible()


def test_names_of_guests_are_text(browser: Browser, tmp_path: Path) -> None:
    written = scene()
    written.slots[0].job = b"<img src=x onerror=alert(1)>"
    with served(written.to(tmp_path / "segment")) as server, opened(browser, server.url) as page:
        expect(row(page, "<img src=x")).to_have_count(1)
        assert page.locator("tr.job img").count() == 0
