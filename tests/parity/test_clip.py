"""Against Hugging Face's CLIP: vectors of pictures and texts and how alike they are; and the way back."""

import json

import pytest
import torch

from regard.data.sets.batches import Batch
from regard.hub import export_model, load_model
from regard.inside.capture.weights import look
from regard.models import CLIP, CLIPConfig
from regard.objectives.contrastive import image_text_contrast
from tests.parity.peers import CLOSE, change_config, far, random_model, saved

transformers = pytest.importorskip("transformers")

VOCAB, PAD, BOS, EOS = 97, 1, 3, 5
PICTURES = dict(
    hidden_size=20, num_attention_heads=2, num_hidden_layers=3, intermediate_size=31, image_size=23, patch_size=5,
    num_channels=2,
)  # fmt: skip
TEXTS = dict(
    hidden_size=21, num_attention_heads=3, num_hidden_layers=2, intermediate_size=37, max_position_embeddings=13,
    vocab_size=VOCAB, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS,
)  # fmt: skip


def theirs_of(both=None, text=None, **pictures):
    both = both or {}
    config = transformers.CLIPConfig(
        text_config=TEXTS | both | (text or {}), vision_config=PICTURES | both | pictures, projection_dim=11
    )
    return random_model(transformers.CLIPModel, config)


def given(rows=23, columns=23, end=EOS, padding=PAD):
    """Five pictures, and seven texts of unequal length that end with a mark and are then padded."""
    generator = torch.Generator().manual_seed(5)
    pixels = torch.randn(5, 2, rows, columns, generator=generator)
    lengths = torch.tensor([4, 13, 7, 2, 11, 5, 3])
    ids = torch.randint(6, 80, (7, 13), generator=generator)
    ids[:, 0] = BOS
    ids[torch.arange(7), lengths - 1] = end
    return pixels, ids.masked_fill(torch.arange(13) >= lengths[:, None], padding), lengths


@torch.no_grad()
def check(ours, theirs, pixels, ids, lengths, **how):
    attention = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
    told = theirs(input_ids=ids, pixel_values=pixels, attention_mask=attention, **how)
    assert far(ours.embed(pixels), theirs.get_image_features(pixel_values=pixels, **how).pooler_output) <= CLOSE
    wanted = theirs.get_text_features(input_ids=ids, attention_mask=attention).pooler_output
    assert far(ours.embed_text(ids, lengths), wanted) <= CLOSE
    assert far(ours(pixels, ids, lengths), told.logits_per_image) <= CLOSE
    states, mask = ours.text(ids), attention.bool()
    assert far(states[mask], told.text_model_output.last_hidden_state[mask]) <= CLOSE


def test_there_and_back(tmp_path):
    theirs = theirs_of()
    ours = saved(theirs, tmp_path / "theirs")
    check(ours, theirs, *given())

    export_model(ours, tmp_path / "ours", bos=BOS, eos=EOS, pad=PAD)
    again, info = transformers.AutoModel.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    assert type(again) is transformers.CLIPModel
    assert again.config.text_config.eos_token_id == EOS and again.config.text_config.pad_token_id == PAD
    check(ours, again.eval(), *given())
    assert load_model(tmp_path / "ours").config == ours.config


@pytest.mark.parametrize(
    "changes",
    [
        dict(both=dict(hidden_act="gelu", layer_norm_eps=1e-3)),
        dict(text=dict(eos_token_id=96, pad_token_id=96)),
        dict(text=dict(eos_token_id=2)),
    ],
)
def test_other_settings(tmp_path, changes):
    """Published models pad with the end of text; old files say that it is 2, and mean the largest id."""
    theirs = theirs_of(**changes)
    end = EOS if "both" in changes else 96
    check(saved(theirs, tmp_path), theirs, *given(end=end, padding=changes.get("text", {}).get("pad_token_id", PAD)))


@pytest.mark.parametrize("size", [(31, 31), (11, 37)])
def test_another_resolution(tmp_path, size):
    theirs = theirs_of()
    check(saved(theirs, tmp_path), theirs, *given(*size), interpolate_pos_encoding=True)


@torch.no_grad()
def test_the_loss_is_theirs(tmp_path):
    theirs = theirs_of()
    ours = saved(theirs, tmp_path)
    pixels, ids, lengths = given()
    ids, lengths = ids[:5], lengths[:5]
    wanted = theirs(input_ids=ids, pixel_values=pixels, return_loss=True).loss
    batch = Batch(dict(pixels=pixels, ids=ids, lengths=lengths), torch.eye(5, dtype=torch.bool), ())
    loss, count = image_text_contrast(ours, batch)
    assert count == 5 and (loss / count).item() == pytest.approx(wanted.item(), abs=CLOSE)


@torch.no_grad()
def test_what_is_seen_inside_is_theirs(tmp_path):
    theirs = theirs_of()
    ours = saved(theirs, tmp_path)
    theirs.set_attn_implementation("eager")
    pixels, ids, lengths = given()
    with look(ours) as seen:
        ours(pixels, ids, lengths)
    told = theirs(input_ids=ids, pixel_values=pixels, output_attentions=True)
    wanted = [*told.vision_model_output.attentions, *told.text_model_output.attentions]
    assert seen.names_of("encoder") == [f"vision.encoder.blocks.{i}.attention" for i in range(3)]
    assert seen.names_of("decoder") == [f"text.stack.blocks.{i}.attention" for i in range(2)]
    for name, right in zip(seen.names, wanted, strict=True):
        torch.testing.assert_close(seen.attention[name], right, atol=CLOSE, rtol=0)


OURS = dict(
    dim=20, depth=2, heads=5, ffn_dim=29, image=17, patch=4, channels=1, vocab_size=31, max_len=11, text_dim=18,
    text_depth=1, text_heads=3, text_ffn_dim=23, embedding_dim=7,
)  # fmt: skip


def test_a_model_from_here_opens_there(tmp_path):
    ours = CLIP(CLIPConfig(**OURS, activation="gelu-tanh", dropout=0.1)).eval()
    export_model(ours, tmp_path, eos=7)
    theirs, info = transformers.CLIPModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    pixels, ids, lengths = torch.randn(3, 1, 17, 17), torch.randint(8, 31, (4, 11)), torch.tensor([11, 3, 8, 1])
    ids[torch.arange(4), lengths - 1] = 7
    with torch.no_grad():
        wanted = theirs.eval()(input_ids=ids, pixel_values=pixels).logits_per_image
        assert (ours(pixels, ids, lengths) - wanted).abs().max() <= CLOSE


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        (dict(architectures=["CLIPForImageClassification"]), "architectures='CLIPForImageClassification'"),
        (dict(vision_config=PICTURES | dict(hidden_act="gelu")), "hidden_act is 'gelu' for images and 'quick_gelu'"),
        (dict(text_config_dict=dict(hidden_size=33)), "text_config_dict and text_config give two values"),
        (dict(vision_config=PICTURES | dict(hidden_act="mish")), "vision_config.hidden_act='mish' is not known"),
        (dict(vision_config=PICTURES | dict(num_attention_heads=3)), "heads is vision_config.num_attention_heads"),
    ],
)
def test_settings_that_cannot_be_read(tmp_path, changes, fragment):
    theirs_of().save_pretrained(tmp_path)
    change_config(tmp_path, **changes)
    with pytest.raises(ValueError, match=f"config.json: .*{fragment}"):
        load_model(tmp_path)


def test_what_they_cannot_express(tmp_path):
    model = CLIP(CLIPConfig(**OURS | dict(image=(17, 12)), norm="rms", position="rotary"))
    odd = r"position='rotary' .*norm='rms' .*image=\(17, 12\) would have to be square"
    with pytest.raises(ValueError, match=f"clip cannot express this model: {odd}"):
        export_model(model, tmp_path, eos=7)
    with pytest.raises(ValueError, match=r"stem=\(5, 6\) would have to be \(\)"):
        export_model(CLIP(CLIPConfig(**OURS, stem=(5, 6))), tmp_path, eos=7)
    for ids, message in (({}, "give its id: eos="), (dict(eos=2), "if the id of EOS is 2")):
        with pytest.raises(ValueError, match=message):
            export_model(CLIP(CLIPConfig(**OURS)), tmp_path, **ids)
    assert not list(tmp_path.iterdir())


def test_old_files_hold_numbers_of_positions_too(tmp_path):
    from tests.parity.peers import change_tensors

    theirs = theirs_of()
    saved(theirs, tmp_path)
    more = {f"{name}.embeddings.position_ids": torch.arange(13)[None] for name in ("text_model", "vision_model")}
    change_tensors(tmp_path, lambda tensors: tensors | more)
    told = json.loads((tmp_path / "config.json").read_text())["text_config"]
    change_config(tmp_path, text_config_dict=told, vision_config_dict=None, architectures=...)
    check(load_model(tmp_path), theirs, *given())
