"""What the tests of the contract ask."""

from support.http_served import served

__all__ = ["served"]
