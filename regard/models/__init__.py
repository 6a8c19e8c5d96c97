"""Model families, one a file; importing this package registers them all."""

from regard.models.base import Generator, build, fitting, preset, without_labels
from regard.models.bert import Bert, BertConfig
from regard.models.captioner import Captioner, CaptionerConfig
from regard.models.clip import CLIP, CLIPConfig
from regard.models.cnn_attention import CNNAttention, CNNAttentionConfig
from regard.models.detr import DETR, DETRConfig
from regard.models.gpt import GPT, GPTConfig
from regard.models.mae import MAE, MAEConfig
from regard.models.mvit import MViT, MViTConfig
from regard.models.recurrent import GRU, LSTM, RNN, RecurrentConfig
from regard.models.seq2seq import Seq2Seq, Seq2SeqConfig
from regard.models.swin import Swin, SwinConfig
from regard.models.t5 import T5, T5Config
from regard.models.transformer import Transformer, TransformerConfig
from regard.models.vit import ViT, ViTConfig

__all__ = [
    "CLIP", "DETR", "GPT", "GRU", "LSTM", "MAE", "RNN", "T5", "Bert", "BertConfig", "CLIPConfig", "CNNAttention",
    "CNNAttentionConfig", "Captioner", "CaptionerConfig", "DETRConfig", "GPTConfig", "Generator", "MAEConfig", "MViT",
    "MViTConfig", "RecurrentConfig", "Seq2Seq", "Seq2SeqConfig", "Swin", "SwinConfig", "T5Config", "Transformer",
    "TransformerConfig", "ViT", "ViTConfig", "build", "fitting", "preset", "without_labels",
]  # fmt: skip
