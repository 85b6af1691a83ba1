"""Tuning: which tilings are compiled and run, and the database of measured times. Times are made up on simulated GPUs, whose
times, without their clock, say nothing about a real GPU."""

import json
import sqlite3

import numpy as np
import onnx
import onnx.parser
import pytest
import sardonyx
from cli_support import INVALID_ARGUMENT, IO
from cli_support import sardonyx as cli

CHIP, DEVICE = "gfx942", "sim:gfx942"
MODEL = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
g (float16[n, 64] x, float16[64, 128] w) => (float16[n, 128] y) { y = MatMul (x, w) }""")


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(MODEL, path)
    return path


def feed(n):
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(s).astype(np.float16) for name, s in {"x": (n, 64), "w": (64, 128)}.items()}


def close(model, n):
    f = feed(n)
    want = f["x"].astype(np.float32) @ f["w"].astype(np.float32)
    got = model.run(f)["y"].astype(np.float32)
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-2)  # rounded once to float16


def rows(path):
    with sqlite3.connect(path) as db:
        return db.execute("SELECT * FROM times ORDER BY seconds").fetchall()


def prefer(path, candidate, factor=1e-3):
    """As if this had been the fastest."""
    with sqlite3.connect(path) as db:
        changed = db.execute("UPDATE times SET seconds = seconds * ? WHERE candidate = ?", (factor, candidate)).rowcount
    assert changed > 0


def tune(model, database, n=40, *more):
    return cli(
        "tune", model, "--device", DEVICE, "--dim", f"n={n}", "--tuning-database", database, "--cache-dir", "", *more
    )


def test_tuning_by_the_clock(model, tmp_path):
    database = tmp_path / "clock.tuning"
    assert "1 problems" in tune(model, database, 40, "--timing")
    first = rows(database)
    assert len(first) > 1
    again = tmp_path / "again.tuning"
    tune(model, again, 40, "--timing")
    assert first == rows(again)  # estimates, not times of this machine
    said = cli("tune", model, "--device", "host", "--timing", "--tuning-database", again, code=INVALID_ARGUMENT)
    assert "tuning is for GPUs" in said


def test_tune_and_compile(model, tmp_path):
    database = tmp_path / "my.tuning"
    assert "1 problems" in tune(model, database)
    found = rows(database)
    names = [r[7] for r in found]
    assert len(names) == len(set(names)) >= 3 and {r[0] for r in found} == {CHIP}
    assert {r[3:7] for r in found} == {(1, 40, 128, 64)} and all(r[8] > 0 for r in found)
    assert "nothing to tune" in tune(model, database)
    # Whatever is the fastest there is what a program of these sizes has, and it computes the same.
    kernels = set()
    for name in names:
        prefer(database, name, 1e-3)
        fixed = sardonyx.compile(MODEL, device=DEVICE, dims={"n": 40}, tuning_database=database, cache_dir="")
        close(fixed, 40)
        (tile,) = [k for k in fixed.kernels() if k.kind == "tile"]
        assert ", " not in tile.name  # one tiling
        text = cli("inspect", model, "--fix", "n=40", "--device", DEVICE, "--tuning-database", database, "--cache-dir", "",
                   "--kernels", "--source")  # fmt: skip
        assert name in text
        kernels.add(name)
        prefer(database, name, 1e6)
    assert kernels == set(names)
    # For unknown sizes it is one of several, and runs for the tuned one.
    close(sardonyx.compile(MODEL, device=DEVICE, tuning_database=database, cache_dir=""), 40)
    close(sardonyx.compile(MODEL, device=DEVICE, tuning_database=database, cache_dir=""), 33)


ATTENTION = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 23]>
g (float16[b, 8, s, 64] q, float16[b, 2, t, 64] k, float16[b, 2, t, 64] v) => (float16[b, 8, s, 64] y) { y = Attention (q, k, v) }""")


def test_attention_has_candidates(tmp_path):
    """Forms for many and for few queries, and into how many parts the keys are split."""
    rng = np.random.default_rng(0)
    sizes = {"q": (1, 8, 3, 64), "k": (1, 2, 300, 64), "v": (1, 2, 300, 64)}
    x = {name: rng.standard_normal(s).astype(np.float16) for name, s in sizes.items()}
    want = sardonyx.compile(ATTENTION, cache_dir="").run(x)["y"].astype(np.float32)
    model, database = tmp_path / "attention.onnx", tmp_path / "attention.tuning"
    onnx.save(ATTENTION, model)

    def tune():
        dims = [part for d in ("b=1", "s=3", "t=300") for part in ("--dim", d)]
        return cli("tune", model, "--device", DEVICE, *dims, "--tuning-database", database, "--cache-dir", "")

    def check(**dims):
        compiled = sardonyx.compile(ATTENTION, device=DEVICE, tuning_database=database, cache_dir="", dims=dims)
        # Both round probabilities and the result to 11 bits.
        np.testing.assert_allclose(compiled.run(x)["y"].astype(np.float32), want, atol=2e-3)
        (step,) = [k for k in compiled.kernels() if k.kind == "tile"]
        return step.name.split(", ")

    by_rule = sardonyx.compile(ATTENTION, device=DEVICE, cache_dir="")
    np.testing.assert_allclose(by_rule.run(x)["y"].astype(np.float32), want, atol=2e-3)
    assert "8 times 3x300x64" in tune()
    found = {r[7]: r for r in rows(database)}
    assert {f"few rows, keys in {n} parts" for n in (1, 2, 4, 8)} < set(found)
    assert "few rows, keys in 16 parts" not in found  # fewer than 32 keys each
    assert "few rows" in found and any(name.startswith("tiles of ") for name in found)
    assert {r[3:7] for r in found.values()} == {(8, 3, 300, 64)}
    assert all(
        r[2].startswith("attention float16 to float16, heads of 64 and 64, 4 share keys") for r in found.values()
    )
    assert "nothing to tune" in tune()
    for name in found:
        prefer(database, name, 1e-3)
        # For these sizes alone it is one form: a kernel, and with parts one that puts them together.
        parts = not name.startswith("tiles") and name != "few rows, keys in 1 parts"
        assert len(check(b=1, s=3, t=300)) == 1 + parts, name
        check()  # any sizes: this form for these
        prefer(database, name, 1e3)


def test_first_use_times_few(tmp_path):
    database = tmp_path / "few.tuning"
    model = sardonyx.compile(MODEL, device=DEVICE, tuning="first-use", tuning_database=database, cache_dir="")
    for n in (40, 40, 7):
        close(model, n)
    found = rows(database)
    assert {r[4] for r in found} == {40, 7}
    assert all(1 < len([r for r in found if r[4] == m]) <= 3 for m in (40, 7))
    before = database.read_bytes()
    close(sardonyx.compile(MODEL, device=DEVICE, tuning="first-use", tuning_database=database, cache_dir=""), 40)
    assert database.read_bytes() == before


def test_a_tuned_program_file(model, tmp_path):
    """Compiled with a database where no GPU is, for a GPU that is elsewhere."""
    database = tmp_path / "my.tuning"
    tune(model, database)
    cli("compile", model, "--arch", CHIP, "--tuning-database", database, "--cache-dir", "", "-o", tmp_path / "m.sdx")
    close(sardonyx.load(tmp_path / "m.sdx", device=DEVICE), 40)


def test_merge_and_list(model, tmp_path):
    one, two, all_ = (tmp_path / name for name in ("one", "two", "all"))
    tune(model, one, 40)
    tune(model, two, 7, "--quick")
    out = cli("tune", "--tuning-database", all_, "--merge", one, "--merge", two)
    assert len(rows(all_)) == len(rows(one)) + len(rows(two)) and f"{len(rows(two))} of {len(rows(two))}" in out
    # The faster time stays.
    name = rows(one)[0][7]
    prefer(one, name, 0.5)
    assert " 1 of " in cli("tune", "--tuning-database", all_, "--merge", one)
    prefer(one, name, 4)
    assert " 0 of " in cli("tune", "--tuning-database", all_, "--merge", one)
    listed = json.loads(cli("tune", "--tuning-database", all_, "--list", "--json", "-"))
    assert len(listed) == len(rows(all_)) and {r["m"] for r in listed} == {40, 7}
    assert name in cli("tune", "--tuning-database", all_, "--list")


def break_with(statements):
    def change(path):
        with sqlite3.connect(path) as db:
            for s in statements:
                db.execute(s)

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p.write_bytes(b"no database"),
        lambda p: p.write_bytes(p.read_bytes()[:5000]),
        lambda p: p.write_bytes(p.read_bytes()[:4096] + b"\xff" * 4096),
        break_with(["PRAGMA user_version = 1"]),
        break_with(["PRAGMA user_version = 3"]),
        break_with(["PRAGMA application_id = 7"]),
        break_with(["CREATE TABLE more (x)"]),
        break_with(["CREATE VIEW more AS SELECT 1"]),
        break_with(["CREATE TRIGGER t AFTER INSERT ON times BEGIN DELETE FROM times; END"]),
        break_with(["UPDATE times SET seconds = -1"]),
        break_with(["UPDATE times SET seconds = 'soon'"]),
        break_with(["UPDATE times SET m = 0"]),
        break_with(["UPDATE times SET m = 1 << 40"]),
        break_with(["UPDATE times SET arch = ''"]),
        break_with(["UPDATE times SET problem = x'00ff'"]),
        break_with(["UPDATE times SET candidate = candidate || char(10)"]),
        break_with([f"UPDATE times SET problem = '{'x' * 100000}'"]),
        break_with(["UPDATE times SET seconds = 9e999"]),
        break_with(["UPDATE times SET epilogue = 12"]),
        break_with(["UPDATE times SET epilogue = -1"]),
        break_with(["UPDATE times SET epilogue = 'relu'"]),
    ],
)
def test_malformed_databases_are_refused(tmp_path, small_database, change):
    path = tmp_path / "bad"
    path.write_bytes(small_database)
    change(path)
    with pytest.raises(sardonyx.FileError, match=f"{path}.*tuning database"):
        sardonyx.compile(MODEL, device=DEVICE, tuning_database=path, cache_dir="")


@pytest.fixture(scope="module")
def small_database(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuning")
    onnx.save(MODEL, folder / "m.onnx")
    tune(folder / "m.onnx", folder / "d", 40, "--quick")
    return (folder / "d").read_bytes()


def test_a_database_of_other_kernels(tmp_path, small_database):
    """Names that this version has not are no choices; nothing of it is taken for code."""
    path = tmp_path / "other"
    path.write_bytes(small_database)
    break_with(["UPDATE times SET candidate = 'system<1>' WHERE seconds = (SELECT min(seconds) FROM times)"])(path)
    close(sardonyx.compile(MODEL, device=DEVICE, tuning_database=path, cache_dir=""), 40)
    close(sardonyx.compile(MODEL, device=DEVICE, tuning="exhaustive", tuning_database=path, cache_dir=""), 40)


def test_wrong_use(model, tmp_path):
    with pytest.raises(sardonyx.InvalidArgumentError, match="'much'"):
        sardonyx.compile(MODEL, device=DEVICE, tuning="much")
    with pytest.raises(sardonyx.InvalidArgumentError, match="GPUs"):
        sardonyx.compile(MODEL, tuning="exhaustive")
    with pytest.raises(sardonyx.InvalidArgumentError, match="tuning stores its measurements in a tuning database"):
        sardonyx.compile(MODEL, device=DEVICE, tuning="exhaustive", cache_dir="")
    with pytest.raises(sardonyx.FileError, match="sardonyx tune"):
        sardonyx.compile(MODEL, device=DEVICE, tuning_database=tmp_path / "none")
    with pytest.raises(sardonyx.FileError):
        close(
            sardonyx.compile(MODEL, device=DEVICE, tuning="first-use", tuning_database="/proc/none/x", cache_dir=""), 5
        )
    assert "--device" in cli("tune", model, "--tuning-database", tmp_path / "x", code=INVALID_ARGUMENT)
    assert "--tuning-database" in cli("tune", model, "--device", DEVICE, code=INVALID_ARGUMENT)
    assert "name a model" in cli("tune", "--tuning-database", tmp_path / "x", code=INVALID_ARGUMENT)
    cli("tune", "--tuning-database", tmp_path / "x", "--list", code=IO)
    assert not (tmp_path / "x").exists()


def test_in_the_cache(tmp_path):
    model = sardonyx.compile(MODEL, device=DEVICE, tuning="first-use", cache_dir=tmp_path)
    close(model, 9)
    assert len(rows(tmp_path / "tuning-2.sqlite")) >= 2


# Tilings in which workgroups share K of a tile, with a second launch after: every one of them gives the result.
@pytest.mark.parametrize("shares", [2, 4, 8])
@pytest.mark.slow(part=3)
def test_shares_of_k(tmp_path, shares):
    path, database = tmp_path / "m.onnx", tmp_path / "my.tuning"
    onnx.save(
        onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
g (float16[n, 2048] x, float16[2048, 50] w) => (float16[n, 50] y) { p = MatMul (x, w) y = Relu (p) }"""),
        path,
    )
    tune(path, database)
    found = [r for r in rows(database) if f" / {shares}" in str(r)]
    assert found
    with sqlite3.connect(database) as db:
        names = [n for (n,) in db.execute("SELECT candidate FROM times") if n.endswith(f" / {shares}")]
    rng = np.random.default_rng(0)
    f = {
        "x": rng.standard_normal((40, 2048)).astype(np.float16),
        "w": rng.standard_normal((2048, 50)).astype(np.float16),
    }
    want = np.maximum(f["x"].astype(np.float32) @ f["w"].astype(np.float32), 0)
    for k, name in enumerate(names):
        prefer(database, name, 1e-3 ** (k + 1))
        got = sardonyx.compile(path, device=DEVICE, tuning_database=database).run(f)["y"]
        # Sums of 2048 products of about 1, rounded once to float16.
        np.testing.assert_allclose(got.astype(np.float32), want, rtol=1e-3, atol=0.05)


def test_large_tiles_on_cdna4(tmp_path, small_database):
    """Tiles of 256 x 256, whose loads go straight to LDS: partial tiles of rows and columns, a partial last tile of K, a bias."""
    path, database = tmp_path / "m.onnx", tmp_path / "my.tuning"
    database.write_bytes(small_database)
    rng = np.random.default_rng(0)
    w, b = (rng.standard_normal(s).astype(np.float16) for s in [(200, 264), (264,)])
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
g (float16[300, 200] x, float16[200, 264] w, float16[264] b) => (float16[300, 264] y) { p = MatMul (x, w) y = Add (p, b) }""")
    del model.graph.input[1:]
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in (("w", w), ("b", b)))
    onnx.save(model, path)
    # As if this had been measured: the rule takes such tiles for large sizes only.
    with sqlite3.connect(database) as db:
        problem, tiling = "product float16 a=vector b=vector whole buffers=4", "gemm<Tiling<256, 256, 2, 2, 1, 128, 2>>"
        db.execute("INSERT INTO times VALUES ('gfx950', 256, ?, 1, 300, 264, 200, ?, 1e-6, NULL)", (problem, tiling))
    use = ["--tuning-database", database, "--cache-dir", tmp_path / "cache"]
    report = cli("compile", path, "--arch", "gfx950", *use, "--report", "-o", tmp_path / "m.sdx")
    assert " 131072 " in report  # LDS of those tiles alone
    x = rng.standard_normal((300, 200)).astype(np.float16)
    compiled = sardonyx.compile(path, device="sim:gfx950", tuning_database=database, cache_dir=tmp_path / "cache")
    want = x.astype(np.float32) @ w.astype(np.float32) + b.astype(np.float32)
    # Sums of 200 products of about 1, rounded once to float16.
    np.testing.assert_allclose(compiled.run({"x": x})["y"].astype(np.float32), want, rtol=1e-3, atol=0.02)
