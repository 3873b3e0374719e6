"""Which tests of transformers' suite are skipped, and why that is right. A skip for any other reason is a failure."""

import re


# The suite's own words, as a pattern -> why the test says nothing about our classes.
SKIPS = {
    r"test requires (accelerator|multiple accelerators|CUDA|MPS)": "run on a CPU",
    r"test requires Flash Attention( \d)?": "run on a CPU; the flash kernels need a GPU",
    r"test requires (deepspeed|the kernels library)": "not installed: neither is needed for models this small",
    r"test is slow": "one test, the compilation for training, which needs an accelerator too",
    r"No conversion found for .*": "checkpoints have one layout, and no other is converted to it",
    r"\w+ (class )?has no _keep_in_fp32_modules n?or \w+ attribute defined": "no such modules",
    r"No `_keep_in_fp32_modules_strict` defined": "no such modules",
    r"\w+ does not support grouped_mm": "there are no experts",
    r"This model has no (sparse experts\.|`output_router_logits` in its config\.)": "there are no experts",
    r"TinyBertModel does not support SDPA": "said of composite models; ours is compared in test_eager_and_sdpa_agree",
    r"This model is not composite|Model is not a composite model\.": "one encoder",
    r"No subconfigs so the test does not make sense": "one encoder",
    r"No (sequence-to-sequence|decoder-only) language modeling head to check": "bidirectional",
    r"Do not take a cache as input to forward": "bidirectional, without a cache",
    r"Model does not support sliding window mask": "every token sees every other",
    r"This model does not (have RoPE|support RoPE scaling)": "rotary positions here have a constant base, unscaled",
    r".* has no axial RoPE layer defined\.": "rotary positions here have a constant base, unscaled",
    r"Model does not have position embeddings": "no method resizes them: max_position_embeddings is fixed",
    r"Not a prioritized model for now\.": "older versions go by the year in the file; newer ones run it here",
    r"Model does not have a TP plan\.": "too small to be split over devices",
}


def why(reason: str) -> str | None:
    """Why a skip of the suite is right, or `None` if nobody has judged it."""
    return next((text for pattern, text in SKIPS.items() if re.fullmatch(pattern, reason)), None)
