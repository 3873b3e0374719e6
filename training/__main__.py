"""`python -m training VERB [RECIPE.yaml] [--field value ...]`."""

import importlib
import sys

from training import arguments, clock
from training.errors import UserError
from training.interruption import Interrupted, heeding_signals


# verb: (its arguments, the module whose `main` carries it out), in the order in which they come in handy
VERBS = {
    "demo": (arguments.DemoArguments, "training.demo"),
    "tokenizer": (arguments.TokenizerArguments, "training.tokenizer"),
    "pretrain": (arguments.PretrainArguments, "training.pretrain"),
    "finetune": (arguments.FinetuneArguments, "training.finetune"),
    "evaluate": (arguments.EvaluateArguments, "training.evaluate"),
    "predict": (arguments.PredictArguments, "training.predict"),
    "explain": (arguments.ExplainArguments, "training.explain"),
    "validate": (arguments.ValidateArguments, "training.validate"),
    "export": (arguments.ExportArguments, "training.export"),
    "publish": (arguments.PublishArguments, "training.publish"),
    "bench": (arguments.BenchArguments, "training.bench"),
    "import": (arguments.ImportArguments, "training.import_reference"),
}


HEADINGS = {  # the verbs, by what they are for
    "try it": ("demo",),
    "from text to a model": ("tokenizer", "pretrain", "import"),
    "for a task of yours": ("finetune", "evaluate", "predict", "explain"),
    "for others to use": ("validate", "export", "publish"),
    "beside what others make": ("bench",),
}


def usage() -> str:
    """The verbs, a line each."""
    lines = ["usage: python -m training VERB [RECIPE.yaml] [--field value ...]"]
    for heading, verbs in HEADINGS.items():
        lines += ["", f"{heading}:", *(f"  {verb:<10} {VERBS[verb][0].__doc__}" for verb in verbs)]
    lines += ["", "example:"]
    lines += [f"  python -m training {verb} {VERBS[verb][0].EXAMPLE}" for verb in ("pretrain", "finetune")]
    lines += ["", "python -m training VERB --help lists the fields of a verb."]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Carry out one verb.

    Returns:
        The exit status: 0, 1 if a check of a model folder failed, 2 after a mistake of the user (one line on standard
        error), 130 after Ctrl-C, 143 after SIGTERM.
    """
    clock.start()
    argv = sys.argv[1:] if argv is None else argv
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that lacks a glyph shows its code, rather than failing
            stream.reconfigure(errors="backslashreplace")
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    verb, *rest = argv
    try:
        if verb not in VERBS:
            hint = arguments.did_you_mean(verb, VERBS)
            raise UserError(f"unknown verb {verb!r}{hint}; there are {', '.join(VERBS)}")
        arguments_class, module = VERBS[verb]
        parsed = arguments.parse_arguments(f"python -m training {verb}", arguments_class, rest)
        with heeding_signals():
            return importlib.import_module(module).main(parsed) or 0
    except UserError as error:
        line = "\\n".join(str(error).splitlines())  # also where a file name holds a newline
        print(f"python -m training {verb}: error: {line}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interruption:
        print(f"python -m training {verb}: {str(interruption) or 'interrupted'}", file=sys.stderr)
        return interruption.status if isinstance(interruption, Interrupted) else 130


if __name__ == "__main__":
    sys.exit(main())
