"""Documents that are well formed and wrong: values of a wrong type, nested, huge or missing, made by Hypothesis."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.run import Child

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from([0, -1, 2**31, 2**63, 10**400]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = {
    "config": (
        {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 11, "n_positions": 8},
        {
            "model_type": "bert",
            "hidden_size": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 8,
            "vocab_size": 11,
            "id2label": {"0": "a"},
        },
        {
            "model_type": "vit",
            "hidden_size": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 8,
            "image_size": 8,
            "patch_size": 4,
        },
        {
            "model_type": "regard",
            "family": "gpt",
            "dim": 8,
            "heads": 2,
            "depth": 1,
            "ffn_dim": 8,
            "vocab_size": 11,
            "max_len": 8,
            "position": "rotary",
        },
    ),
    "generation": (
        {
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
            "bad_words_ids": [[3]],
            "max_length": 20,
            "num_beams": 2,
            "length_penalty": 1.0,
        },
    ),
    "coco": (
        {
            "images": [{"id": 1, "file_name": "a.png", "width": 7, "height": 5}],
            "annotations": [{"image_id": 1, "category_id": 3, "bbox": [1, 1, 3, 2.5]}],
            "categories": [{"id": 3, "name": "bird"}],
        },
    ),
    "attend": (
        {"words": ["the", "cat"], "queries": [[1, 0]], "keys": [[1, 0], [0, 1]], "values": [[1], [2]], "title": "t"},
    ),
    "tokenizer": (
        {
            "version": "1.0",
            "added_tokens": [{"id": 0, "content": "<pad>", "special": True}],
            "normalizer": {"type": "NFKC"},
            "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
        },
    ),
}


@pytest.fixture(scope="module")
def child():
    child = Child()
    yield child
    child.close()


@st.composite
def documents(draw, name):
    """A sound document with one to three of its values, at any depth, replaced or left out."""
    document = json.loads(json.dumps(draw(st.sampled_from(FIELDS[name]))))
    for _ in range(draw(st.integers(1, 3))):
        place = document
        key = draw(st.sampled_from(sorted(place)))
        while isinstance(place[key], dict | list) and place[key] and draw(st.booleans()):
            place = place[key]
            key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if draw(st.integers(0, 4)):
            place[key] = draw(VALUES)
        else:
            del place[key]
        if not document:
            break
    return json.dumps(document).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("name", FIELDS)
def test_wrong_values(name, child):
    kinds = set()

    @settings(max_examples=80, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(documents(name))
    def judged(data):
        kind, text = child.judge(name, data)
        kinds.add(kind)
        assert kind != "finding", text

    judged()
    assert "refused" in kinds


def varint(number):
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


def encoded(field):
    number, value = field
    if isinstance(value, list):
        value = b"".join(map(encoded, value))
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


NUMBERS = st.sampled_from([1, 2, 3, 4, 5, 35, 40, 41, 45])
MESSAGES = st.lists(
    st.tuples(
        NUMBERS,
        st.integers(0, 2**64 - 1)
        | st.binary(max_size=12)
        | st.lists(st.tuples(NUMBERS, st.integers(0, 300) | st.binary(max_size=9)), max_size=6),
    ),
    max_size=12,
)


def test_sentencepiece_messages(child):
    @settings(max_examples=80, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(MESSAGES)
    def judged(message):
        kind, text = child.judge("sentencepiece", b"".join(map(encoded, message)))
        assert kind != "finding", text

    judged()
