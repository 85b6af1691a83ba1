"""ONNX's node tests through the MIGraphX provider of PyPI's onnxruntime-migraphx, for test_migraphx_c.py: runs with that
package's Python, with libmigraphx_c.so.3 and a HIP library in LD_LIBRARY_PATH. The provider decides which nodes it gives
to MIGraphX; ONNX Runtime's CPU provider runs the others."""

import os
import re
import unittest
import warnings

os.environ["ALLOW_RELEASED_ONNX_OPSET_ONLY"] = "0"  # so that ONNX Runtime takes models of the newest operator set

import numpy as np
import onnxruntime as ort

MAX_IR, OPSETS = 11, 27  # what ONNX Runtime 1.27 reads

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # onnx's test cases overflow on purpose while they are being built
    from onnx.backend.base import Backend, BackendRep
    from onnx.backend.test import BackendTest

    class Rep(BackendRep):
        def __init__(self, session):
            self.session = session

        def run(self, inputs, **kwargs):
            names = [i.name for i in self.session.get_inputs()]
            return self.session.run(None, dict(zip(names, map(np.asarray, inputs))))

    class Provider(Backend):
        @classmethod
        def is_compatible(cls, model, device="CPU", **kwargs):
            return True

        @classmethod
        def supports_device(cls, device):
            return device == "CPU"

        @classmethod
        def prepare(cls, model, device="CPU", **kwargs):
            if any(o.domain in ("", "ai.onnx") and o.version >= OPSETS for o in model.opset_import):
                raise unittest.SkipTest("ONNX Runtime does not read this operator set yet")
            model.ir_version = min(model.ir_version, MAX_IR)
            options = ort.SessionOptions()
            options.log_severity_level = 4
            # Constant folding would leave nothing to run of many tests.
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            providers = ["MIGraphXExecutionProvider"]
            return Rep(ort.InferenceSession(model.SerializeToString(), options, providers=providers, enable_fallback=0))

    # Expected values that are no better: see test_onnx_backend.py.
    KWARGS = {
        key: {"rtol": 0.002, "atol": 1e-07}
        for key in (
            "test_attention_4d_causal_fp16",
            "test_attention_4d_causal_fp16_expanded",
            "test_attention_4d_gqa_with_past_and_present_fp16",
        )
    }
    SUITE = BackendTest(Provider, __name__, test_kwargs=KWARGS)

NOT_RUN = [
    # As in test_onnx_backend.py.
    (r"^test_(string|regex|equal_string|strnorm)", "strings are out of scope"),
    (r"^test_(sequence|split_to_sequence|identity_sequence|loop13_seq|if_seq)", "sequences are out of scope"),
    (r"^test_(optional|identity_opt|if_opt|loop16_seq_none)", "optionals are out of scope"),
    (r"^test_(adagrad|adam|momentum|nesterov_momentum|gradient_of)", "training is out of scope"),
    (r"^test_bernoulli|^test_training_dropout(_default)?(_mask)?_cpu", "they expect numpy's random numbers"),
    (r"^test_image_decoder|^test_ai_onnx_ml", "out of scope"),
    # As in test_ep_nodes.py.
    (r"^test_castlike_|bf16|bfloat16", "onnxruntime's Python package takes no arrays of these element types"),
    (r"(FLOAT8|FLOAT4|INT4|INT2|float8|float4|int4|int2|e4m3fn|e5m2|E8M0)", "likewise"),
    (
        r"^test_flexattention|^test_attention_.*(window|ext_cache)",
        "ONNX Runtime does not know the operator or attribute",
    ),
]

# What fails before it reaches our library, or without it: docs/migraphx.md has the reasons.
LIMITS = {
    "the provider leaves it to the CPU provider, which is less exact than the tolerance": [
        "dft",
        "dft_axis",
        "dft_axis_opset19",
        "dft_inverse",
        "dft_inverse_opset19",
        "dft_irfft",
        "dft_irfft_opset19",
        "dft_opset19",
        "dft_rfft",
        "dft_rfft_opset19",
        "stft",
        "stft_with_window",
    ],
    "the provider leaves it to the CPU provider, which computes something else": [
        "maxunpool_export_with_output_shape",
        "resize_downsample_scales_cubic_align_corners",
    ],
    "the provider leaves it to the CPU provider, which has no kernel for it": [
        "bitcast_bool_to_uint8",
        "roialign_aligned_false",
        "roialign_aligned_true",
        "roialign_mode_max",
        "top_k_uint64",
    ],
    "ONNX Runtime 1.27 inserts a cast of the wrong type": [
        "attention_4d_causal_fp16_expanded",
        "attention_4d_gqa_causal_nonpad_decode_fp16_expanded",
    ],
    "the provider fuses a nested graph, and then hands over the outer one with the fused node in it": [
        "affine_grid_2d_align_corners_expanded",
        "affine_grid_3d_align_corners_expanded",
    ],
}
NOT_RUN += [(rf"^test_{name}_cpu$", reason) for reason, names in LIMITS.items() for name in names]


def _cases():
    case = SUITE.test_cases["OnnxBackendNodeModelTest"]
    for name in [n for n in dir(case) if n.startswith("test_")]:
        if name.endswith("_cuda"):  # the same tests for another device
            delattr(case, name)
            continue
        for pattern, reason in NOT_RUN:
            if re.search(pattern, name):
                setattr(case, name, unittest.skip(reason)(getattr(case, name)))
                break
    return case


TestNodes = _cases()
