"""Inference with ONNX files on the processor. Importing this loads ``onnxruntime`` and numpy."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from retrieval_core.errors import ModelNotFoundError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from tokenizers import Encoding

    from retrieval_core.adapters.local_models.work import StopSignal

_ort: Any = import_module("onnxruntime")  # it has no type information

_OF_THE_TEXT = "sentence_embedding"  # as Optimum names it, and those who export as it does
_SILENT = 4  # only what ends the process; a failed run raises, and so needs no line on standard error


class OnnxModel:
    """A transformer that reads one text, or one pair, at a time; several threads may run it at once.

    One text a call, on one thread: an int8 model scales its activations over the whole batch, so that in a batch the
    other texts would change a text's result.

    Args:
        path: The ONNX file, whose inputs are named as in BERT (``input_ids``, ``attention_mask``, ``token_type_ids``).

    Attributes:
        file_bytes: Size of the file, about that of the weights in memory.

    Raises:
        ModelNotFoundError: The file is not a model that can be run.
    """

    def __init__(self, path: Path) -> None:
        options = _ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.execution_mode = _ort.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = _SILENT
        # A pattern is kept for each length of text ever seen. The arena stays on: without it, memory grew further
        # (214-330 MB instead of 210 on 400 abstracts and two threads) and runs took a fifth longer.
        options.enable_mem_pattern = False
        # The level above rearranges convolutions, of which these models have none: loading is a tenth quicker without,
        # and of 120 random inputs to both installed models every output was the same to the bit.
        options.graph_optimization_level = _ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        try:
            self._session = _ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the library's errors have no common base
            msg = f"{path} is not an ONNX model that can be run: {error}"
            raise ModelNotFoundError(msg) from error
        _return_freed_memory()
        self.file_bytes = path.stat().st_size
        self._inputs = frozenset(str(node.name) for node in self._session.get_inputs())
        outputs = self._session.get_outputs()
        self._output = next((node for node in outputs if node.name == _OF_THE_TEXT), outputs[0])

    @property
    def output_size(self) -> int | None:
        """Size of the output's last axis, ``None`` where the file leaves it open."""
        size = self._output.shape[-1]
        return size if isinstance(size, int) else None

    def run(self, encoding: Encoding, stop: StopSignal) -> NDArray[np.float32]:
        """Return the output for the text as a whole where there is one by that name, else the first.

        Returns:
            Without batch axis: ``(tokens, size)`` of most encoders, ``(size,)`` of those that pool by themselves,
            ``(1,)`` of cross-encoders.
        """
        values = {
            "input_ids": encoding.ids,
            "attention_mask": encoding.attention_mask,
            "token_type_ids": encoding.type_ids,
        }
        feed = {name: np.array([row], dtype=np.int64) for name, row in values.items() if name in self._inputs}
        options = _ort.RunOptions()
        options.log_severity_level = _SILENT
        with stop.reaching(lambda: setattr(options, "terminate", True)):
            return self._session.run([self._output.name], feed, options)[0][0]


def _return_freed_memory() -> None:
    """Hand back what was freed: glibc keeps what reading the file took, 25 MB for one of 34, for as long as it runs."""
    if sys.platform == "linux":
        with suppress(AttributeError):  # other C libraries have no such function
            ctypes.CDLL(None).malloc_trim(0)
