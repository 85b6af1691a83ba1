"""Reads the text of an image with two models: one finds lines of text, one reads a line.

The models are of the PP-OCR family: the detector gives each pixel's probability to be text (Liao et al., "Real-time
Scene Text Detection with Differentiable Binarization", 2020), the recogniser gives for each column of a line the
probabilities of characters, to be decoded as in connectionist temporal classification (Graves et al., 2006). Both
take any size, and each is compiled once. They are called as functions from arrays to arrays, so that anything may run
them.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import numpy as np
from PIL import Image

LINE_HEIGHT = 48  # of the recogniser's input
MIN_LINE_WIDTH = 320  # narrower lines are padded, as they were in training
MAX_SIDE = 960  # larger images are scaled down for the detector
PIXEL_THRESHOLD = 0.3
BOX_THRESHOLD = 0.5
UNCLIP_RATIO = 1.6  # the detector is trained on boxes shrunk by this much
MIN_BOX_SIDE = 3


@dataclasses.dataclass
class Box:
    """A rotated rectangle: its centre and half its sides as vectors; `along` points in reading direction."""

    centre: np.ndarray
    along: np.ndarray
    down: np.ndarray

    def corners(self) -> np.ndarray:
        return np.array([self.centre + a * self.along + d * self.down for a, d in ((-1, -1), (1, -1), (1, 1), (-1, 1))])


@dataclasses.dataclass
class Line:
    text: str
    confidence: float
    box: Box


class Reader:
    """`seconds` has the time of each stage of the last read()."""

    def __init__(self, detect: Callable, recognise: Callable, characters: list[str]):
        self._detect, self._recognise = detect, recognise
        # Class 0 is the blank; the space is missing in the file's list.
        self._characters = ["", *characters, " "]
        self.seconds: dict[str, float] = {}

    def read(self, image: Image.Image) -> list[Line]:
        self.seconds = {}
        image = image.convert("RGB")
        boxes = self.find(image)
        lines = [self.read_line(image, box) for box in boxes]
        return [line for line in lines if line.text]

    def find(self, image: Image.Image) -> list[Box]:
        """Lines of text, from top to bottom and left to right."""
        scale = min(1.0, MAX_SIDE / max(image.size))
        size = tuple(max(32, round(side * scale / 32) * 32) for side in image.size)
        x = self._timed("detection: prepare", lambda: as_input(image.resize(size, Image.Resampling.BILINEAR)))
        probability = self._timed("detection: run", lambda: self._detect(x))[0, 0]
        boxes = self._timed("detection: boxes", lambda: find_boxes(probability))
        factor = np.array(image.size) / np.array(size)
        boxes = [Box(b.centre * factor, b.along * factor, b.down * factor) for b in boxes]
        return reading_order(boxes)

    def read_line(self, image: Image.Image, box: Box) -> Line:
        x = self._timed("recognition: prepare", lambda: as_input(cut_out(image, box), MIN_LINE_WIDTH))
        probabilities = self._timed("recognition: run", lambda: self._recognise(x))[0]
        text, confidence = self._timed("recognition: decode", lambda: self.decode(probabilities))
        return Line(text, confidence, box)

    def decode(self, probabilities: np.ndarray) -> tuple[str, float]:
        """The most probable class of each column, without repetitions and blanks."""
        best = probabilities.argmax(axis=1)
        keep = best != 0
        keep[1:] &= best[1:] != best[:-1]
        text = "".join(self._characters[k] for k in best[keep])
        return text.strip(), float(probabilities.max(axis=1)[keep].mean()) if keep.any() else 0.0

    def _timed(self, stage: str, work: Callable):
        start = time.perf_counter()
        result = work()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start
        return result


def as_input(image: Image.Image, min_width: int = 0) -> np.ndarray:
    """[1, 3, height, width] in -1 .. 1, channels in the order blue, green, red; padded with 0 on the right."""
    x = np.asarray(image, np.float32)[:, :, ::-1].transpose(2, 0, 1) / 127.5 - 1
    x = np.pad(x, ((0, 0), (0, 0), (0, max(0, min_width - x.shape[2]))))
    return np.ascontiguousarray(x[np.newaxis])


def cut_out(image: Image.Image, box: Box) -> Image.Image:
    """The content of the box, rotated upright and scaled to the height of a line."""
    width, height = 2 * np.hypot(*box.along), 2 * np.hypot(*box.down)
    columns = max(8, round(LINE_HEIGHT * width / max(height, 1)))
    corner = box.centre - box.along - box.down
    right, down = 2 * box.along / columns, 2 * box.down / LINE_HEIGHT
    matrix = (right[0], down[0], corner[0], right[1], down[1], corner[1])
    if height > 2 * LINE_HEIGHT:  # scaled down first, because the transformation samples few pixels
        factor = height / LINE_HEIGHT
        image = image.resize([max(1, round(side / factor)) for side in image.size], Image.Resampling.BOX)
        matrix = tuple(v / factor for v in matrix)
    return image.transform((columns, LINE_HEIGHT), Image.Transform.AFFINE, matrix, Image.Resampling.BICUBIC)


def find_boxes(probability: np.ndarray) -> list[Box]:
    """A box around each connected region of probable text, enlarged because the detector is trained on shrunk boxes."""
    boxes = []
    for rows in regions(probability > PIXEL_THRESHOLD):
        score = np.concatenate([probability[y, a:b] for y, a, b in rows]).mean()
        if score < BOX_THRESHOLD:
            continue
        ends = np.array([(x, y + dy) for y, a, b in rows for x in (a, b) for dy in (0, 1)], np.float64)
        box = smallest_rectangle(ends)
        width, height = 2 * np.hypot(*box.along), 2 * np.hypot(*box.down)
        if min(width, height) < MIN_BOX_SIDE:
            continue
        distance = width * height * UNCLIP_RATIO / (2 * (width + height))
        box.along *= 1 + 2 * distance / width
        box.down *= 1 + 2 * distance / height
        boxes.append(box)
    return boxes


def regions(mask: np.ndarray) -> list[list[tuple[int, int, int]]]:
    """The 8-connected regions of a mask, each as its runs of pixels (y, first x, x after the last)."""
    parent: list[int] = []

    def root(k: int) -> int:
        while parent[k] != k:
            parent[k] = parent[parent[k]]
            k = parent[k]
        return k

    runs: list[tuple[int, int, int]] = []
    above: list[int] = []
    for y, row in enumerate(mask):
        edges = np.flatnonzero(np.diff(row.astype(np.int8), prepend=0, append=0))
        here = []
        for a, b in edges.reshape(-1, 2).tolist():
            k = len(runs)
            runs.append((y, a, b))
            parent.append(k)
            here.append(k)
            for other in above:
                if runs[other][1] <= b and a <= runs[other][2]:
                    parent[root(other)] = root(k)
        above = here
    groups: dict[int, list] = {}
    for k, run in enumerate(runs):
        groups.setdefault(root(k), []).append(run)
    return list(groups.values())


def convex_hull(points: np.ndarray) -> np.ndarray:
    """Andrew's monotone chain."""
    points = np.unique(points, axis=0)

    def chain(sequence):
        out = []
        for p in sequence:
            while len(out) > 1:
                (ax, ay), (bx, by) = out[-1] - out[-2], p - out[-2]
                if ax * by - ay * bx > 0:
                    break
                out.pop()
            out.append(p)
        return out[:-1]

    return np.array(chain(points) + chain(points[::-1]))


def smallest_rectangle(points: np.ndarray) -> Box:
    """The rectangle of least area around the points; one of its sides lies on a side of their convex hull."""
    hull = convex_hull(points)
    edges = np.roll(hull, -1, axis=0) - hull
    directions = edges / np.hypot(edges[:, 0], edges[:, 1])[:, np.newaxis]
    normals = np.stack([-directions[:, 1], directions[:, 0]], axis=1)
    u, v = hull @ directions.T, hull @ normals.T
    k = int(np.argmin(np.ptp(u, axis=0) * np.ptp(v, axis=0)))
    e, n = directions[k], normals[k]
    centre = e * (u[:, k].max() + u[:, k].min()) / 2 + n * (v[:, k].max() + v[:, k].min()) / 2
    sides = [e * np.ptp(u[:, k]) / 2, n * np.ptp(v[:, k]) / 2]
    # Text is read along the side that is closer to the horizontal, unless that is much the shorter one.
    along, down = sorted(sides, key=lambda s: abs(s[1]) / np.hypot(*s))
    if np.hypot(*down) > 1.5 * np.hypot(*along):
        along, down = down, along
    if along[0] < 0 or (along[0] == 0 and along[1] > 0):
        along = -along
    down = np.array([-along[1], along[0]]) * np.hypot(*down) / np.hypot(*along)
    return Box(centre, along, down)


def reading_order(boxes: list[Box]) -> list[Box]:
    """Rows from top to bottom; a box is in a row if its centre is within half a box of the row's first."""
    rows: list[list[Box]] = []
    for box in sorted(boxes, key=lambda b: b.centre[1]):
        if rows and abs(box.centre[1] - rows[-1][0].centre[1]) < np.hypot(*rows[-1][0].down):
            rows[-1].append(box)
        else:
            rows.append([box])
    return [box for row in rows for box in sorted(row, key=lambda b: b.centre[0])]
