"""What is answered with words of the caller's in it."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import JSONResponse


class AsciiResponse(JSONResponse):
    """JSON in ASCII: half of a character that somebody sent can be told, and has no other form."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
