"""Tools that a model of LlamaIndex may call, and that the caller runs."""

from dataclasses import dataclass, field
from typing import Any

from llama_index.core.tools.types import BaseTool, ToolMetadata, ToolOutput


@dataclass
class _Schema(ToolMetadata):
    """Metadata with a given JSON schema of the parameters."""

    parameters: dict[str, Any] = field(default_factory=dict)

    def get_parameters_dict(self) -> dict[str, Any]:
        return self.parameters


class OfferedTool(BaseTool):
    """A tool described in OpenAI's format."""

    def __init__(self, schema: dict[str, Any]) -> None:
        """Describe the function of a schema."""
        function = schema["function"]
        self._metadata = _Schema(
            description=function.get("description", ""),
            name=function["name"],
            fn_schema=None,
            parameters=function.get("parameters", {}),
        )

    @property
    def metadata(self) -> ToolMetadata:
        """Name, description and parameters."""
        return self._metadata

    def __call__(self, input: Any) -> ToolOutput:  # noqa: A002  the name in the base
        """Never called: the caller of the model runs the tool."""
        raise NotImplementedError
