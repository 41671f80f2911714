"""The server over a real socket: what it sends, what it refuses, and that it leaves a run as it was."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import quote

import pytest
from helpers.recorded import start_run, write_steps

from grpo_zero.cli import main, parse
from grpo_zero.dashboard import assets
from grpo_zero.dashboard.server import DashboardServer
from grpo_zero.doctor.diagnose import closing_line, diagnose
from grpo_zero.doctor.evidence import read_run

pytest.importorskip("plotly")
PAGE = Path(assets.__file__).parent / "page"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_steps(start_run(tmp_path / "runs" / "first", 20), 0, 20, 20)
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path / "runs"


@pytest.fixture
def server(runs: Path) -> Iterator[DashboardServer]:
    yield from serving(DashboardServer([runs], "127.0.0.1", 0))


def serving(server: DashboardServer) -> Iterator[DashboardServer]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def get(server: DashboardServer, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers=headers)
    reply = connection.getresponse()
    content = reply.read()
    connection.close()
    return reply, content


def ask(server: DashboardServer, route: str, **parameters: object) -> tuple[int, dict]:
    words = "&".join(f"{name}={quote(str(value))}" for name, value in parameters.items())
    reply, content = get(server, f"/api/{route}?{words}")
    return reply.status, json.loads(content)


def test_the_page_and_its_files(server: DashboardServer) -> None:
    reply, content = get(server, "/")
    assert (reply.status, reply.getheader("Content-Type")) == (200, "text/html; charset=utf-8")
    for name in re.findall(r'(?:src|href)="([^"#]+)"', content.decode()):
        assert get(server, f"/{name}")[0].status == 200, name
    reply, content = get(server, "/plotly.min.js")
    assert (reply.status, len(content) > 1_000_000) == (200, True)
    again, content = get(server, "/plotly.min.js", If_None_Match=reply.getheader("ETag"))
    assert (again.status, content) == (304, b"")
    reply, content = get(server, "/", "HEAD")
    assert (reply.status, content) == (200, b"")


def test_every_answer_forbids_what_it_does_not_need(server: DashboardServer) -> None:
    for path in ("/", "/app.js", "/api/runs", "/api/nothing", "/nothing"):
        reply, _ = get(server, path)
        policy = reply.getheader("Content-Security-Policy")
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert reply.getheader("X-Content-Type-Options") == "nosniff"
        assert reply.getheader("Cross-Origin-Resource-Policy") == "same-origin"
        assert reply.getheader("Access-Control-Allow-Origin") is None


@pytest.mark.parametrize(
    "path",
    ["/../secret.txt", "/..%2fsecret.txt", "/%2e%2e/secret.txt", "//etc/passwd", "/page/app.js", "/first/config.yaml",
     "/api/../config.yaml", "/api/series?run=../../etc", "/api/groups?run=..&step=1", "/api/text?run=/etc&at=0"],
)  # fmt: skip
def test_nothing_else_is_served(server: DashboardServer, path: str) -> None:
    reply, content = get(server, path)
    assert reply.status == 404
    assert b"secret" not in content
    assert b"root:" not in content


def test_another_host_name_is_refused_before_anything_is_read(server: DashboardServer) -> None:
    for path in ("/", "/api/runs"):
        reply, content = get(server, path, Host=f"evil.example:{server.server_port}")
        assert reply.status == 403
        assert b"first" not in content
    assert get(server, "/api/runs", Host=f"localhost:{server.server_port}")[0].status == 200


def test_only_reading(server: DashboardServer) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert get(server, "/api/runs", method)[0].status == 501


def test_elsewhere_a_token_is_asked_for_once(runs: Path) -> None:
    for server in serving(DashboardServer([runs], "0.0.0.0", 0)):
        assert get(server, "/api/runs")[0].status == 401
        assert get(server, "/")[0].status == 401
        assert get(server, "/?token=wrong")[0].status == 401
        assert f"?token={server.gate.token}" in server.url
        reply, _ = get(server, f"/?token={server.gate.token}")
        assert (reply.status, reply.getheader("Location")) == (303, "/")
        cookie = reply.getheader("Set-Cookie").split(";")[0]
        assert get(server, "/api/runs", Cookie=cookie)[0].status == 200
        assert get(server, "/api/runs", Cookie=cookie, Host=f"evil.example:{server.server_port}")[0].status == 403


def test_runs_tell_how_far_they_are(server: DashboardServer, runs: Path) -> None:
    status, found = ask(server, "runs")
    assert status == 200
    [run] = found["runs"]
    assert (run["name"], run["step"], run["num_steps"], run["state"]) == ("first", 20, 20, "finished")
    assert {"success", "reward", "seconds", "memory"} <= set(run["panels"])
    second = start_run(runs / "second", 40)
    write_steps(second, 0, 3, 40)
    found = {run["name"]: run for run in ask(server, "runs")[1]["runs"]}
    assert (found["second"]["state"], found["second"]["step"]) == ("running", 3)
    version = found["second"]["version"]
    write_steps(second, 4, 4, 40)
    found = {run["name"]: run for run in ask(server, "runs")[1]["runs"]}
    assert (found["second"]["step"], found["second"]["version"] > version) == (4, True)


def test_charts_and_answers_are_sent(server: DashboardServer, runs: Path) -> None:
    (runs / "first" / "plan.json").write_text('{"planned_gib": 12.5}')
    found = ask(server, "series", run="first", panel="memory")[1]
    assert found["planned_gib"] == 12.5
    assert [line["name"] for line in found["lines"]] == ["peak_gib", "peak_host_gib"]
    assert found["metrics"][0]["unit"] == "GiB"
    assert ask(server, "steps", run="first")[1] == {"train": list(range(1, 21)), "eval": [0, 10, 20]}
    assert len(ask(server, "groups", run="first", step=5, kind="train")[1]["groups"]) == 4
    answers = ask(server, "group", run="first", step=5, kind="train", index=1)[1]["answers"]
    assert len(answers) == 4
    more = ask(server, "text", run="first", at=answers[0]["at"], start=0, count=5)[1]
    assert (more["text"], more["pieces"]) == ("1 + 2", answers[0]["pieces"][:5])
    assert len(ask(server, "questions", run="first")[1]["questions"]) == 4
    assert len(ask(server, "follow", run="first", index=1)[1]["history"]) == 3


@pytest.mark.parametrize(
    ("route", "parameters"),
    [
        ("series", {"run": "first", "panel": "nothing"}),
        ("series", {"run": "first", "panel": "reward", "first": "x"}),
        ("series", {"run": "first", "panel": "reward", "first": "nan"}),
        ("groups", {"run": "first", "kind": "other"}),
        ("group", {"run": "first", "step": 5, "index": 99}),
        ("follow", {"run": "first", "index": 99}),
        ("text", {"run": "first", "at": 3}),
        ("steps", {"run": "third"}),
        ("nothing", {}),
    ],
)
def test_what_is_not_there_is_said_in_a_sentence(server: DashboardServer, route: str, parameters: dict) -> None:
    status, found = ask(server, route, **parameters)
    assert status == 404
    assert found["error"].endswith(".")


def test_a_run_is_left_as_it_was(server: DashboardServer, runs: Path) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(runs.rglob("*"))}

    before = state()
    asked = [("runs", {}), ("series", {"run": "first", "panel": "reward"}), ("questions", {"run": "first"})]
    for route, parameters in asked:
        assert ask(server, route, **parameters)[0] == 200
    assert state() == before


def test_the_page_reads_no_string_as_html() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|\beval\(|new Function|https?://(?!www\.w3\.org)"
    )
    files = [path for path in PAGE.iterdir() if path.suffix in (".js", ".html", ".svg")]
    assert len(files) > 10
    for path in files:
        assert not forbidden.search(path.read_text(encoding="utf-8")), path.name


def test_the_command_checks_what_it_is_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = parse(["dashboard", "x"])
    assert (options.host, options.port, options.paths) == ("127.0.0.1", 8420, [Path("x")])
    assert main(["dashboard", str(tmp_path / "missing")]) == 2
    assert "There is no folder" in capsys.readouterr().err


def test_a_missing_chart_library_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("grpo_zero.commands.dashboard.os.nice", lambda by: 0)
    monkeypatch.setattr(assets.importlib.util, "find_spec", lambda name: None)
    assert main(["dashboard", str(tmp_path)]) == 2
    assert "pip install 'grpo-zero[dashboard]'" in capsys.readouterr().err


def test_a_port_in_use_is_named(
    server: DashboardServer, runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("grpo_zero.commands.dashboard.os.nice", lambda by: 0)
    assert main(["dashboard", str(runs), "--port", str(server.server_port)]) == 2
    assert "cannot listen" in capsys.readouterr().err


def test_findings_are_the_doctors(server: DashboardServer, runs: Path) -> None:
    reply, content = get(server, "/api/findings?run=first")
    found = json.loads(content)
    evidence = read_run(runs / "first")
    assert reply.status == 200
    assert [finding["title"] for finding in found["findings"]] == [finding.title for finding in diagnose(evidence)]
    assert found["closing"] == closing_line(evidence, len(found["findings"]))
    (runs / "first" / "metrics.jsonl").write_text("")
    assert json.loads(get(server, "/api/findings?run=first")[1]) == {"findings": [], "closing": None}
