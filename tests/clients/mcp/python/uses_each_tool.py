"""Uses each tool of `heeler serve mcp` with the official Python client, version 1 or 2: python uses_each_tool.py.

The programs are in the working directory, Heeler's executable is in $HEELER. If $URL is set, the server runs there.
"""

import asyncio
import importlib.metadata
import json
import os
from contextlib import asynccontextmanager

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

TOOLS = ["list_tests", "run_tests", "get_failures", "get_output", "cancel_run", "mcp.test.capabilities", "mcp.test.protocol"]
SERVER = StdioServerParameters(command=os.environ["HEELER"], args=["serve", "mcp", "kinds"], env=dict(os.environ))


URL = os.environ.get("URL")


@asynccontextmanager
async def connected():
    if importlib.metadata.version("mcp").startswith("1.") and URL:
        from mcp.client.streamable_http import streamable_http_client

        async with streamable_http_client(URL) as (read, write, _), ClientSession(read, write) as session:
            await session.initialize()
            yield session
    elif importlib.metadata.version("mcp").startswith("1."):
        async with stdio_client(SERVER) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            yield session
    else:
        from mcp import Client

        # It finds out about the era by itself.
        async with Client(URL or SERVER) as client:
            assert client.protocol_version == "2026-07-28", client.protocol_version
            yield client


def is_error(result):
    return result.isError if hasattr(result, "isError") else result.is_error


async def answer(session, name, arguments, **options):
    result = await session.call_tool(name, arguments, **options)
    assert not is_error(result), result
    return json.loads(result.content[0].text)


async def main():
    async with connected() as session:
        listed = await session.list_tools()
        assert [tool.name for tool in listed.tools] == TOOLS, listed

        tests = await answer(session, "list_tests", {"filter": "Math."})
        assert tests["total"] == 5, tests

        progress = []

        async def on_progress(done, total, message):
            progress.append((done, total, message))

        run = await answer(session, "run_tests", {"filter": "test(Math)"}, progress_callback=on_progress)
        assert run["state"] == "completed", run
        assert run["counts"] == {"selected": 5, "passed": 1, "failed": 2, "skipped": 2}, run
        assert progress and progress == sorted(progress), progress

        failures = await answer(session, "get_failures", {"run": run["run"]})
        assert failures["failures"] == run["failures"], failures
        output = await answer(session, "get_output", {"run": "latest", "test": "kinds::Math.Fail"})
        assert 'msg <with> "quotes" & ü' in output["text"], output

        # A run that is cancelled by its id is answered.
        named = asyncio.get_running_loop().create_future()

        async def on_named(done, total, message):
            if message.startswith("run ") and not named.done():
                named.set_result(message.replace(":", "").split()[1])

        hanging = asyncio.create_task(
            answer(session, "run_tests", {"filter": "test(Hang.Forever)"}, progress_callback=on_named)
        )
        name = await named
        cancelled = await session.call_tool("cancel_run", {"run": name})
        assert not is_error(cancelled), cancelled
        ended = await hanging
        assert (ended["run"], ended["state"]) == (name, "cancelled"), ended

        for name in TOOLS[5:]:
            result = await session.call_tool(name, {})
            text = json.loads(result.content[0].text)
            assert not is_error(result) and text["success"], result

        wrong = await session.call_tool("run_tests", {"repeat": 0})
        assert is_error(wrong), wrong


asyncio.run(asyncio.wait_for(main(), 60))
