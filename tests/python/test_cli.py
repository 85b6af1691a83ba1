"""The command line as a whole: help, use, environment, devices, cache, compile, inspect and perf."""

import json
import re

import numpy as np
import pytest
import sardonyx as sdx
from cli_support import DEVICE, INVALID_ARGUMENT, INVALID_MODEL, IO, ROOT, UNSUPPORTED, layer, sardonyx, save
from onnx import TensorProto, helper

COMMANDS = ["run", "verify", "perf", "compile", "inspect", "devices", "cache"]


@pytest.fixture
def model(tmp_path):
    return layer(tmp_path / "m.onnx")[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_by_example(command):
    text = sardonyx(command, "--help")
    assert "Examples:" in text and f"sardonyx {command}" in text


def test_help_lists_the_commands_and_exit_codes():
    text = sardonyx("--help")
    for command in COMMANDS:
        assert re.search(rf"^\s+{command}\s", text, re.M), command
    assert "8 results differ" in text
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", sardonyx("--version"))


def test_wrong_use_is_one_line():
    assert "sardonyx --help" in sardonyx(code=INVALID_ARGUMENT)
    assert "sardonyx" in sardonyx("no-such-command", code=INVALID_ARGUMENT)
    assert "sardonyx run --help" in sardonyx("run", code=INVALID_ARGUMENT)
    assert "--nonsense" in sardonyx("run", "m.onnx", "--nonsense", code=INVALID_ARGUMENT)
    assert "sardonyx devices" in sardonyx("run", "m.onnx", "--device", "abacus", code=INVALID_ARGUMENT)


def test_environment_and_its_precedence(model, tmp_path):
    run = ["run", model, "--dim", "batch=1"]
    assert "3 threads" in sardonyx(*run, SARDONYX_THREADS="3")
    assert "2 threads" in sardonyx(*run, "--threads", "2", SARDONYX_THREADS="3")
    assert "SARDONYX_THREADS" in sardonyx(*run, SARDONYX_THREADS="many", code=INVALID_ARGUMENT)
    assert "abacus" in sardonyx(*run, SARDONYX_DEVICE="abacus", code=INVALID_ARGUMENT)
    assert sardonyx("cache", "dir", SARDONYX_CACHE_DIR=str(tmp_path / "a")) == f"{tmp_path}/a\n"
    chosen = sardonyx("cache", "dir", "--cache-dir", tmp_path / "b", SARDONYX_CACHE_DIR=str(tmp_path / "a"))
    assert chosen == f"{tmp_path}/b\n"
    assert sardonyx("cache", "dir", XDG_CACHE_HOME=str(tmp_path)) == f"{tmp_path}/sardonyx\n"


def test_every_exit_code_is_documented():
    """Those of ErrorKind; tests of the commands see each of them but those for our own defects."""
    header = (ROOT / "include" / "sardonyx" / "error.h").read_text()
    page = (ROOT / "docs" / "command-line.md").read_text()
    codes = [int(n) for n in re.findall(r"^  k\w+ = (\d+)", header, re.M)]
    assert codes == list(range(1, 9))
    assert [int(n) for n in re.findall(r"^\| (\d) \|", page, re.M)] == [0, *codes]


def test_a_card_that_is_not_there(model):
    assert "hip" in sardonyx("run", model, "--dim", "batch=1", "--device", "hip:63", code=DEVICE)


def test_chips(tmp_path):
    text = sardonyx("devices", "--chips")
    assert re.search(r"\| gfx942 +\| CDNA 3 ", text) and "Radeon RX 7900 XTX" in text
    sardonyx("devices", "--json", str(tmp_path / "chips.json"))
    assert json.loads((tmp_path / "chips.json").read_text()) == sdx.chips()


def test_devices():
    assert re.match(r"host  .+ threads", sardonyx("devices"))


def test_cache_and_compile(model, tmp_path):
    cache = ["--cache-dir", tmp_path / "cache"]
    assert "0 entries" in sardonyx("cache", *cache)
    assert not (tmp_path / "cache").exists()
    first = json.loads(sardonyx("compile", model, *cache, "--json", "-"))
    assert first["cache"]["misses"] > 0 and first["cache"]["hits"] == 0
    again = json.loads(sardonyx("compile", model, *cache, "--json", "-"))
    assert again["cache"]["misses"] == 0 and again["cache"]["hits"] == first["cache"]["misses"]
    assert f" {first['cache']['misses']} entries" in sardonyx("cache", *cache)
    assert "deleted" in sardonyx("cache", "clear", *cache)
    assert " 0 entries" in sardonyx("cache", *cache)
    assert "no cache" in sardonyx("cache", "--cache-dir", "", code=INVALID_ARGUMENT)
    assert "there is none" in sardonyx("compile", model, "--cache-dir", "", code=INVALID_ARGUMENT)


def test_program_files(model, tmp_path):
    program = tmp_path / "m.sdx"
    out = json.loads(sardonyx("compile", model, "--cache-dir", "", "-o", program, "--json", "-"))
    assert out["output"] == str(program) and program.stat().st_size > 1000
    size = ["--dim", "batch=3"]
    sardonyx("run", model, *size, "-o", tmp_path / "a.npz")
    assert "total" in sardonyx("run", program, *size, "-o", tmp_path / "b.npz")
    a, b = np.load(tmp_path / "a.npz"), np.load(tmp_path / "b.npz")
    assert all((a[name] == b[name]).all() for name in ("y", "total"))
    assert "p99" in sardonyx("perf", program, *size, "--runs", 10, "--html", tmp_path / "p.html")
    text = sardonyx("inspect", program, *size, "--kernels", "--html", tmp_path / "g.html")
    assert "a compiled program" in text and "x float32 [batch, 4]" in text and "product (MatMul)" in text
    for arguments in (["run", program, "--fix", "batch=2"], ["run", program, "--no-fuse"], ["compile", program]):
        assert "compiled already" in sardonyx(*arguments, code=INVALID_ARGUMENT)
    assert "ONNX Runtime" in sardonyx("verify", program, *size, code=INVALID_ARGUMENT)
    assert "no/m.sdx" in sardonyx("compile", model, "-o", tmp_path / "no" / "m.sdx", code=IO)
    program.write_bytes(program.read_bytes()[:-100])
    assert "m.sdx" in sardonyx("run", program, *size, code=INVALID_MODEL)


def test_inspect(model, tmp_path):
    text = sardonyx("inspect", model, "--kernels")
    assert "x float32 [batch, 4]" in text and "Relu 1" in text and "--dim batch=N" in text
    j = json.loads(sardonyx("inspect", model, "--json", "-", "--dim", "batch=10"))
    launched = [s for s in j["program"]["steps"] if s["kind"] in ("loop", "tile", "routine")]
    assert j["kernels_per_run"] == len(launched) > 0
    assert sum(j["program"]["launches"].values()) == len(launched)
    nodes = {n for s in j["program"]["steps"] for n in s["nodes"]}
    assert nodes == {"product (MatMul)", "bias (Add)", "activation (Relu)", "total (ReduceSum)"}
    # Weights w and b, input and outputs in float32; how much of the constant `axes` stays is the compiler's business.
    assert j["memory"]["inputs"] == 4 * 40 and j["memory"]["outputs"] == 4 * (30 + 10)
    assert 4 * 15 <= j["memory"]["weights"] <= 4 * 15 + 64
    unfused = json.loads(sardonyx("inspect", model, "--json", "-", "--no-fuse"))
    assert unfused["kernels_per_run"] > j["kernels_per_run"]
    assert "no input has a dim" in sardonyx("inspect", model, "--dim", "z=1", code=INVALID_ARGUMENT)


def test_inspect_page_is_self_contained(model, tmp_path):
    sardonyx("inspect", model, "--html", tmp_path / "g.html")
    page = (tmp_path / "g.html").read_text()
    assert "/*DATA*/" not in page and "product (MatMul)" in page
    assert not re.search(r"(src|href)\s*=|@import|fetch\(", page)


def test_names_from_a_model_stay_text(tmp_path):
    path = save(
        tmp_path / "m.onnx",
        [helper.make_node("Relu", ["x"], ["y"], name="</script><b>\x1b[31m")],
        [("x", TensorProto.FLOAT, [2])],
        [("y", TensorProto.FLOAT, [2])],
    )
    sardonyx("inspect", path, "--html", tmp_path / "g.html")
    assert "</script><b>" not in (tmp_path / "g.html").read_text()
    assert "\x1b" not in sardonyx("inspect", path, "--kernels")


def test_inspect_shows_all_that_is_refused(tmp_path):
    odd = [helper.make_node("StringNormalizer", ["x"], [f"s{k}"], name=f"odd{k}") for k in range(3)]
    path = save(
        tmp_path / "m.onnx",
        [*odd, helper.make_node("Relu", ["x"], ["y"])],
        [("x", TensorProto.FLOAT, [2])],
        [("y", TensorProto.FLOAT, [2])],
    )
    report = tmp_path / "r.json"
    line = sardonyx("inspect", path, "--json", report, "--html", tmp_path / "g.html", code=UNSUPPORTED)
    assert "3 nodes are refused" in line and "StringNormalizer" in line
    refused = json.loads(report.read_text())["refused"]
    assert len(refused) == 3 and "odd2" in refused[2]["node"]


def test_perf_estimates_times_on_a_simulated_card(model, tmp_path):
    out, timeline = tmp_path / "t.json", tmp_path / "timeline.json"
    text = sardonyx("perf", model, "--dim", "batch=3", "--device", "sim:gfx942", "--timing")
    assert "a run, estimated" in text and "(MatMul)" in text and "lost most" in text
    sardonyx(
        "perf", model, "--dim", "batch=3", "--device", "sim:gfx942", "--timing", "--json", out, "--timeline", timeline
    )
    j = json.loads(out.read_text())
    launches = j["launches"]
    assert launches and all(x["us"] > 0 and x["product"] == "Instinct MI300X" for x in launches)
    assert abs(j["estimated_kernel_seconds"] - sum(x["us"] for x in launches) * 1e-6) < 1e-9
    # Each step's time is that of its launches.
    assert abs(j["estimated_seconds"] - sum(x["estimated_seconds"] for x in j["steps"])) < 1e-6
    assert {e["ph"] for e in json.loads(timeline.read_text())["traceEvents"]} == {"M", "X"}
    # The clock repeats itself.
    sardonyx("perf", model, "--dim", "batch=3", "--device", "sim:gfx942", "--timing", "--json", timeline)
    assert json.loads(timeline.read_text())["estimated_seconds"] == j["estimated_seconds"]
    assert "choose one, as with --device sim:gfx942" in sardonyx("perf", model, "--timing", code=INVALID_ARGUMENT)
    assert "--timing" in sardonyx("perf", model, "--sample", code=INVALID_ARGUMENT)
    assert "a run, estimated" in sardonyx("perf", model, "--dim", "batch=3", "--device", "sim:gfx1030", "--timing")


def test_perf(model, tmp_path):
    text = sardonyx("perf", model, "--dim", "batch=3", "--runs", 20, "--warmup", 2)
    assert "p99" in text and "runs/s" in text and "(MatMul)" in text
    out = tmp_path / "p.json"
    sardonyx("perf", model, "--dim", "batch=3", "--runs", 20, "--json", out, "--html", tmp_path / "p.html")
    j = json.loads(out.read_text())
    t = j["latency_seconds"]
    assert 0 < t["min"] <= t["p50"] <= t["p90"] <= t["p95"] <= t["p99"] <= t["max"]
    assert len(j["times"]) == j["runs"] == 20 and t["max"] == max(j["times"])
    assert j["memory_bytes"]["peak"] > 10_000_000  # the compiler alone takes more
    assert {k["nodes"] for k in j["kernels"]} and all(k["seconds"] >= 0 for k in j["kernels"])
    page = (tmp_path / "p.html").read_text()
    assert "/*DATA*/" not in page and not re.search(r"(src|href)\s*=|@import|fetch\(", page)
