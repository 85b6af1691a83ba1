"""TensorFlow's models through Sardonyx: SavedModel folders, Keras models and files, frozen graphs, functions.

    model = sardonyx.compile("saved_model/")        or a .keras, .h5 or frozen .pb file
    model = sardonyx.compile(keras_model)           a model in memory
    proto = sardonyx.tensorflow.onnx_of("model.keras")

Needs tensorflow and tf2onnx: `pip install sardonyx[tensorflow]`. docs/tensorflow.md describes it. TFLite files need neither: the
library reads them itself.
"""

from .convert import is_tensorflow, onnx_of

__all__ = ["is_tensorflow", "onnx_of"]
