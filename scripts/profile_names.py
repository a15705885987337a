"""Names, aliases, shapes and exclusions for build_profiles.py: one profile = one workload."""

from __future__ import annotations

from typing import Any, Final

# Left out, by model or by path, because a figure would be shown under a wrong unit or a mixed model:
DROPPED: Final = (
    "mlperf-minigo",  # "samples" of one iteration: no unit of work
    "Recommendation/NCF",  # table in millions of samples/s, study rows without the millions
    "Translation/GNMT",  # "23 011 tokens/s" was cut to 23
    "SpeechSynthesis/FastPitch",  # frames/s, labelled images/s
    "SpeechSynthesis/HiFiGAN",  # the same
    "CUDA-Optimized/FastSpeech",  # mel frames/s: no unit of work
    "SpeechRecognition/wav2vec2",  # labelled tokens/s: not confirmed
    "Classification/GPUNet",  # columns shifted: model and rate in one cell
    "ConvNets/efficientnet_v1",  # B0 and B4 cannot be told apart
    "PyTorch/LanguageModeling/Transformer-XL",  # base and large cannot be told apart
)

GAVEL_MODELS: Final = {
    "ResNet-18": "resnet-18",
    "ResNet-50": "resnet-50",
    "Transformer": "transformer",
    "LM": "lm",
    "Recommendation": "recommendation",
    "A3C": "a3c",
    "CycleGAN": "cyclegan",
}

MLPERF: Final = {
    "mlperf-bert": "bert-large",
    "mlperf-dlrm_dcnv2": "dlrm-dcnv2",
    "mlperf-flux1": "flux1",
    "mlperf-gnn": "rgat",
    "mlperf-gpt3": "gpt3-175b",
    "mlperf-llama2_70b_lora": "llama2-70b-lora",
    "mlperf-llama31_405b": "llama3.1-405b",
    "mlperf-llama31_8b": "llama3.1-8b",
    "mlperf-maskrcnn": "mask-rcnn",
    "mlperf-resnet": "resnet-50",
    "mlperf-retinanet": "retinanet",
    "mlperf-rgat": "rgat",
    "mlperf-rnnt": "rnn-t",
    "mlperf-ssd": "retinanet",
    "mlperf-stable_diffusion": "stable-diffusion-v2",
    "mlperf-unet3d": "unet3d-kits19",
}

DLE: Final = {
    "BART": "bart-large",
    "ELECTRA": "electra-base",
    "ConvNets/efficientnet_v2": "efficientnet-v2-s",
    "ConvNets/resnet50v1.5": "resnet-50",
    "RN50v1.5": "resnet-50",
    "ConvNets/resnext101-32x4d": "resnext-101-32x4d",
    "ConvNets/se-resnext101-32x4d": "se-resnext-101-32x4d",
    "DLRM": "dlrm",
    "Efficientdet": "efficientdet-d0",
    "Jasper": "jasper",
    "MaskRCNN": "mask-rcnn",
    "MoFlow": "moflow",
    "QuartzNet": "quartznet",
    "SE3Transformer": "se3-transformer",
    "SIM": "sim",
    "SSD": "ssd300",
    "TFT": "tft",
    "Transformer": "transformer-big",
    "Transformer-XL": "transformer-xl-base",
    "UNet_3D_Medical": "unet3d-brats",
    "UNet_Industrial": "unet-industrial",
    "UNet_Medical": "unet-medical",
    "VAE-CF": "vae-cf",
    "VNet": "vnet",
    "WideAndDeep": "wide-and-deep",
    "nnUNet": "nnunet",
}

LLM: Final = {
    # MaxText, tpu-recipes
    "Llama 2 70B": "llama2-70b",
    "Llama2-70B-MaxText": "llama2-70b",
    "Llama 3.1 405B": "llama3.1-405b",
    "Llama 3.1 70B": "llama3.1-70b",
    "Llama 3.1 8B": "llama3.1-8b",
    "Llama3.1-405B-MaxText": "llama3.1-405b",
    "Llama3.1-70B-MaxText": "llama3.1-70b",
    "Llama3.1-8B-MaxText": "llama3.1-8b",
    "Mixtral 8X22B": "mixtral-8x22b",
    "Mixtral 8X7B": "mixtral-8x7b",
    "Mixtral-8x22B-MaxText": "mixtral-8x22b",
    "Mixtral-8x7B-MaxText": "mixtral-8x7b",
    "DeepSeek3-671B-MaxText": "deepseek-v3",
    "GPT3-175B-MaxText": "gpt3-175b",
    "Gemma3-12B-MaxText": "gemma3-12b",
    "Llama4-Maverick-17B-128E-Maxtext": "llama4-maverick-17b-128e",
    "Llama4-Scout-17B-16E-Maxtext": "llama4-scout-17b-16e",
    "Mistral-7B-MaxText": "mistral-7b",
    "deepseek-v3": "deepseek-v3",
    "gemma4-26b": "gemma4-26b",
    "gemma4-2b": "gemma4-2b",
    "gemma4-31b": "gemma4-31b",
    "gemma4-4b": "gemma4-4b",
    "gpt-oss-120b": "gpt-oss-120b",
    "qwen3-235b-a22b": "qwen3-235b-a22b",
    # torchtitan
    "llama3.1-405b": "llama3.1-405b",
    "llama3.1-70b": "llama3.1-70b",
    "llama3.1-8b": "llama3.1-8b",
    # Megatron-Bridge
    "DeepSeekV3": "deepseek-v3",
    "DeepSeekV3 (dropless)": "deepseek-v3",
    "DeepSeekV3 (tokendrop)": "deepseek-v3",
    "DeepSeekV3 (w/ MTP)": "deepseek-v3",
    "DeepSeekV3 (w/o MTP)": "deepseek-v3",
    "DeepSeekV4 Flash": "deepseek-v4-flash",
    "GPT OSS 120B": "gpt-oss-120b",
    "Kimi_K2": "kimi-k2",
    "LLAMA3.1_405B": "llama3.1-405b",
    "LLAMA3_70B": "llama3.1-70b",
    "LLAMA3_8B": "llama3.1-8b",
    "Nemotron_3_5_Lightning": "nemotron-3.5-lightning",
    "Nemotron_3_Nano": "nemotron-3-nano",
    "Nemotron_3_Super": "nemotron-3-super",
    "Nemotron_3_Ultra": "nemotron-3-ultra",
    "Qwen3_235B_a22B": "qwen3-235b-a22b",
    "Qwen3_235B_a22B (tokendrop)": "qwen3-235b-a22b",
    "Qwen3_30B_a3B": "qwen3-30b-a3b",
    "Qwen3_30B_a3B (tokendrop)": "qwen3-30b-a3b",
}


def _shape(params: float, layers: int, hidden: int) -> dict[str, Any]:
    return {"params": params, "layers": layers, "hidden": hidden}


# Dense transformers only: the FLOP model and the memory rule are for them.
SHAPES: Final[dict[str, dict[str, Any]]] = {
    "mpt-125m": _shape(125.3e6, 12, 768),
    "mpt-350m": _shape(355.9e6, 24, 1024),
    "mpt-760m": _shape(760.5e6, 24, 1536),
    "mpt-1b": _shape(1.315e9, 24, 2048),
    "mpt-3b": _shape(2.651e9, 32, 2560),
    "mpt-7b": _shape(6.658e9, 32, 4096),
    "mpt-13b": _shape(12.853e9, 40, 5120),
    "mpt-30b": _shape(29.975e9, 48, 7168),
    "mpt-70b": _shape(64.862e9, 64, 8192),
    "llama3.1-8b": _shape(8.03e9, 32, 4096),
    "llama3.1-70b": _shape(70.55e9, 80, 8192),
    "llama3.1-405b": _shape(405.85e9, 126, 16384),
    "llama2-70b": _shape(68.98e9, 80, 8192),
    "mistral-7b": _shape(7.24e9, 32, 4096),
    "gpt3-175b": _shape(175e9, 96, 12288),
    "bert-large": _shape(336e6, 24, 1024),
    "bert-large-squad": _shape(335e6, 24, 1024),
    "biobert-base": _shape(110e6, 12, 768),
    "biobert-base-ner": _shape(108e6, 12, 768),
}

TITLES: Final[dict[str, str]] = {
    "resnet-50": "ResNet-50 on ImageNet, 224 × 224",
    "bert-large": "BERT-large pre-training",
    "bert-large-squad": "BERT-large fine-tuning on SQuAD",
    "biobert-base": "BioBERT-base pre-training",
    "biobert-base-ner": "BioBERT-base fine-tuning for NER",
    "llama3.1-8b": "Llama 3.1 8B pre-training (Llama 3: the same shape)",
    "llama3.1-70b": "Llama 3.1 70B pre-training (Llama 3: the same shape)",
    "llama3.1-405b": "Llama 3.1 405B pre-training",
    "llama3.1-70b-sft": "Llama 3 70B, supervised fine-tuning",
    "llama3.1-70b-lora": "Llama 3 70B, LoRA",
    "llama2-70b": "Llama 2 70B pre-training",
    "llama2-70b-lora": "Llama 2 70B, LoRA on GovReport (MLPerf)",
    "gpt3-175b": "GPT-3 175B pre-training",
    "retinanet": "RetinaNet (ResNeXt-50) on Open Images (MLPerf SSD)",
    "mask-rcnn": "Mask R-CNN on COCO",
    "unet3d-kits19": "3D U-Net on KiTS19 (MLPerf)",
    "unet3d-brats": "3D U-Net on BraTS",
    "dlrm-dcnv2": "DLRM with DCN v2 on Criteo (MLPerf)",
    "rgat": "R-GAT on IGBH (MLPerf GNN)",
    "rnn-t": "RNN-T on LibriSpeech (MLPerf)",
    "stable-diffusion-v2": "Stable Diffusion v2 (MLPerf)",
    "flux1": "FLUX.1 schnell (MLPerf)",
    "transformer-big": "Transformer-big, translation",
    "transformer-xl-base": "Transformer-XL base",
    "gavel-resnet-18": "ResNet-18 on CIFAR-10, all batch sizes (Gavel)",
    "gavel-resnet-50": "ResNet-50 on ImageNet, all batch sizes (Gavel)",
    "gavel-transformer": "Transformer, translation on Multi30k, all batch sizes (Gavel)",
    "gavel-lm": "LSTM language model on WikiText-2, all batch sizes (Gavel)",
    "gavel-recommendation": "Recoder autoencoder on ML-20M, all batch sizes (Gavel)",
    "gavel-a3c": "A3C on Pong (Gavel)",
    "gavel-cyclegan": "CycleGAN on monet2photo (Gavel)",
}


def mpt_title(name: str) -> str | None:
    if name.startswith("mpt-"):
        return f"MPT-{name[4:].upper()} (GPT) pre-training"
    if name.startswith("timm-"):
        return f"{name[5:]} on ImageNet (timm)"
    if name.startswith("gavel-") and "-bs" in name:
        model, batch = name[6:].rsplit("-bs", 1)
        return f"{model}, global batch {batch} (Gavel)"
    return None


_GAVEL_BATCHES: Final = {
    "ResNet-18": (16, 32, 64, 128, 256),
    "ResNet-50": (16, 32, 64, 128),
    "Transformer": (16, 32, 64, 128, 256),
    "LM": (5, 10, 20, 40, 80),
    "Recommendation": (512, 1024, 2048, 4096, 8192),
}
_MPT: Final = ("125m", "350m", "760m", "1b", "3b", "7b", "13b", "30b", "70b")
_TIMM: Final = {
    "timm-resnet18": ("resnet18",),
    "timm-resnet34": ("resnet34",),
    "timm-resnet101": ("resnet101",),
    "timm-resnet152": ("resnet152",),
    "timm-vit-base-patch16-224": ("vit-base", "vit-b", "vit-b-16", "vit_base_patch16_224"),
    "timm-vit-large-patch16-224": ("vit-large", "vit-l", "vit-l-16", "vit_large_patch16_224"),
    "timm-vit-small-patch16-224": ("vit-small", "vit-s", "vit_small_patch16_224"),
    "timm-vit-tiny-patch16-224": ("vit-tiny", "vit_tiny_patch16_224"),
    "timm-vgg16": ("vgg16",),
    "timm-vgg19": ("vgg19",),
    "timm-densenet121": ("densenet121",),
    "timm-inception-v3": ("inception-v3",),
    "timm-inception-v4": ("inception-v4",),
    "timm-convnext-base": ("convnext-base",),
    "timm-swin-base-patch4-window7-224": ("swin-base", "swin-b"),
}

ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "resnet-50": ("resnet50v1.5", "rn50", "resnet", "mlperf-resnet", "timm-resnet50"),
    "bert-large": ("bert-large-pretrain", "bert-large-pretraining", "mlperf-bert", "bert"),
    "bert-large-squad": ("bert-large-finetune", "bert-squad", "bert"),
    "biobert-base": ("biobert", "bert"),
    "biobert-base-ner": ("biobert-ner", "bert"),
    "llama3.1-8b": ("llama-8b", "llama3-8b", "llama-3-8b", "llama-3.1-8b", "meta-llama-3-8b", "llama31_8b"),
    "llama3.1-70b": ("llama3-70b", "llama-3-70b", "llama-3.1-70b", "llama-70b", "meta-llama-3-70b"),
    "llama3.1-405b": ("llama-405b", "llama-3.1-405b", "llama3-405b"),
    "llama3.1-70b-lora": ("llama3-70b-lora",),
    "llama3.1-70b-sft": ("llama3-70b-sft",),
    "llama2-70b": ("llama-2-70b", "llama-70b"),
    "llama2-70b-lora": ("llama-2-70b-lora", "mlperf-llama2_70b_lora"),
    "mistral-7b": ("mistral",),
    "mixtral-8x7b": ("mixtral",),
    "gpt3-175b": ("gpt3", "gpt-3", "gpt-175b", "mlperf-gpt3"),
    "deepseek-v3": ("deepseek-v3-671b", "deepseek3", "deepseek"),
    "qwen3-30b-a3b": ("qwen3-30b",),
    "qwen3-235b-a22b": ("qwen3-235b",),
    "stable-diffusion-v2": ("stable-diffusion", "sd2"),
    "flux1": ("flux.1", "flux", "flux-schnell"),
    "mask-rcnn": ("maskrcnn", "mlperf-maskrcnn"),
    "retinanet": ("mlperf-ssd", "mlperf-retinanet"),
    "ssd300": ("ssd",),
    "unet3d-kits19": ("unet3d", "3d-unet", "mlperf-unet3d"),
    "unet3d-brats": ("unet3d", "3d-unet"),
    "dlrm-dcnv2": ("dlrm-v2", "mlperf-dlrm"),
    "rgat": ("gnn", "mlperf-gnn"),
    "rnn-t": ("mlperf-rnnt",),
    "transformer-xl-base": ("transformer-xl",),
    "electra-base": ("electra",),
    "bart-large": ("bart",),
    "gavel-a3c": ("A3C",),
    "gavel-cyclegan": ("CycleGAN",),
    "gavel-lm": ("LM",),
    "gavel-recommendation": ("Recommendation",),
    "gavel-transformer": ("Transformer", "gavel-translation"),
    "gavel-resnet-18": ("resnet18", "ResNet-18 (cifar10)"),
    **{f"mpt-{size}": (f"gpt-{size}", f"mosaic-{size}") for size in _MPT},
    **_TIMM,
    **{
        f"gavel-{GAVEL_MODELS[model]}-bs{batch}": (
            f"{model} (batch size {batch})",
            f"{GAVEL_MODELS[model]}-bs{batch}",
        )
        for model, batches in _GAVEL_BATCHES.items()
        for batch in batches
    },
}
