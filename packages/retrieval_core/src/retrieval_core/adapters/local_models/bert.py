"""The base of the adapters that run a BERT-like model of one ONNX file, found and loaded when it is first used."""

from __future__ import annotations

import asyncio
import json
import logging
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

from retrieval_core.adapters.local_models.files import find_files
from retrieval_core.adapters.local_models.work import needing_extra
from retrieval_core.errors import MissingExtraError, ServiceConnectionError
from retrieval_core.run.caching import Lazy

if TYPE_CHECKING:
    from pathlib import Path

    from tokenizers import Tokenizer

    from retrieval_core.adapters.local_models.files import LocalModel, ModelFiles
    from retrieval_core.adapters.local_models.onnx import OnnxModel

logger = logging.getLogger("retrieval_core")

RETRY_SECONDS = 30.0
"""How long a failed download is not tried again: several threads and every query would each wait for it."""
MODEL = "model.onnx"
TOKENIZER = "tokenizer.json"


class RunsBert(ABC):
    """Finds a model and its tokenizer, and loads each with its first use, after a failure with the next.

    Args:
        needed_for: The purpose, for the error where the extra is missing.
        model: The model to find in the installed package or on the hub.
        files: Those of a configured folder, of this model or another, in place of that.
    """

    _role: ClassVar[str]
    """What the model is, as a line of the log begins."""

    def __init__(self, needed_for: str, model: LocalModel, files: ModelFiles | None) -> None:
        if files is not None and files.checksums != model.checksums:
            model = replace(model, name="custom", checksums=files.checksums)
        self._needed_for = needed_for
        self._found = model
        self._source = model.source if files is None else f"the folder {files.paths[MODEL].parent}"
        self._failed: tuple[float, ServiceConnectionError] | None = None
        self._files = Lazy(lambda: files or self._find_files(model))
        self._tokenizer = Lazy(self._load_tokenizer)
        self._onnx = Lazy(self._load_onnx)

    def preload(self) -> None:
        """Begin to load model and tokenizer, each in a thread; where that fails, the first text meets the failure.

        What runs the model is imported before this returns: imports at the same time only take turns, as does the
        tokenizer with them, while checksums and model let other threads run.
        """
        self._files.begin()
        with suppress(MissingExtraError):
            self._import_onnx()
            self._onnx.begin()
        self._tokenizer.begin()

    @property
    def model_source(self) -> str:
        """The name of the model and where its files come from, for people; nothing is loaded."""
        return f"{self._found.name} from {self._source}"

    @property
    def is_loaded(self) -> bool:
        """Whether the model is in memory."""
        return self._onnx.made is not None

    async def load(self) -> None:
        """Load model and tokenizer."""
        await asyncio.to_thread(lambda: (self._onnx.get(), self._tokenizer.get()))

    @property
    def loaded_bytes(self) -> int:
        """Bytes of the model's weights, where it is in memory; inference takes more while it runs."""
        model = self._onnx.made
        return 0 if model is None else model.file_bytes

    def _id_with(self, *settings: object) -> str:
        """Name the model, with a digest of its files and of what else its results depend on."""
        shown = json.dumps([*sorted(self._found.checksums.items()), *settings])
        return f"{self._found.name}@{sha256(shown.encode()).hexdigest()[:12]}"

    def _find_files(self, model: LocalModel) -> ModelFiles:
        if (failed := self._failed) is not None and monotonic() < failed[0]:
            raise _again(failed[1])
        logger.info("%s: %s", self._role, self.model_source)
        try:
            return find_files(model)
        except ServiceConnectionError as error:
            self._failed = (monotonic() + RETRY_SECONDS, error)
            raise

    @abstractmethod
    def _check_output(self, path: Path, size: int) -> None:
        """Refuse a model whose output has the wrong size."""

    def _load_tokenizer(self) -> Tokenizer:
        with needing_extra(self._found.extra, self._needed_for):
            from retrieval_core.adapters.local_models.tokens import load_tokenizer  # noqa: PLC0415 - loads tokenizers
        return load_tokenizer(self._files.get().paths[TOKENIZER])

    def _import_onnx(self) -> type[OnnxModel]:
        with needing_extra(self._found.extra, self._needed_for):
            from retrieval_core.adapters.local_models.onnx import OnnxModel  # noqa: PLC0415 - loads onnxruntime and numpy
        return OnnxModel

    def _load_onnx(self) -> OnnxModel:
        runs = self._import_onnx()
        path = self._files.get().paths[MODEL]
        model = runs(path)
        if model.output_size is not None:
            self._check_output(path, model.output_size)
        return model


def _again(error: ServiceConnectionError) -> ServiceConnectionError:
    """Return an error of its own for another thread that meets the same failure."""
    copy = ServiceConnectionError(str(error), error.service)
    copy.was_retried = error.was_retried
    return copy
