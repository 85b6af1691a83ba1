"""One case or more for each of Keras's layers that computes with numbers, written from the list in its documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class LayerCase(NamedTuple):
    name: str
    make: Callable[[Any], Any]  #: of keras.layers: the layer
    shapes: tuple[tuple[int | None, ...], ...]  #: of the inputs, without the batch
    whole: int = 0  #: inputs are integers below this


IMAGE, VOLUME, LINE, FLAT = (9, 8, 4), (5, 6, 5, 3), (11, 4), (6,)


class Cases:
    def __init__(self) -> None:
        self.all: list[LayerCase] = []

    def add(self, name: str, make: Callable[[Any], Any], *shapes: tuple[int | None, ...], whole: int = 0) -> None:
        self.all.append(LayerCase(name, make, shapes or (IMAGE,), whole))


def windows(made: Cases) -> None:
    """Convolutions, pooling and padding."""
    for rank, shape in ((1, LINE), (2, IMAGE), (3, VOLUME)):
        for padding in ("same", "valid"):
            suffix = f"{rank}d {padding}"
            made.add(
                f"Conv{suffix}",
                lambda L, r=rank, p=padding: getattr(L, f"Conv{r}D")(5, 3, strides=2, padding=p, activation="gelu"),
                shape,
            )
            made.add(
                f"Conv{suffix} dilated",
                lambda L, r=rank, p=padding: getattr(L, f"Conv{r}D")(5, 2, dilation_rate=2, padding=p),
                shape,
            )
            made.add(
                f"ConvTranspose{suffix}",
                lambda L, r=rank, p=padding: getattr(L, f"Conv{r}DTranspose")(5, 3, strides=2, padding=p),
                shape,
            )
            made.add(
                f"MaxPooling{suffix}",
                lambda L, r=rank, p=padding: getattr(L, f"MaxPooling{r}D")(2, strides=2, padding=p),
                shape,
            )
            made.add(
                f"AveragePooling{suffix}",
                lambda L, r=rank, p=padding: getattr(L, f"AveragePooling{r}D")(3, strides=2, padding=p),
                shape,
            )
            if rank < 3:
                made.add(
                    f"DepthwiseConv{suffix}",
                    lambda L, r=rank, p=padding: getattr(L, f"DepthwiseConv{r}D")(3, depth_multiplier=2, padding=p),
                    shape,
                )
                made.add(
                    f"SeparableConv{suffix}",
                    lambda L, r=rank, p=padding: getattr(L, f"SeparableConv{r}D")(6, 3, padding=p, activation="relu"),
                    shape,
                )
        for keep in (False, True):
            made.add(
                f"GlobalMaxPooling{rank}d {keep}",
                lambda L, r=rank, k=keep: getattr(L, f"GlobalMaxPooling{r}D")(keepdims=k),
                shape,
            )
            made.add(
                f"GlobalAveragePooling{rank}d {keep}",
                lambda L, r=rank, k=keep: getattr(L, f"GlobalAveragePooling{r}D")(keepdims=k),
                shape,
            )
        made.add(f"UpSampling{rank}d", lambda L, r=rank: getattr(L, f"UpSampling{r}D")(2), shape)
        made.add(f"ZeroPadding{rank}d", lambda L, r=rank: getattr(L, f"ZeroPadding{r}D")(2), shape)
        made.add(f"Cropping{rank}d", lambda L, r=rank: getattr(L, f"Cropping{r}D")(1), shape)
        made.add(f"SpatialDropout{rank}d", lambda L, r=rank: getattr(L, f"SpatialDropout{r}D")(0.5), shape)
        if rank < 4:
            made.add(
                f"AdaptiveAveragePooling{rank}d", lambda L, r=rank: getattr(L, f"AdaptiveAveragePooling{r}D")(3), shape
            )
            made.add(f"AdaptiveMaxPooling{rank}d", lambda L, r=rank: getattr(L, f"AdaptiveMaxPooling{r}D")(3), shape)


def preprocessing(made: Cases) -> None:
    """More convolutions, resizing, and preprocessing."""
    made.add("Conv1D causal", lambda L: L.Conv1D(5, 3, padding="causal", dilation_rate=2), LINE)
    made.add("Conv2D groups", lambda L: L.Conv2D(8, 3, groups=2))
    made.add("Conv1D groups", lambda L: L.Conv1D(8, 3, groups=2), LINE)
    made.add("Conv2D channels of variable images", lambda L: L.Conv2D(5, 3, padding="same"), (None, None, 3))
    for mode in ("nearest", "bilinear", "bicubic"):
        made.add(f"UpSampling2D {mode}", lambda L, m=mode: L.UpSampling2D((2, 3), interpolation=m))
        made.add(f"Resizing {mode}", lambda L, m=mode: L.Resizing(5, 13, interpolation=m))
    made.add("Resizing crop", lambda L: L.Resizing(6, 6, crop_to_aspect_ratio=True))
    made.add("CenterCrop", lambda L: L.CenterCrop(5, 4))
    made.add("Rescaling", lambda L: L.Rescaling(1 / 127.5, offset=-1))
    made.add("Normalization", lambda L: L.Normalization(mean=[1.0, 2.0, 3.0, 4.0], variance=[1.0, 2.0, 0.5, 4.0]))
    made.add("Discretization", lambda L: L.Discretization(bin_boundaries=[-1.0, 0.0, 0.5]), FLAT)
    made.add(
        "CategoryEncoding one hot", lambda L: L.CategoryEncoding(num_tokens=5, output_mode="one_hot"), (1,), whole=5
    )
    made.add(
        "CategoryEncoding multi hot", lambda L: L.CategoryEncoding(num_tokens=5, output_mode="multi_hot"), (3,), whole=5
    )
    made.add("CategoryEncoding count", lambda L: L.CategoryEncoding(num_tokens=5, output_mode="count"), (3,), whole=5)
    made.add("Hashing-free IntegerEmbedding", lambda L: L.Embedding(7, 3), (4,), whole=7)
    made.add("Embedding mask", lambda L: L.Embedding(7, 3, mask_zero=True), (4,), whole=7)


def functions(made: Cases) -> None:
    """Activations."""
    for activation in ("relu", "relu6", "sigmoid", "softmax", "softplus", "softsign", "tanh", "selu", "elu", "exponential", "leaky_relu", "silu", "gelu", "hard_sigmoid", "hard_silu", "hard_tanh", "hard_shrink", "soft_shrink", "tanh_shrink", "linear", "mish", "log_softmax", "log_sigmoid", "celu", "glu", "sparse_plus", "sparsemax", "squareplus", "threshold", "sparse_sigmoid"):  # fmt: skip
        if activation == "threshold":
            continue  # needs its arguments
        made.add(f"Activation {activation}", lambda L, a=activation: L.Activation(a), FLAT)
    made.add("LeakyReLU", lambda L: L.LeakyReLU(negative_slope=0.2), FLAT)
    made.add("PReLU", lambda L: L.PReLU(shared_axes=[1, 2], alpha_initializer="random_normal"))
    made.add("ELU", lambda L: L.ELU(alpha=0.5), FLAT)
    made.add("ReLU", lambda L: L.ReLU(max_value=1.5, negative_slope=0.1, threshold=0.2), FLAT)
    made.add("Softmax axis", lambda L: L.Softmax(axis=1), LINE)


def recurrent(made: Cases) -> None:
    """Recurrent layers."""
    for rnn in ("LSTM", "GRU", "SimpleRNN"):
        made.add(f"{rnn}", lambda L, r=rnn: getattr(L, r)(5), LINE)
        made.add(f"{rnn} sequences", lambda L, r=rnn: getattr(L, r)(5, return_sequences=True), LINE)
        made.add(f"{rnn} variable length", lambda L, r=rnn: getattr(L, r)(5, return_sequences=True), (None, 4))
        made.add(f"{rnn} backwards", lambda L, r=rnn: getattr(L, r)(5, go_backwards=True, return_sequences=True), LINE)
        made.add(f"{rnn} state", lambda L, r=rnn: getattr(L, r)(5, return_state=True), LINE)
        made.add(f"{rnn} unrolled", lambda L, r=rnn: getattr(L, r)(5, unroll=True), LINE)
        made.add(
            f"Bidirectional {rnn}", lambda L, r=rnn: L.Bidirectional(getattr(L, r)(5, return_sequences=True)), LINE
        )
    made.add("GRU reset before", lambda L: L.GRU(5, reset_after=False), LINE)
    made.add(
        "LSTM other activations", lambda L: L.LSTM(5, activation="relu", recurrent_activation="hard_sigmoid"), LINE
    )
    made.add("RNN of cells", lambda L: L.RNN([L.LSTMCell(5), L.GRUCell(4)]), LINE)
    made.add("ConvLSTM1D", lambda L: L.ConvLSTM1D(3, 3, padding="same"), (4, 7, 2))
    made.add("ConvLSTM2D", lambda L: L.ConvLSTM2D(3, 3, padding="same", return_sequences=True), (4, 6, 5, 2))
    made.add("TimeDistributed Dense", lambda L: L.TimeDistributed(L.Dense(3)), LINE)
    made.add("TimeDistributed Conv2D", lambda L: L.TimeDistributed(L.Conv2D(3, 2)), (3, 5, 5, 2))


def others(made: Cases) -> None:
    """Products, normalisation, attention, merging and shapes."""
    made.add("Dense", lambda L: L.Dense(7, activation="tanh"), FLAT)
    made.add("Dense of lines", lambda L: L.Dense(7), LINE)
    made.add("EinsumDense", lambda L: L.EinsumDense("abc,cd->abd", output_shape=(None, 5), bias_axes="d"), LINE)
    made.add("BatchNormalization", lambda L: L.BatchNormalization())
    made.add("BatchNormalization axis", lambda L: L.BatchNormalization(axis=1))
    made.add("LayerNormalization", lambda L: L.LayerNormalization())
    made.add("LayerNormalization axes", lambda L: L.LayerNormalization(axis=[1, 2]))
    made.add("RMSNormalization", lambda L: L.RMSNormalization(), LINE)
    made.add("GroupNormalization", lambda L: L.GroupNormalization(groups=2))
    made.add("UnitNormalization", lambda L: L.UnitNormalization(), LINE)
    made.add("SpectralNormalization", lambda L: L.SpectralNormalization(L.Dense(4)), FLAT)
    made.add("MultiHeadAttention", lambda L: L.MultiHeadAttention(2, 3), LINE, (7, 4))
    made.add(
        "MultiHeadAttention value", lambda L: L.MultiHeadAttention(2, 3, value_dim=5, output_shape=6), LINE, (7, 4)
    )
    made.add("GroupQueryAttention", lambda L: L.GroupQueryAttention(4, 4, 2), LINE, (7, 4))
    made.add("Attention", lambda L: Listed(L.Attention(use_scale=True)), LINE, (7, 4))
    made.add("AdditiveAttention", lambda L: Listed(L.AdditiveAttention()), LINE, (7, 4))
    for merge in ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate"):
        made.add(merge, lambda L, m=merge: Listed(getattr(L, m)()), LINE, LINE)
    made.add("Add broadcast", lambda L: Listed(L.Add()), LINE, (1, 4))
    made.add("Dot", lambda L: Listed(L.Dot(axes=2, normalize=True)), LINE, (7, 4))
    made.add("Concatenate axis", lambda L: Listed(L.Concatenate(axis=1)), LINE, (7, 4))
    made.add("Flatten", lambda L: L.Flatten())
    made.add("Reshape", lambda L: L.Reshape((-1, 2)))
    made.add("Permute", lambda L: L.Permute((3, 1, 2)))
    made.add("RepeatVector", lambda L: L.RepeatVector(3), FLAT)
    made.add("Identity", lambda L: L.Identity(), FLAT)
    made.add("Masking", lambda L: L.Masking(), LINE)
    made.add("GaussianNoise", lambda L: L.GaussianNoise(0.5), FLAT)
    made.add("Dropout", lambda L: L.Dropout(0.5), FLAT)
    made.add("AlphaDropout", lambda L: L.AlphaDropout(0.5), FLAT)
    made.add("ActivityRegularization", lambda L: L.ActivityRegularization(0.1), FLAT)
    made.add(
        "MelSpectrogram",
        lambda L: L.MelSpectrogram(fft_length=32, sequence_stride=8, sampling_rate=800, num_mel_bins=6),
        (80,),
    )
    made.add(
        "STFTSpectrogram",
        lambda L: L.STFTSpectrogram(mode="magnitude", frame_length=16, frame_step=8, fft_length=16),
        (80, 1),
    )
    made.add("Solarization", lambda L: L.Solarization(addition_factor=0.0, threshold_factor=0.5, value_range=(0, 1)))


def cases() -> list[LayerCase]:
    made = Cases()
    for group in (windows, preprocessing, functions, recurrent, others):
        group(made)
    return made.all


class Listed:
    """A layer that takes its inputs as a list."""

    def __init__(self, layer: Any):
        self.layer = layer

    def __call__(self, *inputs: Any) -> Any:
        return self.layer(list(inputs))


def model_of(case: LayerCase) -> Any:
    """A Keras model of this layer alone, with weights that are all different."""
    import keras

    keras.utils.set_random_seed(0)
    dtype = "int32" if case.whole else "float32"
    inputs = [keras.Input(shape, dtype=dtype, name=f"in{k}") for k, shape in enumerate(case.shapes)]
    model = keras.Model(inputs, case.make(keras.layers)(*inputs))
    random = np.random.default_rng(0)
    for weight in model.weights:
        value = weight.numpy()
        if value.dtype.kind == "f" and value.size > 1 and (value == value.flat[0]).all():
            weight.assign((value + random.uniform(0, 0.3, value.shape)).astype(value.dtype))
    return model


def inputs_of(case: LayerCase, batch: int, size: int = 7) -> list[np.ndarray]:
    random = np.random.default_rng(batch)
    shapes = [(batch, *(size if n is None else n for n in shape)) for shape in case.shapes]
    if case.whole:
        return [random.integers(0, case.whole, shape).astype(np.int32) for shape in shapes]
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]
