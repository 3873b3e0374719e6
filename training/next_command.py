"""What a verb ends with: the command to give next, to be pasted as it stands.

Words in capitals stand for what only the user knows.
"""

import dataclasses
import shlex


def as_command(verb: str, recipe: str | None = None, **fields) -> str:
    """`python -m training VERB [RECIPE] --field value ...`, in the words of a shell.

    Args:
        fields: True stands for an option alone, a list for several values; what is None or False is left out.
    """
    return shlex.join(["python", "-m", "training", verb, *([recipe] if recipe else []), *as_words(**fields)])


def as_words(**fields) -> list[str]:
    """`--field value ...`, word by word; the arguments are those of `as_command`."""
    words = []
    for name, value in fields.items():
        if value is True:
            words.append(f"--{name}")
        elif value is not None and value is not False:
            words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return words


def given(arguments) -> dict:
    """The fields of an argument class that differ from their defaults, those that hang on other fields included."""
    fields = dataclasses.fields(arguments)
    told = {field.name: getattr(arguments, field.name) for field in fields}
    told = {field.name: told[field.name] for field in fields if told[field.name] != field.default}
    open_fields = {field.name for field in fields if field.default is None}
    derived = type(arguments)(**{name: value for name, value in told.items() if name not in open_fields})
    return {name: value for name, value in told.items() if value != getattr(derived, name) or name not in open_fields}


def tell_next(verb: str, **fields):
    """Print the next command; the arguments are those of `as_command`."""
    print(f"Next: {as_command(verb, **fields)}", flush=True)
