"""Train a tokenizer: `python -m training tokenizer --train_files reviews.txt --output_dir runs/tokenizer`."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from hf_tinybert import TinyBertTokenizer
from training.arguments import TokenizerArguments
from training.clock import say
from training.corpus import load_corpus
from training.errors import UserError
from training.run_folder import check_output_dir, publishing


PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PREFIX = "##"  # of a piece that goes on with a word
WORD_START = "\u2581"  # stands before a word while pieces are learnt; NFKC text has it only if it was typed
# Longest run of letters taken as one word; WordPiece gives up on more than 100, and its time grows with the square.
MAX_WORD_LENGTH = 50
ASCII = "".join(map(chr, range(33, 127)))
MAX_DEFAULT_VOCAB_SIZE = 8000
UNKNOWN_SAMPLE_CHARACTERS = 1_000_000

HAN = r"\p{Han}\u3000-\u303f\uff00-\uffef"  # ideographs, and the punctuation and full-width forms set beside them
DECODED_SPACES = (
    rf"(?<=[{HAN}]) | (?=[{HAN}])",  # Chinese is written without spaces
    r" (?=[,.!?;:%)\]}'])|(?<=[(\[{']) ",  # English punctuation stands at its word
)


def normalizer() -> normalizers.Normalizer:
    """The rules by which text is made alike before it is cut into tokens, in training and ever after.

    NFKC (full-width letters, digits and punctuation become half-width; compatibility ideographs their plain form),
    then lower case, then every control character and run of white space one space. Accents and traditional
    characters stay as they are.
    """
    return normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"[\s\p{C}]+"), " "),
        ]
    )


def is_word_character(char: str) -> bool:
    """Whether runs of the character form words to be learnt in pieces: letters, marks and digits, but no ideographs."""
    return unicodedata.category(char)[0] in "LM" and not _is_ideograph(char) or char.isdecimal()


def _is_ideograph(char: str) -> bool:
    return script_of(char) == "Han"


def train_tokenizer(
    texts: Iterable[str], vocab_size: int | None = None, model_max_length: int = 512
) -> TinyBertTokenizer:
    """A WordPiece tokenizer in which every ideograph and punctuation mark is a token and words are cut into pieces.

    A character that the vocabulary lacks becomes one `[UNK]` by itself: it never swallows the word or clause around
    it. The vocabulary depends on `texts` and `vocab_size` alone.

    Args:
        texts: Documents; read twice.
        vocab_size: Number of tokens. `None`: every character seen often enough and the pieces seen more often still,
            at most 8,000; "often enough" is twice, and once more for every 2 million characters.
        model_max_length: Tokens at which `tokenizer(text)` cuts.

    Raises:
        UserError: If `vocab_size` is larger than the text supports, or too small for ASCII.
    """
    counts: Counter[str] = Counter()
    rules = normalizer()
    for text in texts:
        counts.update(rules.normalize_str(text))
    del counts[" "]
    min_count = 2 + counts.total() // 2_000_000
    budget = (vocab_size or MAX_DEFAULT_VOCAB_SIZE) - len(SPECIAL_TOKENS)
    alphabet = _choose_alphabet(counts, min_count if vocab_size is None else 2, budget)
    if any(char not in alphabet for char in ASCII.lower()):
        least = len(SPECIAL_TOKENS) + sum(_places(char) for char in set(ASCII.lower()))
        raise UserError(f"--vocab_size {vocab_size} is too small: ASCII alone takes {least} tokens")
    words = [char for char in alphabet if is_word_character(char)]
    base = [*alphabet, *(PREFIX + char for char in words)]
    # A piece of an unspaced script is a word of its own; one of a spaced script should be seen more than by accident.
    pieces = _learn_pieces(texts, words, budget - len(base), 2 if vocab_size else 5 * min_count)
    vocab = [*SPECIAL_TOKENS, *base, *pieces]
    if vocab_size is not None and len(vocab) < vocab_size:
        raise UserError(
            f"--vocab_size {vocab_size} is larger than the text supports: ask for {len(vocab)} or fewer, or give more "
            "text"
        )
    return _assemble(vocab, words, model_max_length)


def _places(char: str) -> int:
    """Tokens that a character takes: one, or two if it can go on with a word."""
    return 2 if is_word_character(char) else 1


def _choose_alphabet(counts: Counter[str], min_count: int, budget: int) -> list[str]:
    """The characters of the vocabulary: ASCII, so that no later text is at a loss, then by frequency."""
    frequent = sorted((char for char, count in counts.items() if count >= min_count), key=lambda c: (-counts[c], c))
    chosen: list[str] = []
    for char in dict.fromkeys([*ASCII.lower(), *frequent]):
        budget -= _places(char)
        if budget < 0:
            break
        chosen.append(char)
    return sorted(chosen)


def _learn_pieces(texts: Iterable[str], words: list[str], number: int, min_count: int) -> list[str]:
    """At most `number` pieces of more than one character, the most useful first.

    Byte-pair merges over words with a start mark in front, so that the numbers of symbols, by which the trainer
    breaks ties, are those of a sorted alphabet: with the trainer's own "##" they would change from run to run.
    """
    if number <= 0:
        return []
    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizer()
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(f"{_character_class(words)}{{2,{MAX_WORD_LENGTH}}}"), "removed", invert=True),
            pre_tokenizers.Metaspace(replacement=WORD_START, prepend_scheme="always", split=False),
        ]
    )
    alphabet = [*words, WORD_START]
    # Besides pieces, each letter may come up once merged with the start mark.
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + len(words) + number,
        min_frequency=min_count,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    learner.train_from_iterator(iter(texts), trainer)
    learnt = sorted(learner.get_vocab().items(), key=lambda item: item[1])
    pieces = [
        token.removeprefix(WORD_START) if token.startswith(WORD_START) else PREFIX + token
        for token, _ in learnt
        if len(token.removeprefix(WORD_START)) > 1
    ]
    return list(dict.fromkeys(pieces))[:number]


def _character_class(chars: Iterable[str]) -> str:
    return "[" + "".join(f"\\x{{{ord(char):x}}}" for char in chars) + "]"


def _assemble(vocab: list[str], words: list[str], model_max_length: int) -> TinyBertTokenizer:
    backend = Tokenizer(
        models.WordPiece(
            {token: index for index, token in enumerate(vocab)},
            unk_token=UNK,
            continuing_subword_prefix=PREFIX,
            max_input_chars_per_word=MAX_WORD_LENGTH,
        )
    )
    backend.normalizer = normalizer()
    # Runs of letters that the vocabulary has; any other character by itself; white space nowhere.
    backend.pre_tokenizer = pre_tokenizers.Split(
        Regex(f"{_character_class(words)}{{1,{MAX_WORD_LENGTH}}}|\\S"), "removed", invert=True
    )
    backend.post_processor = processors.TemplateProcessing(
        single=f"{CLS} $A {SEP}",
        pair=f"{CLS} $A {SEP} $B {SEP}",
        special_tokens=[(CLS, vocab.index(CLS)), (SEP, vocab.index(SEP))],
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.WordPiece(prefix=PREFIX, cleanup=False),
            decoders.Fuse(),
            *(decoders.Replace(Regex(spaces), "") for spaces in DECODED_SPACES),
        ]
    )
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    return TinyBertTokenizer(
        tokenizer_object=backend,
        pad_token=PAD,
        unk_token=UNK,
        cls_token=CLS,
        sep_token=SEP,
        mask_token=MASK,
        model_max_length=model_max_length,
        padding_side="right",
        clean_up_tokenization_spaces=False,
    )


def load_tokenizer(folder: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder.

    Raises:
        UserError: If there is none, or it lacks a special token that masked language modelling needs.
    """
    folder = Path(folder)
    if not (folder / "tokenizer.json").is_file():
        what = "has no tokenizer.json" if folder.is_dir() else "is no folder"
        raise UserError(f"the tokenizer {folder} {what}; name a folder made by `python -m training tokenizer`")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # the tokenizers library raises bare Exception on a damaged file
        raise UserError(f"the tokenizer {folder} cannot be read: {' '.join(str(error).split())}") from error
    missing = [name for name in ("pad", "unk", "cls", "sep", "mask") if getattr(tokenizer, f"{name}_token_id") is None]
    if missing:
        raise UserError(f"the tokenizer {folder} lacks special tokens: {', '.join(name + '_token' for name in missing)}")
    return tokenizer


SCRIPTS = (("CJK ", "Han"), ("HIRAGANA", "Kana"), ("KATAKANA", "Kana"), ("HANGUL", "Hangul"), ("LATIN", "Latin"))


def script_of(char: str) -> str:
    """Han, Kana, Hangul, Latin, digits, punctuation, or other (emoji and all else)."""
    category = unicodedata.category(char)
    if category[0] == "P":
        return "punctuation"
    if char.isdecimal():
        return "digits"
    if category[0] in "LN":
        name = unicodedata.name(char, "")
        return next((script for start, script in SCRIPTS if name.startswith(start)), "other")
    return "other"


def unknown_share(texts: Iterable[str], tokenizer: PreTrainedTokenizerBase) -> dict[str, dict[str, int]]:
    """Characters, and those among them that became `[UNK]`, by script; over the first million characters.

    Returns:
        Script: `{"characters": n, "unknown": k}`, the most frequent script first.
    """
    seen: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for text in _sample(texts, UNKNOWN_SAMPLE_CHARACTERS):
        seen.update(text)
        encoding = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
        for token_id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if token_id == tokenizer.unk_token_id:
                unknown.update(text[start:end])
    shares: dict[str, dict[str, int]] = {}
    for char, count in seen.items():
        if not char.isspace():
            share = shares.setdefault(script_of(char), {"characters": 0, "unknown": 0})
            share["characters"] += count
            share["unknown"] += unknown[char]
    return dict(sorted(shares.items(), key=lambda item: -item[1]["characters"]))


def _sample(texts: Iterable[str], characters: int) -> Iterator[str]:
    for text in texts:
        if characters <= 0:
            return
        characters -= len(text)
        yield text


def describe_unknown(shares: dict[str, dict[str, int]]) -> str:
    """`unknown_share` as a line."""
    return ", ".join(f"{script} {share['unknown'] / share['characters']:.2%}" for script, share in shares.items())


def main(arguments: TokenizerArguments):
    """Carry out the verb `tokenizer`."""
    output_dir = check_output_dir(arguments.output_dir)
    corpus, report = load_corpus(
        arguments.train_files, arguments.dataset, arguments.text_column, arguments.encoding
    )
    for line in report.lines():
        say(line)
    tokenizer = train_tokenizer(corpus["text"], arguments.vocab_size)
    characters = sum(map(len, _sample(corpus["text"], UNKNOWN_SAMPLE_CHARACTERS)))
    sample = list(_sample(corpus["text"], UNKNOWN_SAMPLE_CHARACTERS))
    tokens = sum(map(len, tokenizer(sample, add_special_tokens=False, truncation=False)["input_ids"]))
    say(f"{len(tokenizer):,} tokens in the vocabulary; {characters / max(1, tokens):.2f} characters to a token")
    say(f"unknown to the tokenizer: {describe_unknown(unknown_share(sample, tokenizer))}")
    for text in sample[:3]:
        say(f"for example: {' '.join(tokenizer.tokenize(text[:40]))}")
    with publishing(output_dir) as staging:
        tokenizer.save_pretrained(staging)
    say(f"{output_dir} is ready. Next: python -m training pretrain --tokenizer {output_dir} --train_files ... --output_dir ...")
