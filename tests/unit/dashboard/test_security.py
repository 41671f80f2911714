"""Who may ask: Host headers, tokens, cookies."""

from __future__ import annotations

import pytest

from grpo_zero.dashboard.security import Gate


@pytest.mark.parametrize("host", ["127.0.0.1:80", "localhost:80", "LOCALHOST:80", "[::1]:80", "127.0.0.1", "localhost"])
def test_names_of_this_machine_are_known(host: str) -> None:
    assert Gate("127.0.0.1", 80).knows_host(host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:80",
        "127.0.0.1.evil.example:80",
        "localhost.evil.example",
        "127.0.0.1:81",
        "",
        None,
        "10.0.0.7:80",
        "x:y",
    ],
)
def test_other_names_are_not(host: str | None) -> None:
    assert not Gate("127.0.0.1", 80).knows_host(host)


def test_at_all_addresses_only_names_in_figures_are_known() -> None:
    gate = Gate("0.0.0.0", 8000)
    assert gate.knows_host("10.0.0.7:8000")
    assert gate.knows_host("[fe80::1]:8000")
    assert not gate.knows_host("evil.example:8000")
    assert Gate("box.example", 8000).knows_host("box.example:8000")


def test_no_token_on_this_machine_and_one_elsewhere() -> None:
    assert Gate("127.0.0.1", 80).token is None
    assert Gate("::1", 80).token is None
    gate, other = Gate("0.0.0.0", 80), Gate("0.0.0.0", 80)
    assert len(gate.token) >= 32
    assert gate.token != other.token
    assert gate.has_token(gate.token)
    for wrong in (None, "", gate.token[:-1], gate.token + "x", other.token, "ä"):
        assert not gate.has_token(wrong), wrong


def test_the_cookie_opens_the_gate_and_stays_out_of_scripts() -> None:
    gate = Gate("0.0.0.0", 8000)
    header = gate.cookie_header()
    assert {"HttpOnly", "SameSite=Strict"} <= set(header.split("; "))
    assert gate.may_enter(header.split(";")[0])
    assert gate.may_enter(f"other=1; {header.split(';')[0]}")
    for cookies in (None, "", f"{gate.cookie}=", f"{gate.cookie}=wrong", "\x00=;=", f"x={gate.token}"):
        assert not gate.may_enter(cookies), cookies
    assert Gate("127.0.0.1", 8000).may_enter(None)
