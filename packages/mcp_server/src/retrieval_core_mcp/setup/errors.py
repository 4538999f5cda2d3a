"""Errors of changing a configuration file."""


class NotEditableError(Exception):
    """A text can't be changed without the danger that something in it is lost. The message has the reason."""
