"""A model of a few kilobytes that gives each word one vector, whatever stands around it.

It is a late interaction model, and an embedding model once its vectors are pooled.
"""

from __future__ import annotations

import json
import string
from typing import TYPE_CHECKING

import numpy as np

from retrieval_core.testing.embedder_kit import PASSAGES, QUESTIONS

if TYPE_CHECKING:
    from pathlib import Path

# fastembed puts the tokens 1 and 2 before questions and passages.
SPECIAL = ["[PAD]", "[Q]", "[D]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZE = 64
FLOAT, INT64 = 1, 7


def write_model(folder: Path, file: str, *, axes: int = 3, with_sum: bool = False) -> None:
    """Write the model that knows the words of the kit's questions and passages.

    Args:
        file: Name of the ONNX file.
        axes: Axes of its output: 3 for a vector a token; 2 for the numbers of the tokens, as no such model gives them.
        with_sum: Whether a second output, named as that of models that pool by themselves, is the sum of the vectors.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    known = [*PASSAGES, *QUESTIONS, " ".join(string.punctuation)]
    tokenizer.train_from_iterator(known, trainers.WordLevelTrainer(special_tokens=SPECIAL))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", SPECIAL.index("[CLS]")), ("[SEP]", SPECIAL.index("[SEP]"))]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"model_max_length": 128, "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    vectors = np.random.default_rng(7).normal(size=(tokenizer.get_vocab_size(), SIZE)).astype("<f4")
    # These stand in every text, and would be what texts have most in common.
    vectors[SPECIAL.index("[MASK]")] = 0
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_bytes(_gathering(vectors, axes, with_sum=with_sum))


def _gathering(vectors: np.ndarray[tuple[int, ...], np.dtype[np.float32]], axes: int, *, with_sum: bool) -> bytes:
    """Return an ONNX file whose output is, for each token, its row of a table; see onnx.proto for the numbers."""
    table = b"".join(_number(1, size) for size in vectors.shape) + _number(2, FLOAT)
    table += _bytes(8, b"table") + _bytes(9, vectors.tobytes())
    result = b"rows" if axes == 3 else b"longest"
    nodes = _bytes(1, _node("Gather", [b"table", b"input_ids"], b"rows"))
    if axes == 2:
        nodes += _bytes(1, _node("ArgMax", [b"rows"], b"picked"))
        nodes += _bytes(1, _node("Squeeze", [b"picked"], b"longest"))
    inputs = [_value(name, INT64, 2) for name in (b"input_ids", b"attention_mask")]
    tables = _bytes(5, table)
    outputs = _bytes(12, _value(result, FLOAT if axes == 3 else INT64, axes))
    if with_sum:
        second_axis = _number(1, 1) + _number(2, INT64) + _bytes(8, b"axis") + _bytes(9, np.int64(1).tobytes())
        tables += _bytes(5, second_axis)
        nodes += _bytes(1, _node("ReduceSum", [b"rows", b"axis"], b"sums"))
        nodes += _bytes(1, _node("Squeeze", [b"sums", b"axis"], b"sentence_embedding"))
        outputs += _bytes(12, _value(b"sentence_embedding", FLOAT, 2))
    graph = nodes + _bytes(2, b"tiny") + tables + b"".join(_bytes(11, value) for value in inputs) + outputs
    return _number(1, 8) + _bytes(7, graph) + _bytes(8, _bytes(1, b"") + _number(2, 13))


def _node(operator: str, inputs: list[bytes], output: bytes) -> bytes:
    return b"".join(_bytes(1, name) for name in inputs) + _bytes(2, output) + _bytes(4, operator.encode())


def _value(name: bytes, kind: int, axes: int) -> bytes:
    shape = b"".join(_bytes(1, _bytes(2, name + b"%d" % axis)) for axis in range(axes))
    return _bytes(1, name) + _bytes(2, _bytes(1, _number(1, kind) + _bytes(2, shape)))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
