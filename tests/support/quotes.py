"""A text, and quotes of it as people and models copy them."""

from __future__ import annotations

TEXT = """\
# Ports

To open a port, run `ufw allow 22/tcp` first. The **default** policy is not “deny” — it's *reject*. See the
[user guide](https://example.com/guide) for infor-
mation on ﬁre\u00adwalls. The moon is 384,400 km away, at -5 °C. Logging is not enabled at once.

- One item
- Two items: snake_case and 2*3
"""
EXACT = ["run `ufw allow 22/tcp` first", "The moon is 384,400 km away", "at -5 °C", "The **default** policy"]
EQUIVALENT = [
    "run ufw allow 22/tcp first",
    "Run ufw allow 22/tcp first",
    "to open a port, run ufw allow",
    'The default policy is not "deny" - it\u2019s reject.',
    "“To open a port, run ufw allow 22/tcp first.”",
    "See the user guide for information on firewalls",
    "See  the\nuser guide",
    "To open a port […] The default policy is",
    "“To open a port … The default policy is”",
    '"To open a port [...] The default policy is"',
    "To open a port ... for information on firewalls",
    "To open a port, … The moon is 384,400 km away",
    "[T]he default policy",
    "[1] Doc: ports.md#0\nTo open a port, run ufw allow 22/tcp first.",
    "To open a port, run ufw allow 22/tcp first. [1]",
    "1. ports.md > Ports  (dense 0.812, lexical 3.20)\n    To open a port, run ufw …",
    "1. ports.md > Ports   score 1.00 · vector #1 · keyword #1\n    To open a port, run ufw …",
    "…open a port, run […]",
    "One item Two items",
]
NOT_FOUND = [
    "run ufw deny 22/tcp first",
    "The default policy is deny",
    "The default policy is not not deny",
    "The moon is 384,401 km away",
    "400 km away",
    "The moon is 4,400 km away",
    "at 5 °C",
    "it's reject […] To open a port",
    "The default policy is … it's reject",
    "Logging is … enabled at once",
    "moon … items",
    "TO OPEN A PORT",
    "pen a port",
    "snake case and 23",
    "port a open To",
    "…",
    "",
]
CASES = [
    *((quote, "exact") for quote in EXACT),
    *((quote, "equivalent") for quote in EQUIVALENT),
    *((quote, "not_found") for quote in NOT_FOUND if quote),
]
