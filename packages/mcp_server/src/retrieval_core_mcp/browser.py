"""Showing the page of a service in the browser, without anybody else on the machine seeing its token."""

from __future__ import annotations

import secrets
import sys
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import ExitStack

_REDIRECT = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}">
<title>The page</title>
<a href="{address}">The page</a>
"""


def new_token() -> str:
    """Return a token for one run of a service."""
    return secrets.token_urlsafe(24)


def show_page(token: str, until_the_end: ExitStack | None, address: str) -> None:
    """Say where the page of a service is, and open it in the browser.

    The token stands behind the ``#``, which is sent to no server and is in no log. Nor is it in the arguments of the
    browser, which everybody on the machine may list: these name a file for this user alone, which leads to the page.

    Args:
        until_the_end: What the service leaves behind when it ends, the file among it; ``None`` opens no browser.
    """
    page = f"{address}/#token={token}"
    sys.stderr.write(f"The page is at {page}\nCtrl-C ends it.\n")
    sys.stderr.flush()
    if until_the_end is None:
        return
    try:
        folder = until_the_end.enter_context(TemporaryDirectory(prefix="retrieval-", ignore_cleanup_errors=True))
        file = write_redirect(Path(folder), page)
    except OSError as error:
        sys.stderr.write(f"The browser was not opened: no file can be written to lead it there ({error.strerror}).\n")
        return
    import webbrowser  # noqa: PLC0415 - for who opens the page

    Thread(target=webbrowser.open, args=(file.as_uri(),), name="browser", daemon=True).start()


def write_redirect(folder: Path, page: str) -> Path:
    """Write a file that leads to a page, and that this user alone may read."""
    file = folder / "page.html"
    file.touch(0o600, exist_ok=False)
    file.write_text(_REDIRECT.format(address=escape(page)), "utf-8")
    return file
