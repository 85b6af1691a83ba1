"""A Python program written for AMD's ROCm provider, with tensors on the device; only the import differs.

python rocm.py MODEL    with one float input [batch, ...] and one output
"""

import sys

import numpy as np
import sardonyx.onnxruntime as ort  # instead of: import onnxruntime as ort

rocm = {
    "device_id": 0,
    "arena_extend_strategy": "kNextPowerOfTwo",
    "gpu_mem_limit": 2 * 1024 * 1024 * 1024,
    "do_copy_in_default_stream": True,
    "tunable_op_enable": True,
    "tunable_op_tuning_enable": True,
}
session = ort.InferenceSession(sys.argv[1], providers=[("ROCMExecutionProvider", rocm), "CPUExecutionProvider"])
info, output = session.get_inputs()[0], session.get_outputs()[0]
shape = [d if isinstance(d, int) else 3 if k == 0 else 8 for k, d in enumerate(info.shape)]
x = np.cos(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape)

binding = session.io_binding()
value = ort.OrtValue.ortvalue_from_numpy(x, "cuda", 0)  # the ROCm provider's name for its memory; "hip" works too
binding.bind_input(info.name, "cuda", 0, np.float32, value.shape(), value.data_ptr())
binding.bind_output(output.name, "cuda")
session.run_with_iobinding(binding)
y = binding.get_outputs()[0]
print(session.get_providers()[0], "output on the device:", y.device_name() != "cpu")
print(f"{y.numpy().size} results, sum {y.numpy().sum(dtype=np.float64):.4f}")
