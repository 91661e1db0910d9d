"""The one error of the embedded servers."""


class EmbeddedServerError(Exception):
    """An embedded server cannot run here. The message says why and what a person can do about it."""
