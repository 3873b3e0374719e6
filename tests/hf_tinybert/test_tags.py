"""The CRF beside a tagger: n-grams by a plain loop, tags by a sum over all their sequences."""

import itertools

import pytest
import torch

from hf_tinybert import TinyBertForSequenceClassification, TinyBertForTokenClassification
from hf_tinybert.modeling_tinybert import CHAIN_ROUNDS, WINDOWS


BUCKETS, LABELS = 50_021, 3
TEXT = [2, 7, 8, 9, 3]


@pytest.fixture
def tagger(tiny_model):
    def make(**overrides):
        settings = {"num_labels": LABELS, "num_ngram_buckets": BUCKETS, **overrides}
        return tiny_model(TinyBertForTokenClassification, **settings)

    return make


def emissions_in_words(weight, ids):
    """What the n-grams of one text say of each of its tokens, spelled out."""
    rows = []
    for at in range(len(ids)):
        total = torch.zeros(LABELS)
        for number, places in enumerate(WINDOWS, start=1):
            value = number
            for place in places:
                inside = 0 <= at + place < len(ids)
                value = (value * 1_000_003 + (ids[at + place] + 1 if inside else 0)) % (2**31 - 1)
            total += weight[value % BUCKETS]
        rows.append(total)
    return torch.stack(rows)


def marginals(scores, transitions):
    """Log-probabilities of each tag of a linear-chain CRF, by a sum over all sequences."""
    length, labels = scores.shape
    total = torch.full((length, labels), -torch.inf)
    for tags in itertools.product(range(labels), repeat=length):
        score = sum(scores[at, tag] for at, tag in enumerate(tags))
        score = score + sum(transitions[one, two] for one, two in itertools.pairwise(tags))
        for at, tag in enumerate(tags):
            total[at, tag] = torch.logaddexp(total[at, tag], score)
    return total.log_softmax(dim=-1)


@torch.no_grad()
def test_logits_are_the_marginals_of_encoder_ngrams_and_transitions_together(tagger):
    model = tagger()
    model.crf.transitions.mul_(10)
    found = model(torch.tensor([TEXT])).logits[0].log_softmax(dim=-1)
    crf, model.crf = model.crf, None
    alone = model(torch.tensor([TEXT])).logits[0].log_softmax(dim=-1)

    exact = marginals(alone + emissions_in_words(crf.weight, TEXT), crf.transitions)

    torch.testing.assert_close(found, exact, atol=1e-4, rtol=1e-4)
    assert (alone - exact).abs().max() > 0.1  # the CRF does count


@torch.no_grad()
def test_a_tag_reaches_no_further_than_the_rounds(tagger):
    crf = tagger().crf
    crf.weight.zero_()
    crf.transitions.copy_(20 * torch.eye(LABELS))  # every tag as the one before
    length = CHAIN_ROUNDS + 2
    logits = torch.zeros(1, length, LABELS)
    logits[0, 0, 1] = 5.0

    tags = crf(logits, torch.full((1, length), 7), torch.ones(1, length, dtype=torch.bool)).softmax(dim=-1)[0]

    assert tags[CHAIN_ROUNDS, 1] > 0.9
    torch.testing.assert_close(tags[-1], torch.full((LABELS,), 1 / LABELS))


@torch.no_grad()
def test_a_label_that_cannot_follow_another_is_given_up(tagger):
    crf = tagger().crf
    crf.weight.zero_()
    crf.transitions.zero_()[0, 2] = -6.0  # as I- after O
    logits = torch.tensor([[[4.0, 0.0, 0.0], [0.0, 0.9, 1.0], [4.0, 0.0, 0.0]]])

    tags = crf(logits, torch.full((1, 3), 7), torch.ones(1, 3, dtype=torch.bool)).argmax(dim=-1)

    assert tags.tolist() == [[0, 1, 0]]


@torch.no_grad()
@pytest.mark.parametrize("left", [True, False])
def test_padding_and_the_other_texts_of_a_batch_change_nothing(tagger, left):
    model, texts = tagger(), [TEXT, [2, 10, 3], [2, 7, 7, 7, 7, 7, 3]]
    ids, mask = torch.zeros(3, 8, dtype=torch.long), torch.zeros(3, 8, dtype=torch.long)
    places = [slice(8 - len(text), 8) if left else slice(len(text)) for text in texts]
    for row, (text, place) in enumerate(zip(texts, places, strict=True)):
        ids[row, place], mask[row, place] = torch.tensor(text), 1
    together = model(ids, attention_mask=mask).logits
    for row, (text, place) in enumerate(zip(texts, places, strict=True)):
        alone = model(torch.tensor([text])).logits[0]
        torch.testing.assert_close(together[row, place], alone, atol=1e-4, rtol=1e-4)


def test_loss_reaches_encoder_ngrams_and_transitions(tagger):
    model = tagger().train()
    model(torch.tensor([TEXT]), labels=torch.tensor([[-100, 0, 1, 2, -100]])).loss.backward()
    for weight in (model.crf.weight, model.crf.transitions, model.classifier.weight):
        assert weight.grad.isfinite().all() and weight.grad.any()


@torch.no_grad()
def test_an_empty_crf_leaves_the_tags_to_the_encoder(tiny_config):
    config = tiny_config(num_labels=LABELS, num_ngram_buckets=BUCKETS)
    model, ids = TinyBertForTokenClassification(config).eval(), torch.tensor([TEXT])
    logits = model(ids).logits
    model.crf = None
    torch.testing.assert_close(logits.softmax(dim=-1), model(ids).logits.softmax(dim=-1))


def test_saved_tagger_loads_whole_and_another_head_without_a_word_of_the_crf(tagger, tmp_path, log):
    model, ids = tagger(), torch.tensor([TEXT])
    model.save_pretrained(tmp_path)

    loaded = TinyBertForTokenClassification.from_pretrained(tmp_path)
    other = TinyBertForSequenceClassification.from_pretrained(tmp_path, num_ngram_buckets=0)

    assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert other.ngrams is None
    assert "crf" not in log.text


def test_ids_are_needed(tagger):
    model = tagger()
    with pytest.raises(ValueError, match="give `input_ids`"):
        model(inputs_embeds=model.get_input_embeddings()(torch.tensor([TEXT])))
