"""The local embedder beside the usual loop: the same model with padded batches of 32.

    python benchmarks/embedder.py [--passages N]

Each row is a fresh process. Prints the time from nothing to the first query, the time of a query, passages a second,
processor time a passage, peak memory, and how far the vectors of passages are from those of the passages alone
(1 - cosine, at worst): an int8 model scales its activations over the batch, so neighbours change a vector.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import subprocess
import sys
import time
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

BATCH = 32
TEXT = (
    "the of flow a pressure boundary layer heat in transfer wing is velocity for index to document returns when each "
    "parameter value configuration server and error request timeout default called with passage question answer source"
)


class Contender(Protocol):
    """Something that embeds."""

    def query(self, text: str) -> Any:
        """Return one vector."""
        ...

    def passages(self, texts: Sequence[str]) -> Any:
        """Return a matrix."""
        ...


class Ours:
    """The library's embedder."""

    def __init__(self, threads: int) -> None:
        from retrieval_core.adapters.embedders.local import LocalEmbedder

        self._embedder = LocalEmbedder(threads=threads)

    def query(self, text: str) -> Any:
        """Return one vector."""
        return asyncio.run(self._embedder.embed_query(text))

    def passages(self, texts: Sequence[str]) -> Any:
        """Return a matrix."""
        return asyncio.run(self._embedder.embed_texts(texts))


class Batches:
    """The loop that most programs have: padded batches, as many threads inside the model as there are."""

    def __init__(self, threads: int) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        from retrieval_core.adapters.embedders.local import BGE_SMALL_EN
        from retrieval_core.adapters.local_models.files import find_files

        runtime: Any = onnxruntime
        files = find_files(BGE_SMALL_EN.files)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        path = str(files.paths["model.onnx"])
        self._session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._tokenizer: Any = Tokenizer.from_file(str(files.paths["tokenizer.json"]))
        self._tokenizer.enable_truncation(512)
        self._tokenizer.enable_padding()
        self._prefix = BGE_SMALL_EN.query_prefix

    def query(self, text: str) -> Any:
        """Return one vector."""
        return self._embed([self._prefix + text])[0]

    def passages(self, texts: Sequence[str]) -> Any:
        """Return a matrix."""
        import numpy as np

        return np.concatenate([self._embed(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)])

    def _embed(self, texts: Sequence[str]) -> Any:
        import numpy as np

        encodings = self._tokenizer.encode_batch(list(texts))
        ids = np.array([encoding.ids for encoding in encodings], dtype=np.int64)
        mask = np.array([encoding.attention_mask for encoding in encodings], dtype=np.int64)
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        first = self._session.run(None, feed)[0][:, 0]
        return first / np.linalg.norm(first, axis=1, keepdims=True)


CONTENDERS = {"retrieval-core": Ours, "batches of 32": Batches}


def make_passages(count: int) -> list[str]:
    """Return passages of 20 to 400 words, 120 in the middle; the same ones each time."""
    chance = random.Random(0)
    lengths = [min(400, max(20, int(chance.lognormvariate(4.8, 0.5)))) for _ in range(count)]
    return [" ".join(chance.choices(TEXT.split(), k=length)) for length in lengths]


def measure(name: str, threads: int, count: int) -> dict[str, float]:
    """Return the figures of one contender, measured in this process."""
    started = time.perf_counter()
    contender: Contender = CONTENDERS[name](threads)
    contender.query("how fast is the first query?")
    load = time.perf_counter() - started

    def one_query(number: int) -> float:
        before = time.perf_counter()
        contender.query(f"what is the pressure at the boundary layer of wing {number}?")
        return time.perf_counter() - before

    query = median(one_query(number) for number in range(50))
    texts = make_passages(count)
    wall, cpu = time.perf_counter(), time.process_time()
    together = contender.passages(texts)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    drift = max(
        1 - float(contender.passages([text])[0] @ row) for text, row in zip(texts[:BATCH], together, strict=False)
    )
    return {
        "load": load,
        "query": query * 1000,
        "rate": count / wall,
        "cpu": cpu / count * 1000,
        "peak": peak,
        "drift": drift,
    }


def main() -> None:
    """Measure each contender in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(description="The local embedder beside padded batches.")
    parser.add_argument("--passages", type=int, default=128, help="how many to embed (default 128)")
    parser.add_argument("--only", nargs=2, metavar=("NAME", "THREADS"), help="print one row as JSON")
    arguments = parser.parse_args()
    if arguments.only:
        name, threads = arguments.only
        print(json.dumps(measure(name, int(threads), arguments.passages)))
        return
    head = ("threads", "load s", "ms/query", "passages/s", "CPU ms/passage", "peak MB", "drift")
    print(f"{'':<16}" + "".join(f"{title:>16}" for title in head))
    for threads in (1, 2):
        for name in CONTENDERS:
            command = [sys.executable, __file__, "--passages", str(arguments.passages), "--only", name, str(threads)]
            row = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
            print(
                f"{name:<16}{threads:>16}{row['load']:>16.2f}{row['query']:>16.2f}{row['rate']:>16.1f}"
                f"{row['cpu']:>16.1f}{row['peak']:>16.0f}{row['drift']:>16.4f}"
            )


if __name__ == "__main__":
    main()
