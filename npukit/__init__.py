"""An NPU co-design kit: one instruction set, executions that agree."""

__all__: list[str] = []
