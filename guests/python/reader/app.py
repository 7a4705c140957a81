"""Reads web pages: keeps the main text of each as Markdown under /workspace/pages, and says what changed since the last turn.

The input is one URL a line; empty lines and those that begin with # are skipped.
"""

import re
from pathlib import Path

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports import turn
from wit_world.imports import fetch, types

PAGES = Path("/workspace/pages")


class Turn(exports.Turn):
    """The agent's turn, as the world's interface `turn` wants it."""

    def run(self, request: turn.Request) -> turn.Response:
        urls = [line.strip() for line in request.input.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        if not urls:
            raise Err(turn.Failure_InvalidRequest("the input names no page: give one URL a line"))
        return turn.Response(output="\n".join(read(url) for url in urls))


def read(url: str) -> str:
    """Fetches one page into its file and returns a line that says so."""
    request = fetch.Request("GET", url, [], b"", fetch.Form.READABLE, None, None)
    try:
        answer = fetch.send(request)
    except Err as error:
        return f"failed {url}: {why(error.value)}"
    if answer.status != 200:
        return f"failed {url}: status {answer.status}"
    match answer.content:
        case fetch.Content_Text(text):
            pass
        case fetch.Content_Bytes(data):
            text = data.decode(errors="replace")
    page = f"# {answer.title or answer.url}\n\n<{answer.url}>\n\n{text.strip()}\n"
    file = PAGES / name(url)
    before = file.read_text() if file.exists() else None
    if before == page:
        return f"same {url}"
    PAGES.mkdir(parents=True, exist_ok=True)
    file.write_text(page)
    return f"{'new' if before is None else 'changed'} {url}: {file.name}, {len(page.encode())} bytes"


def name(url: str) -> str:
    """Returns the file's name for a URL: what any file system takes, and not the same for two URLs that differ in their letters."""
    return re.sub(r"[^a-z0-9]+", "-", url.split("://", 1)[-1].lower()).strip("-")[:120] + ".md"


def why(error: types.Error) -> str:
    """Says what the host answered, with the line of the configuration that would allow what it denied."""
    match error:
        case types.Error_Denied(denial):
            allowed_by = f"; to allow it: {denial.config_line}" if denial.config_line else ""
            return f"denied ({denial.code}): {denial.why}{allowed_by}"
        case _:
            return f"{type(error).__name__.removeprefix('Error_').lower()}: {error.value}"
