"""What can be told about a model folder from its files, without running anything that lies in it."""

import hashlib
import json
import math
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import hf_tinybert
from hf_tinybert import TinyBertConfig
from hf_tinybert.configuration_tinybert import AUTO_MAP
from training.card_facts import LANGUAGE
from training.run_folder import CARD_FILE, RESULTS_FILE, TASK_FILE
from training.scan import find_private
from training.stranger import Check, CheckError, Head, SkipError, head_of, require, run_check, skip


REQUIRED = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", CARD_FILE)
CODE = tuple(sorted({f"{reference.partition('.')[0]}.py" for reference in AUTO_MAP.values()}))
OPTIONAL = re.compile(
    r"eval_results\.json|task\.json|loss_curve\.png|pictures/[\w-]+\.png|generation_config\.json|"
    r"special_tokens_map\.json|added_tokens\.json|vocab\.(txt|json)|merges\.txt|LICENSE(\.\w+)?|\.gitattributes|"
    r"\.cache/huggingface/.*|"  # left by a download, ignored by an upload
    r"onnx/[\w.-]+\.onnx([._]data)?"
)
# Formats that run code when read, or that belong to training alone; training_args.bin may hold a token in clear.
NOT_PUBLISHED = re.compile(
    r".*\.(bin|pt|pth|pkl|pickle|ckpt|npz|npy|h5|msgpack|joblib)|(training_args|optimizer|scheduler|scaler|rng_state|"
    r"trainer_state)[^/]*"
)
VOCABULARY_KEY = "vocabulary_sha256"  # in eval_results.json
TASK_ENDINGS = {
    "masked-lm": "ForMaskedLM",
    "sequence-classification": "ForSequenceClassification",
    "token-classification": "ForTokenClassification",
    "question-answering": "ForQuestionAnswering",
}
SPECIAL_TOKENS = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")
# Without these a load can well succeed, so what follows is tried all the same.
HARMLESS = ("safetensors only", "nothing else", "vocabulary", "card", "results", "private")


def static_checks(folder: str | Path) -> list[Check]:
    """Check the files of a folder; each check is a line, whatever the others found.

    Args:
        folder: In Hub format. Folders of models that transformers has built in are welcome; what concerns our own code
            is skipped there.
    """
    contents = _Folder(Path(folder))
    return [run_check(name, check, contents) for name, check in _CHECKS.items()]


def failed_to_load(checks: list[Check]) -> str | None:
    """The first failed check after which loading makes no sense, or would run code that nobody has read."""
    return next((check.name for check in checks if check.passed is False and check.name not in HARMLESS), None)


def vocabulary_sha256(vocabulary: dict[str, int]) -> str:
    """What a vocabulary is told by: written into the results when a model is trained, compared when it is checked."""
    return hashlib.sha256(json.dumps(sorted(vocabulary.items())).encode("utf-8")).hexdigest()


class _Folder:
    """What several checks read. A part that does not read raises `SkipError`: the check of that part says why."""

    def __init__(self, path: Path):
        self.path = path

    def needed(self, check: str, read: Callable):
        """What `read` gives, where the check of that name passes."""
        try:
            return read()
        except SkipError:
            raise
        except Exception as error:  # told by the check that is named
            raise SkipError(f"after the failure of: {check}") from error

    def file(self, name: str) -> Path:
        """A file that a check reads; that it is missing is told once, by the check of the files."""
        if not (self.path / name).is_file():
            raise SkipError("after the failure of: files")
        return self.path / name

    @property
    def own(self) -> bool:
        """Whether this is a model of ours; where nothing says otherwise it should be."""
        path = self.path / "config.json"
        try:
            return _read_object(path).get("model_type", TinyBertConfig.model_type) == TinyBertConfig.model_type
        except (OSError, ValueError, CheckError):
            return True

    @cached_property
    def config_json(self) -> dict:
        return self.needed("config", lambda: _read_object(self.file("config.json")))

    @cached_property
    def config(self):
        return self.needed("config", lambda: _config(self))

    @cached_property
    def architecture(self) -> str:
        self.needed("architectures", lambda: _check_architectures(self))
        return self.config_json["architectures"][0]

    @cached_property
    def header(self) -> dict[str, dict]:
        """Name to dtype, shape and offsets, of each tensor in the file."""
        return self.needed("weights file", lambda: _read_header(self.file("model.safetensors"))[0])

    @cached_property
    def model(self):
        """The empty model that the weights must fill."""
        return self.needed("architectures", lambda: _empty_model(self.config, self.architecture))

    @cached_property
    def tokenizer(self):
        from tokenizers import Tokenizer

        read = lambda: Tokenizer.from_file(str(self.file("tokenizer.json")))  # noqa: E731
        return self.needed("tokenizer", read)

    @cached_property
    def results(self) -> dict:
        if not (self.path / RESULTS_FILE).is_file():
            skip(f"no {RESULTS_FILE}")
        return self.needed("results", lambda: _read_object(self.path / RESULTS_FILE))


def _read_object(path: Path) -> dict:
    """A JSON object, strictly: NaN and Infinity, which Python writes and others refuse, are faults."""

    def refuse(constant: str):
        raise CheckError(f"{path.name} holds {constant}, which is not JSON")

    content = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    require(isinstance(content, dict), f"{path.name} must hold an object, not a {type(content).__name__}")
    return content


def _some(names, limit: int = 4) -> str:
    names = list(names)
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def _check_files(folder: _Folder) -> str:
    wanted = (*REQUIRED, *(CODE if folder.own else ()))
    missing = [name for name in wanted if not (folder.path / name).is_file()]
    require(not missing, f"missing: {_some(missing)}")
    return f"{len(wanted)} of {len(wanted)} there"


def _relative_files(folder: _Folder) -> list[str]:
    """Files below the folder, and empty folders, by their names in it."""
    paths = [path for path in folder.path.rglob("*") if not path.is_dir() or not any(path.iterdir())]
    return sorted(path.relative_to(folder.path).as_posix() for path in paths)


def _not_published(name: str) -> bool:
    return NOT_PUBLISHED.fullmatch(name.rpartition("/")[2]) is not None


def _check_format(folder: _Folder) -> str:
    names = _relative_files(folder)
    wrong = [name for name in names if _not_published(name)]
    require(not wrong, f"not to be published: {_some(wrong)}")
    return f"no pickle and nothing of the training among {len(names)} files"


def _check_nothing_else(folder: _Folder) -> str:
    known = (*REQUIRED, *(CODE if folder.own else ()))
    names = [name for name in _relative_files(folder) if not _not_published(name)]  # told by the check before
    strange = [name for name in names if name not in known and not OPTIONAL.fullmatch(name)]
    require(not strange, f"unknown or hidden: {_some(strange)}")
    return f"{len(names)} files, each known"


def _config(folder: _Folder):
    from transformers import AutoConfig

    content = _read_object(folder.file("config.json"))
    if folder.own:  # the file may lie where its code is not allowed to run
        return TinyBertConfig.from_dict(content)
    return AutoConfig.from_pretrained(folder.path)


def _check_config(folder: _Folder) -> str:
    config = _config(folder)
    labels, named = config.num_labels, len(config.id2label)
    require(labels == named, f"{labels} labels, but {named} names for them")
    require(config.label2id == {v: k for k, v in config.id2label.items()}, "label2id does not answer id2label")
    return (
        f"{config.model_type}: {config.num_hidden_layers} layers, {config.hidden_size} hidden, "
        f"{config.vocab_size:,} token ids"
    )


def _model_class(name: str) -> type | None:
    import transformers

    return getattr(hf_tinybert, name, None) or getattr(transformers, name, None)


def _empty_model(config, architecture: str):
    import torch

    model_class = _model_class(architecture)
    assert model_class is not None  # checked with the architectures
    with torch.device("meta"):
        return model_class(config)


def _check_architectures(folder: _Folder) -> str:
    names = folder.config_json.get("architectures")
    require(isinstance(names, list) and len(names) == 1, f"architectures is {names!r}, but must name one class")
    name = names[0]
    known = [reference.partition(".")[2] for key, reference in AUTO_MAP.items() if key != "AutoConfig"]
    if folder.own:
        require(name in known, f"architectures names {name!r}, which is none of {', '.join(known)}")
    require(_model_class(name) is not None and head_of(name) is not None, f"no class {name!r} that we know")
    model = _empty_model(folder.config, name)
    prefix = f"{model.base_model_prefix}."
    ours, theirs = (
        {key.partition(".")[0] for key in keys if not key.startswith(prefix)}
        for keys in (model.state_dict(), folder.header)
    )
    if name.endswith("Model"):  # the encoder itself, whose weights go without its prefix
        require(not any(key.startswith(prefix) for key in folder.header), f"{name}, but the weights have a head")
    else:
        heads = [", ".join(sorted(names)) or "no head" for names in (ours, theirs)]
        require(ours == theirs, f"{name} has {heads[0]}, but the weights have {heads[1]}")
    task = _task(folder)
    ending = TASK_ENDINGS.get(task or "")
    require(ending is None or name.endswith(ending), f"{name}, but it was trained for {task}")
    return f"{name}, which the weights fit" + (f", and the task {task}" if ending else "")


def _task(folder: _Folder) -> str | None:
    """What the files that training left say the model is for."""
    for file in (TASK_FILE, RESULTS_FILE):
        try:
            return str(_read_object(folder.path / file)["task"])
        except (OSError, ValueError, KeyError, CheckError):  # absent, or told by the check of the results
            continue
    return None


def _check_auto_map(folder: _Folder) -> str:
    if not folder.own:
        skip(f"{folder.config_json['model_type']} is built into transformers")
    auto_map = folder.config_json.get("auto_map") or {}
    missing = [key for key in AUTO_MAP if key not in auto_map]
    require(not missing, f"missing: {_some(missing)}")
    wrong = [f"{key}: {auto_map[key]}" for key, reference in AUTO_MAP.items() if auto_map[key] != reference]
    require(not wrong, f"wrong: {_some(wrong)}")
    return f"{len(AUTO_MAP)} of {len(AUTO_MAP)} entries"


def _check_code(folder: _Folder) -> str:
    if not folder.own:
        skip(f"{folder.config_json['model_type']} is built into transformers")
    package = Path(hf_tinybert.__file__).parent
    present = [name for name in CODE if (folder.path / name).is_file()]
    if not present:
        skip("after the failure of: files")
    changed = [name for name in present if (folder.path / name).read_bytes() != (package / name).read_bytes()]
    require(not changed, f"not the file of hf_tinybert {hf_tinybert.__version__}: {_some(changed)}")
    return f"{len(present)} files, byte for byte those of hf_tinybert {hf_tinybert.__version__}"


def _read_header(path: Path) -> tuple[dict[str, dict], int]:
    """The tensors that a safetensors file promises, and the size that it must have."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        require(8 + length <= size, f"{size:,} bytes, fewer than its header alone ({8 + length:,})")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return header, 8 + length + max((tensor["data_offsets"][1] for tensor in header.values()), default=0)


def _check_weights_file(folder: _Folder) -> str:
    from safetensors import safe_open

    path = folder.file("model.safetensors")
    header, wanted = _read_header(path)
    size = path.stat().st_size
    require(size == wanted, f"{size:,} bytes, but its header promises {wanted:,}")
    with safe_open(path, framework="pt") as weights:
        diverged = [name for name in header if not weights.get_tensor(name).isfinite().all()]
    require(not diverged, f"NaN or infinite numbers in {_some(diverged)}")
    return f"{len(header)} tensors, {size:,} bytes as its header says, every number finite"


def _check_weights(folder: _Folder) -> str:
    model, header = folder.model, folder.header
    tied = model.all_tied_weights_keys
    wanted = {name: list(tensor.shape) for name, tensor in model.state_dict().items() if name not in tied}
    missing = [name for name in wanted if name not in header]
    left_over = [name for name in header if name not in wanted and name not in tied]
    other = [
        f"{name} {header[name]['shape']} for {shape}"
        for name, shape in wanted.items()
        if name in header and header[name]["shape"] != shape
    ]
    problems = [("missing", missing), ("left over", left_over), ("of another shape", other)]
    found = "; ".join(f"{what}: {_some(names)}" for what, names in problems if names)
    require(not found, found)
    return f"{len(wanted)} weights, {sum(map(math.prod, wanted.values())):,} numbers; none missing, none left over"


def _check_tie(folder: _Folder) -> str:
    model = folder.model
    if model.get_output_embeddings() is None:
        skip(f"{folder.architecture} has no decoder")
    twice = [name for name in model.all_tied_weights_keys if name in folder.header]
    require(not twice, f"tie_word_embeddings is true, but the file has a copy of its own: {_some(twice)}")
    wanted = bool(folder.config.tie_word_embeddings)
    return f"tie_word_embeddings is {str(wanted).lower()}, the decoder is saved {'once' if wanted else 'by itself'}"


def _check_tokenizer(folder: _Folder) -> str:
    from tokenizers import Tokenizer

    vocabulary = Tokenizer.from_file(str(folder.file("tokenizer.json"))).get_vocab()
    highest, vocab_size = max(vocabulary.values()), folder.config.vocab_size
    require(highest < vocab_size, f"token ids up to {highest:,}, but the model embeds {vocab_size:,}")
    return f"{len(vocabulary):,} tokens for {vocab_size:,} embeddings"


def _check_vocabulary(folder: _Folder) -> str:
    trained = folder.results.get(VOCABULARY_KEY)
    if trained is None:
        skip(f"{RESULTS_FILE} does not say which one the model was trained with")
    folder.needed("tokenizer", lambda: _check_tokenizer(folder))  # one that does not fit has been told
    found = vocabulary_sha256(folder.tokenizer.get_vocab())
    require(found == trained, f"sha256 {found[:8]}..., but the model was trained with {trained[:8]}...")
    return f"sha256 {found[:8]}..., the one that the model was trained with"


def _check_special_tokens(folder: _Folder) -> str:
    settings, ids = _read_object(folder.file("tokenizer_config.json")), {}
    for part in SPECIAL_TOKENS:
        token = settings.get(f"{part}_token")
        token = token.get("content") if isinstance(token, dict) else token
        if token is not None:
            ids[part] = folder.tokenizer.token_to_id(token)
            require(ids[part] is not None, f"{part}_token is {token!r}, which the vocabulary lacks")
    for part in SPECIAL_TOKENS:
        wanted = getattr(folder.config, f"{part}_token_id", None)
        if wanted is not None or (part == "pad" and folder.own):
            require(
                ids.get(part) == wanted, f"{part}_token_id: {wanted} in the config, {ids.get(part)} in the tokenizer"
            )
    return ", ".join(f"[{part}] {index}" for part, index in ids.items()) or "none"


def _check_longest_input(folder: _Folder) -> str:
    longest = _read_object(folder.file("tokenizer_config.json")).get("model_max_length", math.inf)
    positions = getattr(folder.config, "max_position_embeddings", math.inf)
    require(longest <= positions, f"the tokenizer cuts at {longest:g} tokens, but the model takes {positions:g}")
    return f"the tokenizer cuts at {longest:g} tokens, the model takes {positions:g}"


def _check_card(folder: _Folder) -> str:
    from huggingface_hub import ModelCard

    data = ModelCard(folder.file(CARD_FILE).read_text(encoding="utf-8")).data  # raises on a bad model-index
    require(data.library_name == "transformers", f"library_name is {data.library_name!r}, but must be 'transformers'")
    _check_pipeline_tag(data.pipeline_tag, head_of((folder.config_json.get("architectures") or [""])[0]))
    tags = data.tags or []
    if folder.own:
        lacking = [tag for tag in (TinyBertConfig.model_type, "custom_code") if tag not in tags]
        require(not lacking, f"tags lack {', '.join(lacking)}")
    languages = [data.language] if isinstance(data.language, str) else data.language or []
    wrong = [str(language) for language in languages if not LANGUAGE.fullmatch(str(language))]
    require(not wrong, f"language {_some(wrong)} is no code such as zh or en")
    facts = [f"language {', '.join(languages)}"] if languages else []
    facts += [f"{len(data.eval_results)} results"] if data.eval_results else []
    return ", ".join([f"pipeline_tag {data.pipeline_tag}", f"{len(tags)} tags", *facts])


def _check_pipeline_tag(tag: str | None, head: Head | None):
    if head is not None and head.pipelines[0] != "feature-extraction":  # for the others there is no rule
        require(tag == head.pipelines[0], f"pipeline_tag is {tag!r}, but the class is one for {head.pipelines[0]!r}")


def _check_results(folder: _Folder) -> str:
    found = [name for name in (RESULTS_FILE, TASK_FILE) if (folder.path / name).is_file()]
    if not found:
        skip(f"no {RESULTS_FILE}")
    return ", ".join(f"{name}: {len(_read_object(folder.path / name))} entries" for name in found)


def _check_private(folder: _Folder) -> str:
    findings = find_private(folder.path)
    require(not findings, _some(map(str, findings), limit=3))
    return f"no path of a machine and no token in {len(_relative_files(folder))} files"


_CHECKS: dict[str, Callable[[_Folder], str]] = {
    "files": _check_files,
    "safetensors only": _check_format,
    "nothing else": _check_nothing_else,
    "config": _check_config,
    "architectures": _check_architectures,
    "auto_map": _check_auto_map,
    "code": _check_code,
    "weights file": _check_weights_file,
    "weights": _check_weights,
    "tie": _check_tie,
    "tokenizer": _check_tokenizer,
    "vocabulary": _check_vocabulary,
    "special tokens": _check_special_tokens,
    "longest input": _check_longest_input,
    "card": _check_card,
    "results": _check_results,
    "private": _check_private,
}
