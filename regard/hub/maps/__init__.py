"""Other projects' names live here and nowhere else: one file a `model_type`."""

from regard.hub.mapping import Map
from regard.hub.maps.albert import ALBERT
from regard.hub.maps.ast import AUDIO_SPECTROGRAM_TRANSFORMER
from regard.hub.maps.bart import BART
from regard.hub.maps.bert import BERT
from regard.hub.maps.clip import CLIP
from regard.hub.maps.deit import DEIT
from regard.hub.maps.detr import DETR
from regard.hub.maps.distilbert import DISTILBERT
from regard.hub.maps.esm import ESM
from regard.hub.maps.gpt2 import GPT2
from regard.hub.maps.llama import LLAMA
from regard.hub.maps.marian import MARIAN
from regard.hub.maps.parakeet import PARAKEET
from regard.hub.maps.patchtst import PATCHTST
from regard.hub.maps.pegasus import PEGASUS
from regard.hub.maps.roberta import ROBERTA
from regard.hub.maps.swin import SWIN
from regard.hub.maps.swinv2 import SWINV2
from regard.hub.maps.t5 import T5
from regard.hub.maps.timesformer import TIMESFORMER
from regard.hub.maps.videomae import VIDEOMAE
from regard.hub.maps.vit import VIT
from regard.hub.maps.vit_mae import VIT_MAE
from regard.hub.maps.vivit import VIVIT
from regard.hub.maps.wav2vec2 import WAV2VEC2
from regard.hub.maps.whisper import WHISPER

# Of several that can express a model, the first is written.
MAPS: dict[str, Map] = {
    one.kind: one for one in (
        GPT2, LLAMA, BERT, ROBERTA, DISTILBERT, ALBERT, T5, MARIAN, BART, PEGASUS, VIT, DEIT, VIT_MAE, SWIN, SWINV2,
        DETR, CLIP, WHISPER, PARAKEET, AUDIO_SPECTROGRAM_TRANSFORMER, WAV2VEC2, PATCHTST, VIDEOMAE, TIMESFORMER, VIVIT,
        ESM,
    )
}  # fmt: skip
