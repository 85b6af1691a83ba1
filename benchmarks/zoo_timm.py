"""Architectures of timm for the zoo, kind "timm": rows that are measured, and that nothing was tuned for.

They are here for what the other rows lack: linear, windowed, channel and talking-heads attention, MLPs over tokens,
selective kernels, branches of several resolutions, recurrent layers over images, weights that are normalised.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

#: With the side of the image in pixels.
MODELS = {
    "botnet26t_256": 256,
    "caformer_s18": 224,
    "cait_xxs24_224": 224,
    "coat_lite_tiny": 224,
    "coatnet_0_rw_224": 224,
    "convit_small": 224,
    "convmixer_768_32": 224,
    "crossvit_9_240": 240,
    "cspdarknet53": 256,
    "davit_tiny": 224,
    "dla60": 224,
    "dpn68": 224,
    "ecaresnet50t": 256,
    "edgenext_small": 256,
    "efficientformer_l1": 224,
    "efficientformerv2_s1": 224,
    "efficientvit_b1": 224,
    "efficientvit_m2": 224,
    "ese_vovnet39b": 224,
    "eva02_tiny_patch14_224": 224,
    "fasternet_t2": 224,
    "fastvit_t8": 256,
    "focalnet_tiny_srf": 224,
    "gcvit_tiny": 224,
    "gernet_s": 224,
    "ghostnet_100": 224,
    "ghostnetv2_100": 224,
    "gmlp_s16_224": 224,
    "halonet26t": 256,
    "hardcorenas_a": 224,
    "hgnetv2_b1": 224,
    "hiera_tiny_224": 224,
    "hrnet_w18": 224,
    "inception_next_tiny": 224,
    "inception_resnet_v2": 299,
    "inception_v4": 299,
    "lambda_resnet26t": 256,
    "lcnet_100": 224,
    "levit_192": 224,
    "mambaout_tiny": 224,
    "maxxvit_rmlp_nano_rw_256": 256,
    "mixer_b16_224": 224,
    "mixnet_s": 224,
    "mobilenetv4_conv_medium": 224,
    "mobileone_s1": 224,
    "mobilevit_s": 256,
    "mobilevitv2_100": 256,
    "mvitv2_tiny": 224,
    "nest_tiny": 224,
    "nextvit_small": 224,
    "nfnet_l0": 224,
    "pit_s_224": 224,
    "pvt_v2_b1": 224,
    "rdnet_tiny": 224,
    "regnetz_c16": 256,
    "repghostnet_100": 224,
    "repvgg_b0": 224,
    "repvit_m1": 224,
    "res2net50_26w_4s": 224,
    "resmlp_24_224": 224,
    "resnest50d": 224,
    "resnetblur50": 224,
    "rexnet_100": 224,
    "sebotnet33ts_256": 256,
    "selecsls42b": 224,
    "sequencer2d_s": 224,
    "skresnet34": 224,
    "starnet_s3": 224,
    "swiftformer_s": 224,
    "swinv2_cr_tiny_224": 224,
    "tiny_vit_5m_224": 224,
    "tnt_s_patch16_224": 224,
    "tresnet_m": 224,
    "twins_pcpvt_small": 224,
    "twins_svt_small": 224,
    "visformer_small": 224,
    "vit_relpos_small_patch16_224": 224,
    "vitamin_small_224": 224,
    "volo_d1_224": 224,
    "xception41": 299,
    "xcit_tiny_12_p16_224": 224,
}


def timm_model(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import timm

        return timm.create_model(name, pretrained=False)

    return make
