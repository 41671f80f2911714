"""Who may ask, and what a browser may do with the answer."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from http.cookies import CookieError, SimpleCookie

EMPTY_STYLE = "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
"""Of a style element without text: the chart library makes such ones and fills in rules by script."""
HEADERS = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            f"style-src 'self' '{EMPTY_STYLE}'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Of every answer. No inline script or style, nothing from elsewhere, no frame around the page."""


class Gate:
    """Decides who may ask.

    Args:
        host: the address the server listens at.
        port: and its port.

    At a loopback address whoever can reach it is the machine's user or a web page in their browser, and a page is told apart by
    the Host header it cannot choose. At any other address a token is asked for besides.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.token = None if is_loopback(host) else secrets.token_urlsafe(24)
        self.cookie = f"grpo_zero_{port}"

    def knows_host(self, header: str | None) -> bool:
        """Whether a Host header names this server. Another name may be a web page's, bound to this address (DNS rebinding).

        At every address (0.0.0.0) each address in figures is known, since no name of a stranger's hides behind figures.
        """
        if not header:
            return False
        name, port = _split_port(header)
        if port != self.port:
            return False
        if is_loopback(self.host):
            return is_loopback(name)
        return name in (self.host, "localhost", socket.gethostname().lower()) or _is_address(name)

    def has_token(self, given: str | None) -> bool:
        """Whether it is the token, compared in a time that does not tell how much of it is right."""
        return self.token is None or hmac.compare_digest(self.token.encode(), (given or "").encode())

    def cookie_token(self, header: str | None) -> str | None:
        """The token in a Cookie header."""
        try:
            found = SimpleCookie(header or "").get(self.cookie)
        except CookieError:
            return None
        return found.value if found else None

    def cookie_header(self) -> str:
        """A Set-Cookie header that keeps the token for this browser, out of the reach of scripts and of other sites."""
        return f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"

    def may_enter(self, cookies: str | None) -> bool:
        """Whether a Cookie header holds the token, where one is asked for."""
        return self.has_token(self.cookie_token(cookies))


def is_loopback(name: str) -> bool:
    """Whether it stands for this machine alone."""
    if name == "localhost":
        return True
    return _is_address(name) and ipaddress.ip_address(name).is_loopback


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _split_port(header: str) -> tuple[str, int]:
    """Name and port of a Host header, lower case, without IPv6's brackets; port 80 where there is none, -1 where it is wrong."""
    name, colon, port = header.strip().lower().rpartition(":")
    if not colon or (name.count(":") and not name.endswith("]")):  # no port: the colon is IPv6's own
        name, port = header.strip().lower(), "80"
    return name.removeprefix("[").removesuffix("]"), int(port) if port.isascii() and port.isdigit() else -1
