"""Lists and calls the tools of ../server.mjs directly and behind `heeler mcp filter`, with the official Python client,
version 1 or 2: python sees_no_tests.py v1|v2, the library of the server.

Heeler's executable is in $HEELER. If $URL is set, the filter runs there, before the server at $SERVER_URL.
"""

import asyncio
import importlib.metadata
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

SCRIPT = str(Path(__file__).resolve().parent.parent / "server.mjs")
DIRECT = ["node", SCRIPT, *sys.argv[1:]]
FILTERED = [os.environ["HEELER"], "mcp", "filter", "--", *DIRECT]
IS_FIRST_GENERATION = importlib.metadata.version("mcp").startswith("1.")


def stdio(command):
    return StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))


@asynccontextmanager
async def connected(command, url):
    if not IS_FIRST_GENERATION:
        from mcp import Client

        async with Client(url or stdio(command)) as client:
            yield client
    elif url:
        from mcp.client.streamable_http import streamable_http_client

        async with streamable_http_client(url) as (read, write, _), ClientSession(read, write) as session:
            await session.initialize()
            yield session
    else:
        async with stdio_client(stdio(command)) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            yield session


async def all_tools(session):
    """Lists the tools page by page, as the library understands them."""
    page = await session.list_tools()
    tools = list(page.tools)
    while cursor := (page.nextCursor if IS_FIRST_GENERATION else page.next_cursor):
        page = await session.list_tools(cursor=cursor)
        tools += page.tools
    return [tool.model_dump() for tool in tools]


async def main():
    async with connected(DIRECT, os.environ.get("SERVER_URL")) as direct:
        tools = await all_tools(direct)
        assert len(tools) == 8, tools
    async with connected(FILTERED, os.environ.get("URL")) as filtered:
        expected = [tool for tool in tools if not tool["name"].startswith("mcp.test.")]
        assert [tool["name"] for tool in expected] == ["add", "slow", "echo", "my.mcp.test.x"], expected
        assert await all_tools(filtered) == expected
        added = await filtered.call_tool("add", {"a": 2, "b": 3})
        assert added.content[0].text == "5", added
        text = {"text": "mcp.test.first \u2028 \U0001f600"}
        echoed = await filtered.call_tool("echo", text)
        assert text["text"] in echoed.content[0].text, echoed
        try:
            called = await filtered.call_tool("mcp.test.first", {})
        except Exception as error:
            assert "Unknown tool: mcp.test.first" in str(error), error
            assert error.error.code == -32602, error
        else:
            raise AssertionError(called)
    notes = Path(os.environ["NOTES"]).read_text()
    assert "call add\n" in notes and "call mcp.test." not in notes, notes


asyncio.run(asyncio.wait_for(main(), 60))
