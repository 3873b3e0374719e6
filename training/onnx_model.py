"""ONNX files of a model folder: to answer with one, and to know whether it is that of the weights beside it."""

import hashlib
import importlib.util
import types
import typing
from pathlib import Path

from training.errors import UserError


if typing.TYPE_CHECKING:
    import torch

# Where Optimum and Transformers.js look.
ONNX_FOLDER = "onnx"
MODEL_FILE = "model.onnx"

SOURCE_KEY = "hf_tinybert.source"  # in a file's metadata: `fingerprint` of the folder that it was made from


class OnnxModel:
    """An ONNX file that answers as the torch model it comes from, also in a `predict.FineTuned`.

    Args:
        path: The file.
        config: Of the torch model.

    Raises:
        UserError: If the file is damaged.
    """

    training = False

    def __init__(self, path: str | Path, config):
        import onnxruntime
        import torch

        from training.loading import one_line

        options = onnxruntime.SessionOptions()
        # A batch has a core to itself, and `predict.forward` has as many at work as there are cores: a small model's
        # products are too short to share. Many texts are faster so by a quarter; one text is slower by a quarter on an
        # idle machine, and faster where other programs run.
        options.intra_op_num_threads = 1
        # Its kernel (1.32) takes four times as long as LayerNormalization and Add: 0.45 ms without it, 0.58 with it.
        slow = ["SkipLayerNormFusion"]
        try:
            self.session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"], disabled_optimizers=slow
            )
        except Exception as error:  # the library's exceptions share no other class
            raise UserError(
                f"{path} cannot be read: {one_line(error)}; make it anew by `python -m training export`, or delete it"
            ) from error
        self.config = config
        self.device = torch.device("cpu")
        self.output_names = [output.name for output in self.session.get_outputs()]

    def eval(self):
        return self

    def train(self, mode: bool):
        assert not mode, "an ONNX file does not learn"
        return self

    def __call__(self, input_ids: "torch.Tensor", attention_mask: "torch.Tensor", **ignored):
        """The outputs, float32, as attributes of the names that they have in torch."""
        import torch

        arrays = self.session.run(None, {"input_ids": input_ids.numpy(), "attention_mask": attention_mask.numpy()})
        return types.SimpleNamespace(**dict(zip(self.output_names, map(torch.from_numpy, arrays), strict=True)))


def fingerprint(folder: str | Path) -> str:
    """What tells a model from any other: the sha256 of its config and weights."""
    digest = hashlib.sha256()
    for path in [Path(folder) / "config.json", *sorted(Path(folder).glob("*.safetensors"))]:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def load_onnx(folder: str | Path, config) -> tuple[OnnxModel | None, str]:
    """The float32 ONNX file of a folder, if it can stand for the weights there, and a line about it.

    The int8 file is never taken: it answers a little otherwise than the model that was scored.

    Args:
        config: Of the model in the folder.

    Returns:
        `None` where there is no file, or where it must not be used; the line says why, and is empty for no file.

    Raises:
        UserError: If the file is damaged.
    """
    path = Path(folder) / ONNX_FOLDER / MODEL_FILE
    if not path.is_file():
        return None, ""
    if importlib.util.find_spec("onnxruntime") is None:
        return None, f"answered by torch, not by {path}: onnxruntime is missing; pip install 'hf-tinybert[onnx]'"
    model = OnnxModel(path, config)
    if model.session.get_modelmeta().custom_metadata_map.get(SOURCE_KEY) != fingerprint(folder):
        return None, (
            f"answered by torch, not by {path}, which was not made from the weights and config beside it; "
            f"`python -m training export --model {folder}` makes it anew"
        )
    return model, f"answered by {path}"
