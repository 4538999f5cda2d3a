"""The files that start the service elsewhere: the unit of systemd, and the commands of the container."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest
import yaml

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from retrieval_core_mcp import read_settings
from support.http_process import HttpProcess
from support.http_service import HttpSettings, hashed
from support.mcp_command import read_options

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
UNIT = (ROOT / "packages/mcp_server/retrieval-mcp.service").read_text(encoding="utf-8")
CONTAINER = (ROOT / "packages/mcp_server/Containerfile").read_text(encoding="utf-8")

DEPLOY = ROOT / "deploy"
TEMPLATE = (DEPLOY / "retrieval-mcp@.service").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
COMPOSE_KEYS = {
    "build", "command", "depends_on", "deploy", "environment", "healthcheck", "image", "ports", "restart",
    "stop_grace_period", "volumes",
}  # fmt: skip


def line_of(text: str, word: str) -> str:
    (found,) = re.findall(rf"^{word}[= ](.*)$", text, re.MULTILINE)
    return found


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """Every line is known to it; the program is one that is there."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "retrieval-mcp.service"
    unit.write_text(UNIT.replace("/opt/retrieval/bin/retrieval-mcp", sys.executable))
    checked = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    ours = [line for line in checked.stderr.splitlines() if "retrieval-mcp" in line]
    assert (checked.returncode, ours) == (0, [])
    unit.write_text(UNIT.replace("ProtectHome=", "ProtectHouse="))
    checked = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    assert "ProtectHouse" in checked.stderr


def test_systemd_accepts_the_unit_of_several_services(tmp_path: Path) -> None:
    """Each is an instance of it, named after its port."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "retrieval-mcp@8001.service"
    unit.write_text(TEMPLATE.replace("/opt/retrieval/bin/retrieval-mcp", sys.executable))
    checked = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    ours = [line for line in checked.stderr.splitlines() if "retrieval-mcp" in line]
    assert (checked.returncode, ours) == (0, [])


def test_several_services_share_what_the_page_says(tmp_path: Path) -> None:
    """The settings of both examples are valid, and are those with which processes share all that they can."""
    given = {"POSTGRES_PASSWORD": "secret", "TOKENS": hashed("token")}
    written = {name: re.sub(r"\$\{(\w+)[^}]*\}", lambda found: given[found[1]], str(value))
               for name, value in COMPOSE["services"]["service"]["environment"].items()}  # fmt: skip
    lines = (DEPLOY / "retrieval-mcp.env").read_text(encoding="utf-8").replace("sha256:HASH", hashed("token"))
    listed = dict(line.split("=", 1) for line in lines.splitlines() if line and not line.startswith("#"))
    compose, systemd = (
        read_settings(environment={**each, "RETRIEVAL_INDEX": str(tmp_path / "index.db")}) for each in (written, listed)
    )
    for settings in (compose, systemd):
        assert settings.retrieval.store.kind == "postgres"
        assert settings.retrieval.cache.kind == "redis"
        assert settings.http.stateless
        assert settings.http.requests_per_minute
        assert settings.http.known_tokens()
        url = settings.retrieval.store.postgres.url
        assert url is not None
        assert urlsplit(str(url.get_secret_value())).password is None  # a password may have any characters
    service = COMPOSE["services"]["service"]
    assert "PGPASSWORD" in listed.keys() & service["environment"].keys()
    assert line_of(TEMPLATE, "WorkingDirectory").endswith(f"/{line_of(TEMPLATE, 'StateDirectory')}")  # for sent files
    for settings, patience in (
        (compose, service["stop_grace_period"].removesuffix("s")),
        (systemd, line_of(TEMPLATE, "TimeoutStopSec")),
    ):
        assert int(patience) > settings.http.drain_seconds + settings.http.shutdown_seconds + 2
    program, *options = service["command"]
    assert program == "retrieval-mcp"
    assert read_options(options).http == "0.0.0.0:8000"
    assert read_options(shlex.split(line_of(TEMPLATE, "ExecStart"))[1:]).http == "127.0.0.1:%i"


def test_the_compose_file_names_only_what_there_is() -> None:
    """Its services, volumes, files and keys exist."""
    services = COMPOSE["services"]
    assert COMPOSE.keys() <= {"name", "services", "volumes"}
    for service in services.values():
        assert service.keys() <= COMPOSE_KEYS
        assert ("image" in service) != ("build" in service)
        assert service.get("depends_on", {}).keys() <= services.keys()
        for needed, how in service.get("depends_on", {}).items():
            assert how == {"condition": "service_healthy"}
            assert "healthcheck" in services[needed]
        for volume in service.get("volumes", ()):
            source, target = volume.split(":")[:2]
            assert target.startswith("/")
            assert source in COMPOSE["volumes"] or source in {"./models", "./uploads"} or (DEPLOY / source).is_file()
    build = services["service"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).samefile(ROOT / "packages/mcp_server/Containerfile")
    extras = re.findall(r"^(\w+) = \[", (ROOT / "packages/retrieval_core/pyproject.toml").read_text(), re.MULTILINE)
    assert set(build["args"]["EXTRAS"].split(",")) <= set(extras)
    nginx = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    assert "server service:8000 resolve;" in nginx
    assert "proxy_set_header Host $http_host;" in nginx  # without the port, scripts of the page would get 403
    assert all("127.0.0.1:" in port for port in services["proxy"]["ports"])  # it has no TLS


def test_both_wait_for_requests_and_have_options_that_there_are() -> None:
    """The manager of services waits longer than the service does, and each command line is one of the command."""
    assert int(line_of(UNIT, "TimeoutStopSec")) > HttpSettings().shutdown_seconds + 2
    assert line_of(CONTAINER, "STOPSIGNAL") == "SIGTERM"
    for command in (shlex.split(line_of(UNIT, "ExecStart")), json.loads(line_of(CONTAINER, "CMD"))):
        program, *options = command
        assert Path(program).name == "retrieval-mcp"
        assert read_options(options).http.endswith(f":{line_of(CONTAINER, 'EXPOSE')}")


@pytest.mark.skipif("CONTAINER" not in os.environ, reason="installs packages; run with nox -s service")
def test_the_containers_commands_run_in_a_new_environment(tmp_path: Path) -> None:
    """What RUN installs is enough for CMD, which needs a token, answers, and ends on SIGTERM."""
    work, data, home = tmp_path / "srv", tmp_path / "data", tmp_path / "venv"
    shutil.copytree(ROOT / "packages", work / "packages", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    data.mkdir()
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    places = {"PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))}
    environment = {**kept, **places}
    for command in re.findall(r"^RUN (.*)$", CONTAINER, re.MULTILINE):
        subprocess.run(command, shell=True, cwd=work, env=environment, check=True)
    (data / "notes").mkdir()
    (data / "notes/moon.md").write_text("The moon has no air.")
    subprocess.run(
        ["retrieval", "index", "notes", "--index", "index.db"], cwd=data, env=environment, check=True,
        executable=home / "bin/retrieval",
    )  # fmt: skip
    command = [
        part.replace("/data", str(data)).replace(":8000", ":0") for part in json.loads(line_of(CONTAINER, "CMD"))
    ]
    program = str(home / "bin" / command[0])
    refused = subprocess.run([program, *command[1:]], env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "needs a token" in refused.stderr
    own = environment | {"RETRIEVAL_MCP__HTTP__TOKENS": hashed("secret")}
    with subprocess.Popen([program, *command[1:]], env=own, stderr=subprocess.PIPE, text=True) as process:
        service = HttpProcess(process)
        headers = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
        asked = Request(f"http://127.0.0.1:{service.port}/v1/search", b'{"query_text": "has the moon air"}', headers)
        with urlopen(asked, timeout=60) as answer:
            assert json.load(answer)["results"][0]["text"] == "The moon has no air."
        service.signal(signal.SIGTERM)
        assert service.end() == (0, "")
