"""The command."""


def main() -> None: ...
