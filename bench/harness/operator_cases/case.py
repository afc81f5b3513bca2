"""A case: one operator, how its operands are drawn, and its attributes; and the model that it becomes.

A case's name is OPERATOR/WHAT, with the domain before the operator unless it is ONNX's own. Operands are drawn when a model is
made, by a generator that the case's name seeds: a case has the same model whichever others run.
"""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any, Callable, Optional, Sequence

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

Array = npt.NDArray[Any]
Draw = Callable[[np.random.Generator], Array]

MICROSOFT = "com.microsoft"
OPSET = 21
IR_VERSION = 10


@dataclasses.dataclass(frozen=True)
class Operand:
    """How the value of an input is drawn; a constant one is an initializer of the model."""

    draw: Draw
    constant: bool = False


# An operand that is left out is None.
Operands = Sequence[Optional[Operand]]


@dataclasses.dataclass(frozen=True)
class Case:
    """One node. `off_by` is how far an integer output may be from onnxruntime's."""

    name: str
    operands: Operands
    attributes: dict[str, Any]
    outputs: int
    opset: int
    off_by: int

    @property
    def domain(self) -> str:
        return self.name.split("/")[0].rpartition(".")[0]

    @property
    def operator(self) -> str:
        return self.name.split("/")[0].rpartition(".")[2]

    def model(self) -> tuple[onnx.ModelProto, dict[str, Array]]:
        """The model, and the values of its inputs."""
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        names: list[str] = []
        given: dict[str, Array] = {}
        constants: dict[str, Array] = {}
        for i, operand in enumerate(self.operands):
            names.append("" if operand is None else f"x{i}")
            if operand is not None:
                (constants if operand.constant else given)[f"x{i}"] = operand.draw(rng)
        results = [f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(self.operator, names, results, domain=self.domain, **self.attributes)
        element = helper.np_dtype_to_tensor_dtype
        graph = helper.make_graph(
            [node],
            "one_operator",
            [helper.make_tensor_value_info(n, element(v.dtype), v.shape) for n, v in given.items()],
            # Their types are inferred, by the importers as well.
            [onnx.ValueInfoProto(name=name) for name in results],
            [numpy_helper.from_array(v, n) for n, v in constants.items()],
        )
        opsets = [helper.make_opsetid("", self.opset)]
        if self.domain:
            opsets.append(helper.make_opsetid(self.domain, 1))
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        return onnx.shape_inference.infer_shapes(model, data_prop=True), given


def case(
    name: str, *operands: Optional[Operand], outputs: int = 1, opset: int = OPSET, off_by: int = 0, **attributes: Any
) -> Case:
    """The case of a name; what else is named is an attribute of the node."""
    return Case(name, operands, attributes, outputs, opset, off_by)


def microsoft(name: str, *operands: Optional[Operand], **more: Any) -> Case:
    """A case of com.microsoft's operator."""
    return case(f"{MICROSOFT}.{name}", *operands, **more)


def each(operators: str, what: str, *operands: Optional[Operand], **more: Any) -> list[Case]:
    """A case of each operator, all on the same operands."""
    return [case(f"{operator}/{what}", *operands, **more) for operator in operators.split()]


def normal(*shape: int, dtype: str = "float32", scale: float = 1.0) -> Operand:
    return Operand(lambda rng: (scale * rng.standard_normal(shape)).astype(dtype))


def positive(*shape: int, dtype: str = "float32", least: float = 0.1) -> Operand:
    return Operand(lambda rng: (least + np.abs(rng.standard_normal(shape))).astype(dtype))


def uniform(low: float, high: float, *shape: int, dtype: str = "float32") -> Operand:
    return Operand(lambda rng: rng.uniform(low, high, shape).astype(dtype))


def integers(end: int, *shape: int, start: int = 0, dtype: str = "int64") -> Operand:
    """From `start` on and below `end`."""
    return Operand(lambda rng: rng.integers(start, end, shape).astype(dtype))


def u8(*shape: int) -> Operand:
    return integers(256, *shape, dtype="uint8")


def i8(*shape: int) -> Operand:
    return integers(128, *shape, start=-128, dtype="int8")


def flags(*shape: int) -> Operand:
    return Operand(lambda rng: rng.random(shape) < 0.5)


def constant(operand: Operand) -> Operand:
    return dataclasses.replace(operand, constant=True)


def weight(*shape: int, dtype: str = "float32", scale: float = 0.05) -> Operand:
    """A constant whose products do not grow much."""
    return constant(normal(*shape, dtype=dtype, scale=scale))


def fixed(value: npt.ArrayLike, dtype: str = "int64") -> Operand:
    """A constant of this value."""
    return Operand(lambda _: np.array(value, dtype), constant=True)


def given(value: Callable[[], Array]) -> Operand:
    """An input that nothing is drawn for."""
    return Operand(lambda _: value())
