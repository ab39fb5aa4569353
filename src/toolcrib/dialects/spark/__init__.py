"""Spark's tool layer over ours: change `spark` to `toolcrib.dialects.spark` in the imports, and the tools run here.

    Spark                                   Toolcrib
    @tool (a DecoratedFunctionTool)         @tool (the function itself, marked); `Tool` is the built object
    BaseTool                                Tool, by `toolcrib.tools.given(spec, work)`
    ToolSpec {name, description,            ToolSpec: input_schema, output_schema, hints
      parameters: {"json": ...},
      response_schema, x_spark}
    ToolUse {toolUseId, name, input}        Call(tool, arguments, id=...)
    ToolResult {content, status, ...}       Result: status, content, error, started_at, finished_at
    status "in_progress"                    status "pending", or Progress while a call is streamed
    ToolContext (by name or annotation)     Context (by annotation)
    ToolContext.invocation_state            Workbench(variables=...) and Context.variables
    ToolContext.tool_use                    Context.call
    ToolRegistry                            Registry, and Workbench for calls
    process_tools([...])                    Workbench([...]): the sources
    register_tool_by_ref("module:name")     Workbench(["module:name"])
    to_spec_dict, from_spec_dict            Registry.to_dict, Registry.from_dict
    ToolCallExecutor                        Workbench
    ToolExecutionConfig.default_timeout     Workbench(timeout_s=...), @tool(timeout_s=...)
    ToolExecutionConfig.max_concurrency     Limit(per="workbench", concurrency=...)
    execute_tool_use                        await bench.call(...)
    long_running=True                       @tool(long_running=True): a hint in both
    PythonAgentTool                         Tool, by `toolcrib.tools.given`
    Agent(AgentConfig(model, tools))        toolcrib.agent.Agent(model, tools)
    await agent.process(context, **state)   await agent.run(prompt), of a Workbench(variables=state)
    NodeMessage.content, .raw               Outcome.text, Outcome
    get_history()                           Outcome.turns, handed on: agent.run(prompt, after=...)
    get_tool_traces(), ...                  Outcome.trace
    tool_choice                             tool_choice: the same words
    parallel_tool_execution                 parallel
    max_steps (rounds of calls)             max_steps (how often the model is asked)
    OpenAIModel(model_id=...)               "openai:...", or toolcrib.agent.OpenAIChat
    EchoModel                               toolcrib.agent.ScriptedModel
    human_policy, policy_set                Workbench(policy=...); the dialect's agent has neither

Every tool and every registry here has `__toolcrib__()`, so it stands beside native tools in a Workbench, a Crib,
`toolcrib call` and `toolcrib serve`.
"""
