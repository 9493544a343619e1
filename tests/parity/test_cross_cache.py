"""Decoding from the encoder's output, one for all layers, is decoding from keys and values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor, nn

from collab_common.errors import UserError
from fairseq_collab.attention.beams import beam_history
from fairseq_collab.models.cross_cache import VARIABLE

pytestmark = pytest.mark.usefixtures("float64")

#: Every kind of heads that offers it, and one layer without heads.
MODELS: list[tuple[str, dict[str, Any]]] = [
    ("transformer_headsize_n", {"qk_head_size": 3, "v_head_size": 5, "heads_in_cross": "0,4"}),
    ("transformer_grouped_query", {"key_value_heads": 2}),
    ("transformer_gated_heads", {"gate_evaluation": "mean"}),
    ("transformer_collab", {"key_dim": 7, "attention_bias": "content"}),
    ("transformer_collab", {"key_dim": 7, "value_heads": 2}),
]
B, BEAM = 3, 2


def model(arch: str, options: dict[str, Any], **more: Any) -> nn.Module:
    """With weights that hide no mistake behind zeros."""
    torch.manual_seed(1)
    return toy.randomised(toy.model(arch, **options, encoder_embed_dim=12, **more)).eval()


def decode(made: Any) -> tuple[list[Tensor], dict[str, Any]]:
    """Outputs of some steps whose beams and sentences are reordered and dropped, and the state."""
    batch = toy.batch()
    made.set_beam_size(BEAM)
    with torch.no_grad():
        encoded = made.encoder(batch["src_tokens"], batch["src_lengths"])
        state: dict[str, Any] = {}
        tokens = torch.full((B * BEAM, 1), 2)
        outputs = []
        torch.manual_seed(2)
        for sentences in (range(3), [2, 0], [1, 0], [1]):
            output = made.decoder(tokens, encoder_out=encoded, incremental_state=state)[0]
            outputs.append(output)
            beams = torch.randint(BEAM, (len(sentences), BEAM))
            order = (torch.tensor(list(sentences))[:, None] * BEAM + beams).flatten()
            made.decoder.reorder_incremental_state_scripting(state, order)
            tokens = torch.cat([tokens[order], torch.randint(4, 20, (len(order), 1))], dim=1)
    return outputs, state


@pytest.mark.parametrize(("arch", "options"), MODELS, ids=str)
def test_all_layers_decode_from_one_copy(
    arch: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, state = decode(model(arch, options))
    assert beam_history(state).source is None
    monkeypatch.setenv(VARIABLE, "source")
    made: Any = model(arch, options)
    found, state = decode(made)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    memory = beam_history(state).source
    assert memory is not None
    assert memory.values is memory.keys
    assert memory.keys.filled.shape == (1, 1, 5, 12)  # one sentence is left; not one a beam or head
    for layer in made.decoder.layers:
        assert layer.encoder_attn.cache_bytes(state) == {"keys": 0, "values": 0}
        assert sum(layer.self_attn.cache_bytes(state).values())


def test_dropout_that_is_kept_in_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weights do not sum to one, and values have biases."""
    monkeypatch.setenv(VARIABLE, "source")
    outputs = []
    for from_source in (False, True):
        made: Any = model(*MODELS[1], attention_dropout=0.5)
        for layer in made.decoder.layers:
            layer.encoder_attn.from_source = from_source
            layer.encoder_attn.dropout_module.apply_during_inference = True
        outputs.append(decode(made)[0])
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-10)


def test_beam_search_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for choice in ("keys", "source"):
        monkeypatch.setenv(VARIABLE, choice)
        made, symbols = model(*MODELS[0]), toy.dictionary()
        search = SequenceGenerator([made], symbols, beam_size=3, max_len_b=12)
        batch = {name: toy.batch()[name] for name in ("src_tokens", "src_lengths")}
        hypotheses = search.generate([made], {"net_input": batch})
        found.append([[one["tokens"].tolist() for one in best] for best in hypotheses])
    assert found[0] == found[1]


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "encoder")
    with pytest.raises(UserError, match=f"{VARIABLE} is 'encoder'; it must be one of keys, source"):
        toy.model("transformer_collab")
    monkeypatch.setenv(VARIABLE, "source")
    with pytest.raises(
        UserError, match="encoder_attn, a LatentAttention, cannot decode from the encoder's output"
    ):
        toy.model("transformer_latent")
