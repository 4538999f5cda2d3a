"""What ``retrieval-mcp open`` hands to the browser."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import url2pathname

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from support.http_service import opened
from support.processes import MCP, as_at_a_terminal, with_our_modules

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="a browser that is a script"), pytest.mark.slow]
BROWSER = """#!{python}
import os, sys
address = sys.argv[1]
place = address.removeprefix("file://")
modes = [oct(os.stat(each).st_mode)[-3:] for each in (place, os.path.dirname(place))]
told = [address, *modes, open(place).read()]
with open({told!r}, "w") as file:
    file.write("\\n".join(told))
"""


def test_the_token_is_in_a_file_for_one_user_and_not_in_the_arguments(tmp_path: Path) -> None:
    """Which whoever is on the machine could list, and the file is gone with the service."""
    with opened(tmp_path / "page.db"):
        pass
    told, browser = tmp_path / "told", tmp_path / "browser"
    os.mkfifo(told)
    browser.write_text(BROWSER.format(python=sys.executable, told=str(told)))
    browser.chmod(0o700)
    environment = {**with_our_modules(), "BROWSER": f"{browser} %s", "RETRIEVAL_EMBEDDER__KIND": "none"}
    command = [*MCP, "open", "--index", str(tmp_path / "page.db")]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, **as_at_a_terminal()
    ) as service:
        assert service.stderr is not None
        try:
            page = re.search(r"http://\S+", service.stderr.readline())
            address, mode, folder_mode, content = told.read_text().split("\n", 3)  # waits for the browser
        finally:
            service.send_signal(signal.SIGINT)
        service.wait(30)
    assert page is not None
    token = page[0].partition("=")[2]
    assert token not in address
    assert (mode, folder_mode) == ("600", "700")
    assert f'url={page[0]}"' in content
    assert not Path(url2pathname(address.removeprefix("file://"))).parent.exists()
