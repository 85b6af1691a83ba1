"""What tests of torch.compile's backend share, beside the fixture `graphs` (conftest.py)."""


def close(got, want, tolerance=1e-5):
    """Relative to the largest value; float32 sums in another order."""
    assert got.dtype == want.dtype and got.shape == want.shape
    if not want.numel():
        return
    scale = float(want.float().abs().max()) or 1.0
    assert float((got.float() - want.float()).abs().max()) <= tolerance * scale
