#!/usr/bin/env python3
"""Reads the text of an image with trained models that Sardonyx compiles for this machine.

    ./dev demo                       an image that this program draws; every word must be found
    ./dev demo --image photo.jpg     an image of yours
    ./dev demo --save read.png       with boxes around what was found

The models are those in the Python package rapidocr (PP-OCR, Apache-2.0), which ./dev setup installs. See
reader.py for what surrounds them.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
import time
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from reader import Reader

# (text, size of the letters, angle in degrees)
LINES = [
    ("SARDONYX", 64, 0),
    ("reads the text of an image", 36, 0),
    ("with models that it compiles itself", 28, 0),
    ("for GPUs and for this processor.", 28, 0),
    ("Invoice 2048, total 1536.75", 40, 0),
    ("small print is hard to see", 20, 0),
    ("even if it leans a little", 32, -6),
]


def draw() -> Image.Image:
    """Dark letters on light paper, one line below the other."""
    image = Image.new("RGB", (800, 520), (246, 243, 235))
    y = 30
    for text, size, angle in LINES:
        font = ImageFont.load_default(size)
        left, top, right, bottom = font.getbbox(text)
        patch = Image.new("L", (right - left + 8, bottom - top + 8), 0)
        ImageDraw.Draw(patch).text((4 - left, 4 - top), text, 255, font=font)
        patch = patch.rotate(angle, Image.Resampling.BICUBIC, expand=True)
        image.paste((32, 38, 54), (50, y), patch)
        y += patch.height + 26
    return image


def words(text: str) -> list[str]:
    return re.findall(r"[0-9a-z]+", text.lower())


def find_models(folder: Path | None) -> tuple[Path, Path]:
    if folder is None:
        spec = importlib.util.find_spec("rapidocr")  # found, not imported: only its files are used
        if spec is None or not spec.submodule_search_locations:
            sys.exit(
                "demo: the package rapidocr with the models is not installed; run ./dev setup, or give --models FOLDER"
            )
        folder = Path(spec.submodule_search_locations[0]) / "models"
    found = []
    for kind in ("det", "rec"):
        files = sorted(folder.glob(f"*_{kind}_*.onnx"))
        if not files:
            sys.exit(f"demo: {folder} has no *_{kind}_*.onnx; give --models FOLDER with a detector and a recogniser")
        found.append(files[0])
    return found[0], found[1]


def processor() -> str:
    try:
        names = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
        return names[0] if names else "CPU"
    except OSError:
        return "CPU"


def load(sardonyx, path: Path, options: argparse.Namespace):
    print(f"compiling {path.name} ...", end=" ", flush=True)
    start = time.perf_counter()
    model = sardonyx.compile(path, device=options.device, threads=options.threads)
    seconds = time.perf_counter() - start
    print(f"{seconds:.2f} s")
    return model, seconds


def as_function(model):
    name = model.inputs[0][0]
    return lambda x: next(iter(model.run({name: x}).values()))


def annotate(image: Image.Image, lines) -> Image.Image:
    image = image.convert("RGB")
    pen = ImageDraw.Draw(image)
    for line in lines:
        corners = [tuple(c) for c in line.box.corners()]
        pen.polygon(corners, outline=(200, 60, 30), width=2)
    return image


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--image", type=Path, help="read this image instead of the one that is drawn")
    parser.add_argument("--save", type=Path, help="write the image with boxes around the text")
    parser.add_argument("--models", type=Path, help="folder with *_det_*.onnx and *_rec_*.onnx")
    parser.add_argument("--device", default="host")
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    options = parser.parse_args()

    import sardonyx  # here, so that --help works without it

    detector_file, recogniser_file = find_models(options.models)
    try:
        image = Image.open(options.image).convert("RGB") if options.image else draw()
    except OSError as error:
        sys.exit(f"demo: {options.image} can't be read: {error}")
    print(f"device: {options.device}" + (f" ({processor()})" if options.device == "host" else ""))
    detector, detector_seconds = load(sardonyx, detector_file, options)
    recogniser, recogniser_seconds = load(sardonyx, recogniser_file, options)
    characters = recogniser.metadata["character"].split("\n")
    reader = Reader(as_function(detector), as_function(recogniser), characters)

    reader.read(image)  # the first run of each size lays out memory
    start = time.perf_counter()
    lines = reader.read(image)
    seconds = time.perf_counter() - start
    print(f"\nread from {options.image or 'the drawn image'} ({image.width} x {image.height}):")
    for line in lines:
        print(f"  {line.confidence:5.1%}  {line.text}")
    print("\ncompilation (from the cache if it ran before):")
    print(f"  {'detector':22} {detector_seconds * 1e3:8.1f} ms\n  {'recogniser':22} {recogniser_seconds * 1e3:8.1f} ms")
    print(f"reading, {len(lines)} lines:")
    for stage, s in reader.seconds.items():
        print(f"  {stage:22} {s * 1e3:8.1f} ms")
    print(f"  {'in all':22} {seconds * 1e3:8.1f} ms")
    if options.save:
        annotate(image, lines).save(options.save)
        print(f"\nwrote {options.save}")
    if options.image:
        return 0

    wanted = [w for text, _, _ in LINES for w in words(text)]
    found = [w for line in lines for w in words(line.text)]
    missing = [w for w in wanted if w not in found]
    if missing:
        print(f"\nFAILED: {len(missing)} of {len(wanted)} drawn words were not found: {' '.join(missing)}")
        return 1
    print(f"\nall {len(wanted)} drawn words were found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
