"""A Python program written for AMD's MIGraphX provider; only the import differs.

python migraphx.py MODEL    with one float input [batch, ...]
"""

import sys

import numpy as np
import sardonyx.onnxruntime as ort  # instead of: import onnxruntime as ort

migraphx = {
    "device_id": 0,
    "migraphx_fp16_enable": True,
    "migraphx_exhaustive_tune": False,
    "migraphx_max_dynamic_batch": 4,
}
session = ort.InferenceSession(sys.argv[1], providers=[("MIGraphXExecutionProvider", migraphx), "CPUExecutionProvider"])
print(session.get_providers())
info = session.get_inputs()[0]
for batch in (1, 2, 5):
    shape = [batch, *(d if isinstance(d, int) else 8 for d in info.shape[1:])]
    x = np.sin(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape)
    (y,) = session.run(None, {info.name: x})
    print(f"batch {batch}: {y.size} results, sum {y.sum(dtype=np.float64):.4f}")
