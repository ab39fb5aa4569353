"""`hyperpocket.prompts`: the description of a tool that a model calls with a thread, a profile and a body."""


def pocket_extended_tool_description(description: str) -> str:
    """Return *description* with what the arguments `thread_id`, `profile` and `body` are."""
    return f"""
<tool-description>
{description}
</tool-description>

It takes these arguments:
- 'thread_id': the thread of the conversation in which it is called. Leave it out if you do not know it.
- 'profile': as which of their profiles the user acts, if they name one. Leave it out otherwise.
- 'body': what the tool described in the <tool-description> XML tag takes, as a JSON object.
"""
