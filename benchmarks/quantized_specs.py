"""The products and convolutions of quantized_gemm.py and quantized_cases.py."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Spec:
    """A product [batch, m, k] x [k, n], or with `taps` a convolution of m images of k channels to n channels."""

    m: int
    k: int
    n: int
    batch: int = 0
    relu: bool = True
    rounds: bool = True  # the result is quantised too
    size: tuple[int, int] = (0, 0)
    taps: int = 0
    stride: int = 1
    pad: int = 0
    dilation: int = 1
    kind: str = "fp8"
    sx: float = 0.5
    zx: int = 0
    sy: float = 64.0
    zy: int = 0

    def of(self, kind: str) -> Spec:
        """int8 has zero points, and wider ranges."""
        if kind == "fp8":
            return dataclasses.replace(self, kind=kind, sy=4.0)
        zero = (0, -128, 3)[(self.m + self.n) % 3] if not self.batch else 0
        return dataclasses.replace(self, kind=kind, zx=zero, zy=-5 if self.relu else 0, sy=2048.0)


#: odd sizes, tails of M, N and K, few rows, long K; results in 8 bits or float32
PRODUCTS = [
    Spec(1, 64, 64),
    Spec(4, 256, 128, rounds=False),
    Spec(16, 512, 512),
    Spec(17, 128, 40),
    Spec(100, 70, 50),
    Spec(128, 768, 768),
    Spec(196, 2048, 256, rounds=False),
    Spec(300, 768, 100),
    Spec(333, 272, 24),
    Spec(64, 64, 8, rounds=False),
    Spec(512, 1024, 1000),
    Spec(1000, 80, 88),
    Spec(1576, 768, 2304),
    Spec(128, 3072, 768, relu=False),
    Spec(4096, 768, 2304),
    Spec(4096, 4096, 256, rounds=False),
    Spec(2048, 144, 192),
    Spec(129, 1040, 264),
    Spec(65, 128, 320, rounds=False),
    Spec(257, 4096, 72),
    Spec(8192, 256, 128, relu=False),
    Spec(50, 33, 17),
    Spec(7, 1024, 2048),
    Spec(2, 4096, 512, rounds=False),
    Spec(640, 208, 640),
    Spec(2048, 2048, 8192),
]
#: of two activations
PAIRS = [
    Spec(197, 64, 197, batch=6, relu=False),
    Spec(128, 80, 96, batch=12),
    Spec(50, 128, 33, batch=3, rounds=False),
    Spec(512, 256, 512, batch=2, rounds=False),
]
CONVOLUTIONS = [
    Spec(2, 64, 64, size=(56, 56), taps=1),
    Spec(2, 64, 64, size=(28, 28), taps=3, pad=1),
    Spec(1, 128, 256, size=(14, 14), taps=3, stride=2, pad=1),
    Spec(2, 256, 64, size=(14, 14), taps=1, rounds=False),
    Spec(1, 96, 48, size=(20, 20), taps=3, pad=1),
    Spec(1, 48, 40, size=(17, 19), taps=3, pad=1),
    Spec(2, 32, 24, size=(15, 15), taps=5, stride=2, pad=2),
    Spec(3, 3, 32, size=(32, 32), taps=7, stride=2, pad=3),
    Spec(1, 16, 17, size=(40, 40), taps=3, pad=1),
    Spec(4, 512, 512, size=(7, 7), taps=3, pad=1),
    Spec(2, 64, 128, size=(13, 11), taps=3, pad=2, dilation=2, rounds=False),
    Spec(1, 1024, 2048, size=(14, 14), taps=1, stride=2),
    Spec(2, 192, 8, size=(10, 10), taps=3, pad=1),
    Spec(1, 128, 72, size=(9, 9), taps=1),
    Spec(8, 320, 128, size=(28, 28), taps=3, pad=1, relu=False),
]
#: M, K, N of real models
CHAINS = {
    "BERT 8x512 qkv": (4096, 768, 2304),
    "BERT 8x512 out": (4096, 768, 768),
    "BERT 8x512 up": (4096, 768, 3072),
    "BERT 8x512 down": (4096, 3072, 768),
    "ViT 8 qkv": (1576, 768, 2304),
    "ViT 32 up": (6304, 768, 3072),
    "ViT 32 down": (6304, 3072, 768),
    "Llama-1B 2048 qkv": (2048, 2048, 3072),
    "Llama-1B 2048 up": (2048, 2048, 16384),
    "Llama-1B 2048 down": (2048, 8192, 2048),
    "128 rows": (128, 4096, 4096),
    "4096 cubed": (4096, 4096, 4096),
}
