"""Train a tokenizer: `python -m training tokenizer --train_files reviews.txt --output_dir runs/tokenizer`."""

import dataclasses
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerBase

from hf_tinybert import TinyBertTokenizer
from training import progress
from training.arguments import CorpusArguments, TokenizerArguments
from training.clock import say
from training.corpus import load_corpus
from training.errors import UserError
from training.loading import load_tokenizer
from training.next_command import given, tell_next
from training.run_folder import check_output_dir, publishing


PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SPACE = "\u2581"  # stands for a space in front of a word, as in SentencePiece
# Longest runs taken as one word. WordPiece gives up on more than 100, and its time grows with the square.
MAX_LETTERS = 50
MAX_IDEOGRAPHS = 16
MAX_PIECES = 1_000_000
ASCII = "".join(map(chr, range(33, 127))).lower()
DEFAULT_VOCAB_SIZE = {"characters": 8_000, "words": 20_000}
PIECE_FACTOR = 5  # a piece should be seen more than by accident: so many times as often as a character
UNKNOWN_SAMPLE_CHARACTERS = 1_000_000


def normalizer() -> normalizers.Normalizer:
    """The rules by which text is made alike before it is cut into tokens, in training and ever after.

    NFKC (full-width letters, digits and punctuation become half-width; compatibility ideographs their plain form),
    then lower case, then every run of control characters and white space one space. Accents and traditional
    characters stay as they are.
    """
    return normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(rf"[\s\p{{C}}{SPACE}]+"), SPACE),
            normalizers.Prepend(SPACE),
        ]
    )


def train_tokenizer(
    texts: Iterable[str],
    vocab_size: int | None = None,
    chinese_tokens: str = "characters",
    model_max_length: int = 512,
    vocabulary_limit: int | None = None,
) -> TinyBertTokenizer:
    """A tokenizer of characters and frequent pieces, which takes the longest piece that fits (WordPiece).

    A character that the vocabulary lacks becomes one `[UNK]` by itself: it never swallows the word or clause around
    it. Decoding gives back the spaces between words, and none beside Chinese. The vocabulary depends on the arguments
    alone.

    Args:
        texts: Documents; read twice.
        vocab_size: Number of tokens. `None`: every character seen often enough and the pieces seen more often still,
            up to a limit (8,000, with words 20,000); "often enough" is twice, and once more for every 2 million
            characters.
        chinese_tokens: `"characters"`: each ideograph is a token. `"words"`: frequent sequences of ideographs are
            tokens as well.
        model_max_length: Tokens at which `tokenizer(text)` cuts.
        vocabulary_limit: Another limit for `vocab_size=None`, if it is lower.

    Raises:
        UserError: If `vocab_size` is larger than the text supports, or too small for ASCII.
    """
    counts = _count_characters(texts)
    min_count = often_enough(counts.total()) if vocab_size is None else 1
    base_size = len(SPECIAL_TOKENS) + 1  # SPACE
    limit = DEFAULT_VOCAB_SIZE[chinese_tokens]
    if vocabulary_limit is not None:
        limit = min(limit, vocabulary_limit)
    budget = (limit if vocab_size is None else vocab_size) - base_size
    if budget < len(set(ASCII)):
        raise UserError(
            f"--vocab_size {vocab_size} is too small: ASCII alone takes {base_size + len(set(ASCII))} tokens"
        )
    alphabet = _choose_alphabet(counts, min_count, budget)
    words = _word_pattern(alphabet, chinese_tokens)
    min_pieces = PIECE_FACTOR * min_count if vocab_size is None else 2
    pieces = _learn_pieces(texts, alphabet, words, budget - len(alphabet), min_pieces)
    vocab = [*SPECIAL_TOKENS, SPACE, *alphabet, *pieces]
    if vocab_size is not None and len(vocab) < vocab_size:
        hint = ", or --chinese_tokens words" if chinese_tokens == "characters" else ""
        raise UserError(
            f"--vocab_size {vocab_size} is larger than the text supports: ask for {len(vocab)} or fewer{hint}, or "
            "give more text"
        )
    return _assemble(vocab, words, model_max_length)


def often_enough(characters: int) -> int:
    """How often a character must stand in a text of so many for the vocabulary to take it by itself."""
    return 2 + characters // 2_000_000


def _count_characters(texts: Iterable[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    rules = normalizer()
    for text in progress.track(texts, "counting characters", "documents"):
        counts.update(rules.normalize_str(text))
    del counts[SPACE]
    return counts


def _choose_alphabet(counts: Counter[str], min_count: int, number: int) -> list[str]:
    """The characters of the vocabulary: ASCII, so that no later text is at a loss, then by frequency."""
    frequent = sorted((char for char, count in counts.items() if count >= min_count), key=lambda c: (-counts[c], c))
    return sorted(list(dict.fromkeys([*ASCII, *frequent]))[:number])


def _word_pattern(alphabet: list[str], chinese_tokens: str) -> str:
    """What runs of characters are looked up in pieces, each with the space in front of it; all else stands alone.

    Only characters of the alphabet: an unknown one ends the run, and becomes an `[UNK]` by itself.
    """
    letters = [char for char in alphabet if _is_letter(char)]
    pattern = f"{SPACE}?{_character_class(letters)}{{1,{MAX_LETTERS}}}"
    ideographs = [char for char in alphabet if script_of(char) == "Han"]
    if chinese_tokens == "words" and ideographs:
        pattern += f"|{_character_class(ideographs)}{{1,{MAX_IDEOGRAPHS}}}"
    return pattern


def _is_letter(char: str) -> bool:
    """Whether runs of the character are written as words between spaces: letters, marks and digits, not ideographs."""
    return char.isdecimal() or (unicodedata.category(char)[0] in "LM" and script_of(char) != "Han")


def _character_class(chars: Iterable[str]) -> str:
    return "[" + "".join(f"\\x{{{ord(char):x}}}" for char in chars) + "]"


def _learn_pieces(texts: Iterable[str], alphabet: list[str], words: str, number: int, min_count: int) -> list[str]:
    """At most `number` pieces of more than one character, the most useful first, by byte-pair merges.

    Without a prefix for pieces inside a word, the trainer numbers its symbols by a sorted alphabet; with "##" it would
    number them in the order of a hash table, and break ties by that, differently in every run.
    """
    if number <= 0:
        return []
    number = min(number, MAX_PIECES)  # the trainer reserves memory for what it is asked for
    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizer()
    learner.pre_tokenizer = pre_tokenizers.Split(Regex(words), "removed", invert=True)
    symbols = [SPACE, *alphabet]
    trainer = trainers.BpeTrainer(
        vocab_size=len(symbols) + number,
        min_frequency=min_count,
        initial_alphabet=symbols,
        limit_alphabet=len(symbols),
        show_progress=False,
    )
    with progress.step("learning words", "documents", len(texts) if hasattr(texts, "__len__") else None) as step:
        learner.train_from_iterator(step.over(texts), trainer)
    learnt = sorted(learner.get_vocab().items(), key=lambda item: item[1])
    return [token for token, _ in learnt if len(token) > 1]


def _assemble(vocab: list[str], words: str, model_max_length: int) -> TinyBertTokenizer:
    backend = Tokenizer(
        models.WordPiece(
            {token: index for index, token in enumerate(vocab)},
            unk_token=UNK,
            continuing_subword_prefix="",
            max_input_chars_per_word=MAX_LETTERS + 1,
        )
    )
    backend.normalizer = normalizer()
    # A space is kept in front of words and opening brackets, and falls away beside Chinese and other punctuation.
    backend.pre_tokenizer = pre_tokenizers.Split(
        Regex(rf"{words}|{SPACE}(?=[(\[{{\"'])|[^{SPACE}]"), "removed", invert=True
    )
    backend.post_processor = processors.TemplateProcessing(
        single=f"{CLS} $A {SEP}",
        pair=f"{CLS} $A {SEP} $B {SEP}",
        special_tokens=[(CLS, vocab.index(CLS)), (SEP, vocab.index(SEP))],
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Fuse(),
            decoders.Replace(SPACE, " "),
            decoders.Strip(content=" ", left=1, right=0),
            decoders.Replace(Regex(r"(?<=\p{Han}) (?=\p{Han})"), ""),  # a space that a model may predict there
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


def load_masking_tokenizer(folder: str | Path, option: str = "--tokenizer") -> PreTrainedTokenizerBase:
    """The tokenizer of a folder, fit for masked language modelling.

    Args:
        option: How the user named the folder, for the message.

    Raises:
        UserError: If there is none, it lacks a special token, puts none around a text, or leaves ids out.
    """
    source = f"{option} {folder}"
    if not (Path(folder) / "tokenizer.json").is_file():
        what = "has no tokenizer.json" if Path(folder).is_dir() else "is no folder"
        raise UserError(f"{source} {what}; name a folder made by `python -m training tokenizer`")
    tokenizer = load_tokenizer(folder, option)
    missing = [name for name in ("pad", "unk", "cls", "sep", "mask") if getattr(tokenizer, f"{name}_token_id") is None]
    if missing:
        raise UserError(
            f"the tokenizer of {source} lacks special tokens: {', '.join(name + '_token' for name in missing)}"
        )
    ids = tokenizer("a")["input_ids"]
    if (ids[0], ids[-1]) != (tokenizer.cls_token_id, tokenizer.sep_token_id):
        raise UserError(
            f"the tokenizer of {source} does not put {tokenizer.cls_token} and {tokenizer.sep_token} around a text; "
            "give it a post-processor that does"
        )
    last_id = max(tokenizer.get_vocab().values())
    if last_id >= len(tokenizer):
        raise UserError(f"the tokenizer of {source} leaves ids out: {len(tokenizer)} tokens, the last of id {last_id}")
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
    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = True  # a typed "[UNK]" is text; every call of the tokenizer sets this as it needs
    for text in _sample(texts, UNKNOWN_SAMPLE_CHARACTERS):
        seen.update(text)
        encoding = backend.encode(text, add_special_tokens=False)
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
        yield text[:characters]
        characters -= len(text)


def describe_unknown(shares: dict[str, dict[str, int]]) -> str:
    """`unknown_share` as a line."""
    return ", ".join(f"{script} {share['unknown'] / share['characters']:.2%}" for script, share in shares.items())


def main(arguments: TokenizerArguments):
    """Carry out the verb `tokenizer`."""
    output_dir = check_output_dir(arguments.output_dir)
    corpus, report = load_corpus(arguments.train_files, arguments.dataset, arguments.text_column, arguments.encoding)
    for line in report.lines():
        say(line)
    tokenizer = train_tokenizer(corpus["text"], arguments.vocab_size, arguments.chinese_tokens)
    sample = list(_sample(corpus["text"], UNKNOWN_SAMPLE_CHARACTERS))
    characters = sum(map(len, sample))
    tokens = sum(map(len, tokenizer(sample, add_special_tokens=False, truncation=False, verbose=False)["input_ids"]))
    say(f"{len(tokenizer):,} tokens in the vocabulary; {characters / max(1, tokens):.2f} characters to a token")
    say(f"unknown to the tokenizer: {describe_unknown(unknown_share(sample, tokenizer))}")
    for text in sample[:3]:
        say(f"for example: {' '.join(tokenizer.tokenize(text[:40]))}")
    with publishing(output_dir) as staging:
        tokenizer.save_pretrained(staging)
    say(f"{output_dir} is ready")
    of_text = {field.name for field in dataclasses.fields(CorpusArguments)}
    text = {name: value for name, value in given(arguments).items() if name in of_text}
    tell_next("pretrain", **text, tokenizer=output_dir, output_dir=f"{output_dir}-encoder")
