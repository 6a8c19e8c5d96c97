"""Model families, one a file; importing this package registers them all."""

from regard.models.ast import AST, ASTConfig
from regard.models.base import Generator, build, fitting, preset, without_labels
from regard.models.bert import Bert, BertConfig
from regard.models.bilstm import BiLSTM, BiLSTMConfig
from regard.models.captioner import Captioner, CaptionerConfig
from regard.models.clip import CLIP, CLIPConfig
from regard.models.cnn_attention import CNNAttention, CNNAttentionConfig
from regard.models.conformer import Conformer, ConformerConfig
from regard.models.detr import DETR, DETRConfig
from regard.models.gpt import GPT, GPTConfig
from regard.models.graph_transformer import GraphTransformer, GraphTransformerConfig
from regard.models.lr_net import LRNet, LRNetConfig
from regard.models.mae import MAE, MAEConfig
from regard.models.mvit import MViT, MViTConfig
from regard.models.patchtst import PatchTST, PatchTSTConfig
from regard.models.recurrent import GRU, LSTM, RNN, RecurrentConfig
from regard.models.seq2seq import Seq2Seq, Seq2SeqConfig
from regard.models.skipgram import SkipGram, SkipGramConfig
from regard.models.spectrogram_vit import SpectrogramViT
from regard.models.swin import Swin, SwinConfig
from regard.models.t5 import T5, T5Config
from regard.models.transformer import Transformer, TransformerConfig
from regard.models.video_vit import VideoViT, VideoViTConfig
from regard.models.vit import ViT, ViTConfig
from regard.models.wav2vec2 import Wav2Vec2, Wav2Vec2Config
from regard.models.whisper import Whisper, WhisperConfig

__all__ = [
    "AST", "CLIP", "DETR", "GPT", "GRU", "LSTM", "MAE", "RNN", "T5", "ASTConfig", "Bert", "BertConfig", "BiLSTM",
    "BiLSTMConfig", "CLIPConfig", "CNNAttention", "CNNAttentionConfig", "Captioner", "CaptionerConfig", "Conformer",
    "ConformerConfig", "DETRConfig", "GPTConfig", "Generator", "GraphTransformer", "GraphTransformerConfig",
    "LRNet", "LRNetConfig", "MAEConfig", "MViT",
    "MViTConfig", "PatchTST", "PatchTSTConfig", "RecurrentConfig", "Seq2Seq", "Seq2SeqConfig", "SkipGram",
    "SkipGramConfig", "SpectrogramViT", "Swin", "SwinConfig", "T5Config", "Transformer", "TransformerConfig", "ViT",
    "ViTConfig", "VideoViT", "VideoViTConfig", "Wav2Vec2", "Wav2Vec2Config", "Whisper", "WhisperConfig", "build",
    "fitting", "preset", "without_labels",
]  # fmt: skip
