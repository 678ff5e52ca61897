"""A session of an agent with a server of the Model Context Protocol: agent.py QUESTION COMMAND...

COMMAND is the server. The agent knows only what tools answer. It prints the number of its calls, and what it found.

leak    which line leaks, and is it proved what the peak would be if the line freed its buffers early?
live PID    which line holds the buffers of a running process?
"""

import asyncio
import json
import re
import sys

from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client


class Agent:
    def __init__(self, client):
        self.client, self.calls = client, 0

    async def ask(self, tool, **inputs):
        self.calls += 1
        answer = await self.client.call_tool(tool, inputs)
        text = "\n".join(content.text for content in answer.content)
        print(tool, inputs, "\n" + text, file=sys.stderr)
        return answer.is_error, text

    async def leak(self):
        _, text = await self.ask("report")
        assert "leaked" in text, text
        _, text = await self.ask("leaks", json=True, limit=1)
        line = json.loads(text)["leaks"][0]["name"].split()[0]
        wrong, text = await self.ask("oom", free=[line + "0"])  # of which it hears
        assert wrong and "no allocation there" in text, text
        _, text = await self.ask("oom", free=[line], json=True)
        remedy = json.loads(text)["what_if"]
        return {"line": line, "proved": remedy["proof"]["proved"], "most": remedy["most_allocated"]}

    async def live(self, pid):
        _, text = await self.ask("dump", by="line", pid=[int(pid)])
        line = re.search(r"\S+\.py:\d+", text)
        watched, text = await self.ask("leaks", pid=int(pid), duration="1s")
        assert not watched, text
        refused, text = await self.ask("dump", pid=[1])
        return {"line": line and line[0], "refused": refused, "why": text}


async def main():
    question, *server = sys.argv[1:]
    inputs = [server.pop(0)] if question == "live" else []
    async with Client(stdio_client(StdioServerParameters(command=server[0], args=server[1:]))) as client:
        assert all(tool.annotations.read_only_hint for tool in (await client.list_tools()).tools)
        agent = Agent(client)
        found = await getattr(agent, question)(*inputs)
        print(json.dumps({"calls": agent.calls, **found}))


asyncio.run(main())
