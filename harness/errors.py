"""The one exception that a user may see.

Every module raises `HarnessError` for what the user can act on: it carries one line that says what is wrong
(file, line, path, rule, value, as far as known) and one that says what to do. `cli` prints both and exits.
"""

from __future__ import annotations

__all__ = ["HarnessError"]


class HarnessError(Exception):
    """Bad input or a missing means: `message` says what, `remedy` what to do, `exit_code` how the process
    ends."""

    def __init__(self, message: str, *, remedy: str | None = None, exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.exit_code = exit_code
