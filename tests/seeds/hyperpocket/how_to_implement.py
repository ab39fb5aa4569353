"""A tool by the steps of "How to implement" in hyperpocket's document "Tool" (000, 001)."""

from typing import Any

from toolcrib.dialects.hyperpocket import Pocket
from toolcrib.dialects.hyperpocket.tool import Tool, ToolAuth, ToolRequest

# 1. Create a class that inherits from Tool


class RepeatTool(Tool):
    times: int

    # Define the tasks to be performed when invoking the tool in invoke or ainvoke.
    def invoke(self, body: Any, envs: dict[str, str], thread_id: str, profile: str, **kwargs: Any) -> str:
        return " ".join([body["word"]] * self.times + sorted(envs))

    # Define a factory method to initialize the tool. (Optional)
    @classmethod
    def from_request(cls, request: "RepeatRequest") -> "RepeatTool":
        # Inject values for the required fields during initialization.
        return cls(
            name=f"repeat_{request.times}",
            description="Says a word several times.",
            argument_json_schema={
                "type": "object",
                "properties": {"word": {"type": "string"}},
                "required": ["word"],
            },
            auth=request.auth,
            times=request.times,
        )


class RepeatRequest(ToolRequest):
    def __init__(self, times: int, auth: ToolAuth | None = None):
        self.times = times
        self.auth = auth

    def __str__(self) -> str:
        return f"RepeatRequest(times={self.times})"


# 2. Add the class to ToolLike in Pocket (Optional)
# 3. Perform tool initialization in Pocket.__init__ or Pocket._load_tool


class RepeatPocket(Pocket):
    loaders = {RepeatRequest: RepeatTool.from_request}


if __name__ == "__main__":
    pocket = RepeatPocket(tools=[RepeatRequest(2)])
    print(pocket.invoke("repeat_2", {"word": "bolt"}))
