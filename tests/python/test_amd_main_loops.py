"""The machine code of main loops on AMD's chips: results can be correct although every step waits for memory."""

import re
import shutil
import subprocess

import numpy as np
import onnx
import pytest
from cli_support import BUILD
from onnx import TensorProto, helper, numpy_helper

OBJDUMP = shutil.which("llvm-objdump-22") or "/usr/lib/llvm-22/bin/llvm-objdump"
MATRIX = re.compile(r"\bv_(mfma|wmma)_")
# Waits for loads from global memory: a counter in s_waitcnt, an instruction of its own on gfx12.
WAIT = re.compile(r"\bs_waitcnt .*vmcnt\(|\bs_wait_loadcnt\b")


def product(path, m, n, k, constant, dtype=TensorProto.FLOAT16):
    """a [m, k] times b [k, n]; a constant b is packed with K contiguous, another is read across its rows."""
    inputs = [helper.make_tensor_value_info("a", dtype, [m, k])]
    weights = []
    if constant:
        w = np.random.default_rng(0).standard_normal((k, n)).astype(helper.tensor_dtype_to_np_dtype(dtype))
        weights.append(numpy_helper.from_array(w, "b"))
    else:
        inputs.append(helper.make_tensor_value_info("b", dtype, [k, n]))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["o"])],
        "product",
        inputs,
        [helper.make_tensor_value_info("o", dtype, [m, n])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def convolution(path, channels, size):
    """3 x 3 with padding and a bias, in float16, pixels with channels last."""
    weights = np.random.default_rng(0).standard_normal((channels, channels, 3, 3)).astype(np.float16)
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["t", "w", "b"], ["u"], pads=[1, 1, 1, 1]),
        helper.make_node("Transpose", ["u"], ["y"], perm=[0, 2, 3, 1]),
    ]
    shape = [64, size, size, channels]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT16, shape) for n in "xy")
    constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(weights[:, 0, 0, 0], "b")]
    graph = helper.make_graph(nodes, "convolution", [x], [y], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def instructions(model, chip, folder):
    """(address, text, branch target or None) of every instruction of the model's code object."""
    out = folder / "program.sdx"
    command = [BUILD / "bin" / "sardonyx", "compile", model, "--arch", chip, "--cache-dir", "", "-o", out]
    subprocess.run(command, check=True, capture_output=True)
    data = out.read_bytes()
    code = folder / "code.elf"
    code.write_bytes(data[data.index(b"\x7fELF") :])
    text = subprocess.run([OBJDUMP, "-d", f"--mcpu={chip}", code], check=True, capture_output=True, text=True).stdout
    found = []
    for line in text.splitlines():
        match = re.match(r"\s+(\S.*?)\s*// ([0-9A-F]+):(?:.*<\S+\+0x([0-9a-f]+)>)?", line)
        if match:
            found.append((int(match[2], 16), match[1], match[3]))
    return found


def main_loop(code):
    """The instructions of the innermost loop with the most matrix instructions, in the order of their addresses."""
    best, most = [], 0
    for at, (address, text, _) in enumerate(code):
        branch = re.match(r"s_c?branch\S* (\d+)", text)
        if not branch or int(branch[1]) < 0x8000:
            continue
        target = address + 4 + 4 * (int(branch[1]) - 0x10000)
        body = [c for c in code[: at + 1] if c[0] >= target]
        count = sum(bool(MATRIX.search(c[1])) for c in body)
        if count > most:
            best, most = body, count
    return [c[1] for c in best]


def innermost(code):
    """The instructions of the last branch back over at least 8 matrix instructions that no other such branch is within."""
    best = None
    for at, (address, text, _) in enumerate(code):
        branch = re.match(r"s_c?branch\S* (\d+)", text)
        if not branch or int(branch[1]) < 0x8000:
            continue
        target = address + 4 + 4 * (int(branch[1]) - 0x10000)
        body = [c[1] for c in code[: at + 1] if c[0] >= target]
        if sum(bool(MATRIX.search(c)) for c in body) >= 8 and (best is None or len(body) < len(best)):
            best = body
    return best


def loop_of(code, products):
    """The shortest loop that has so many matrix instructions."""
    loops = []
    for at, (address, text, _) in enumerate(code):
        branch = re.match(r"s_c?branch\S* (\d+)", text)
        if branch and int(branch[1]) >= 0x8000:
            target = address + 4 + 4 * (int(branch[1]) - 0x10000)
            body = [c[1] for c in code[: at + 1] if c[0] >= target]
            if sum(bool(MATRIX.search(c)) for c in body) == products:
                loops.append(body)
    assert loops
    return min(loops, key=len)


def attention(path, heads, length, size):
    """softmax(q k^T / 8) v in float16."""
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, [1, heads, length, size]) for n in "qkv"]
    nodes = [
        helper.make_node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "t"], ["s"]),
        helper.make_node("Mul", ["s", "scale"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["o"]),
    ]
    output = helper.make_tensor_value_info("o", TensorProto.FLOAT16, [1, heads, length, size])
    graph = helper.make_graph(
        nodes, "attention", inputs, [output], [numpy_helper.from_array(np.float16(0.125), "scale")]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def check_no_wait(loop):
    """No wait for memory between a loop's last load and the matrix instruction that follows it."""
    loads = [k for k, text in enumerate(loop) if text.startswith(("global_load", "buffer_load"))]
    matrix = [k for k, text in enumerate(loop) if MATRIX.search(text)]
    assert len(loads) >= 4 and len(matrix) >= 6, loop  # RDNA 3: tiles of 96 x 64, of which a wave has 6 for each step
    # The loop may begin in the middle of a step: from its loads on, around its end if need be.
    after = [k for k in matrix if k > loads[-1]] or [len(loop) + matrix[0]]
    between = (loop + loop)[loads[-1] : after[0]]
    waits = [text for text in between if WAIT.search(text)]
    if any("lds" in loop[k].split("_") or loop[k].endswith(" lds") for k in loads):
        # Several tiles are on their way straight to LDS: a wait may be for one of an earlier step.
        waits = [text for text in waits if int(re.search(r"vmcnt\((\d+)\)", text)[1]) < len(loads)]
    assert not waits, f"waits for memory before the matrix instructions: {waits}"


CHIPS = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"]


@pytest.mark.parametrize("constant", [True, False], ids=["weights", "across"])
@pytest.mark.parametrize("chip", CHIPS)
def test_gemm_multiplies_while_loads_are_in_flight(chip, constant, tmp_path):
    model = tmp_path / "product.onnx"
    product(model, 2048, 2048, 2048, constant)
    code = instructions(model, chip, tmp_path)
    check_no_wait(main_loop(code))
    spills = [text for _, text, _ in code if text.startswith(("scratch_", "buffer_store"))]
    assert not spills, f"registers are spilled to memory: {spills}"


def test_last_steps_of_large_tiles_are_a_loop(tmp_path):
    """Copies of a step take time to compile: besides the main loop's two there are two, and not one for each of the last four."""
    product(tmp_path / "product.onnx", 3136, 2048, 512, True)
    code = instructions(tmp_path / "product.onnx", "gfx942", tmp_path)
    step = sum(bool(MATRIX.search(text)) for text in main_loop(code)) // 2
    assert step > 16, "a smaller tile was chosen, whose last steps are no loop"
    assert sum(bool(MATRIX.search(text)) for _, text, _ in code) == 4 * step


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.BFLOAT16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("chip", CHIPS)
def test_results_are_stored_sixteen_bytes_at_a_time(chip, dtype, tmp_path):
    product(tmp_path / "m.onnx", 1024, 2304, 768, True, dtype)
    stores = [c[1].split()[0] for c in instructions(tmp_path / "m.onnx", chip, tmp_path) if "global_store" in c[1]]
    assert stores and set(stores) <= {"global_store_dwordx4", "global_store_b128"}


@pytest.mark.parametrize("chip", CHIPS)
def test_hardware_masks_the_padding_of_convolutions(chip, tmp_path):
    """Buffer loads get zeros outside: of each load the address alone is selected, not its four registers."""
    model = tmp_path / "convolution.onnx"
    convolution(model, 128, 28)
    code = instructions(model, chip, tmp_path)
    loop = main_loop(code)
    check_no_wait(loop)
    masked = sum(text.startswith("buffer_load") for text in loop)
    assert masked >= 2, loop
    assert sum(text.count("v_cndmask") + text.count("v_dual_cndmask") for text in loop) <= masked
    if chip not in ("gfx942", "gfx950"):
        return
    # On CDNA 3 and 4 sums do not pass through LDS: nothing is written to it after the last product.
    last = max(k for k, (_, text, _) in enumerate(code) if MATRIX.search(text))
    epilogue = [text for _, text, _ in code[last:]]
    assert any(text.startswith("global_store_dwordx4") for text in epilogue)
    assert not any(text.startswith("ds_write") for text in epilogue)


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx950"])
def test_arguments_come_in_registers(chip, tmp_path):
    """Nothing is loaded before the first tile but by firmware that cannot preload arguments: the first 256 bytes."""
    model = tmp_path / "product.onnx"
    product(model, 2048, 2048, 2048, True)
    code = instructions(model, chip, tmp_path)
    loads = [k for k, (_, text, _) in enumerate(code) if text.startswith("global_load_dwordx4")]
    kernel = [text for address, text, _ in code[: loads[0]] if address >= code[0][0] + 256]
    assert kernel and not any(text.startswith("s_load") for text in kernel)


def test_large_gemm_on_cdna4_loads_to_lds(tmp_path):
    """Tiles of 256 x 256: sums in all accumulation registers, which nothing but products may touch in the loop."""
    model = tmp_path / "product.onnx"
    product(model, 4096, 4096, 4096, True)
    code = instructions(model, "gfx950", tmp_path)
    loop = main_loop(code)
    assert sum(bool(MATRIX.search(text)) for text in loop) == 128
    assert sum(text.startswith("global_load_lds_dwordx4") for text in loop) == 16
    others = [text for text in loop if re.search(r"\ba(\d|\[)", text) and not MATRIX.search(text)]
    spills = [text for _, text, _ in code if text.startswith("scratch_")]
    assert not others and not spills


def test_epilogues_on_cdna4_leave_accumulators_alone(tmp_path):
    """Sums are in registers that the compiler does not know (kernels/gemm_direct.h): it must not keep other values there."""
    half, shape = TensorProto.FLOAT16, [4096, 4096]
    weights = [numpy_helper.from_array(np.zeros((1024, 4096), np.float16), "w")]
    weights.append(numpy_helper.from_array(np.zeros(4096, np.float16), "b"))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["n"]),
        helper.make_node("Erf", ["n"], ["e"]),
        helper.make_node("Mish", ["e"], ["f"]),
        helper.make_node("Add", ["f", "r"], ["g"]),
        helper.make_node("Mul", ["g", "s"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", half, [4096, 1024])]
    inputs += [helper.make_tensor_value_info(name, half, shape) for name in "rs"]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", half, shape)], weights)
    model = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), model)
    code = [text for _, text, _ in instructions(model, "gfx950", tmp_path)]
    assert sum(bool(re.match(r"v_mfma_\S+ a\[", text)) for text in code) == 128
    assert not [text for text in code if re.match(r"v_accvgpr_(write_b32 a\d+, v|mov)|scratch_", text)]


# 1024 queries: on gfx942 waves of 16 queries, because there are few tiles; 4096: waves of 32.
@pytest.mark.parametrize(("chip", "length"), [(c, 1024) for c in CHIPS if c != "gfx950"] + [("gfx942", 4096)])
@pytest.mark.parametrize("size", [64, 128])
def test_attention_multiplies_while_loads_are_in_flight(chip, length, size, tmp_path):
    model = tmp_path / "attention.onnx"
    attention(model, 12, length, size)
    check_no_wait(main_loop(instructions(model, chip, tmp_path)))


# Two steps of 64 keys. 1024 queries: waves that have half of the keys.
@pytest.mark.parametrize(("length", "size", "products"), [(1024, 64, 32), (4096, 64, 64), (1024, 128, 64)])
def test_attention_to_lds_multiplies_while_loads_are_in_flight(length, size, products, tmp_path):
    """One wait for memory in each step, which leaves the loads of a later tile in flight."""
    model = tmp_path / "attention.onnx"
    attention(model, 16, length, size)
    loop = loop_of(instructions(model, "gfx950", tmp_path), products)
    loads = sum(text.startswith("global_load_lds_dwordx4") for text in loop)
    left = [int(re.search(r"vmcnt\((\d+)\)", text)[1]) for text in loop if WAIT.search(text)]
    assert loads == size // 8 and len(left) == 2 and min(left) >= loads // 2
    assert sum(text.startswith("s_barrier") for text in loop) == 2


@pytest.mark.parametrize(("length", "size"), [(4096, 64), (1024, 128)])
def test_attention_to_lds_keeps_its_sums_in_registers(length, size, tmp_path):
    model = tmp_path / "attention.onnx"
    attention(model, 16, length, size)
    code = instructions(model, "gfx950", tmp_path)
    assert not [text for _, text, _ in code if text.startswith("scratch_")]


@pytest.mark.parametrize("chip", ["gfx1100", "gfx1201"])
def test_attention_on_rdna_reads_lds_at_constant_offsets(chip, tmp_path):
    """Arithmetic on addresses takes cycles from the matrix instructions: nearly all reads of a step share an address."""
    model = tmp_path / "attention.onnx"
    attention(model, 12, 1024, 64)
    loop = main_loop(instructions(model, chip, tmp_path))
    addresses = [re.search(r"\], (v\d+)", text)[1] for text in loop if text.startswith("ds_load_b128")]
    assert len(addresses) >= 32 and len(set(addresses)) <= 8


def test_tall_products_take_smaller_tiles(tmp_path):
    """Both have 262 to 272 tiles of 192 x 128. In the first each row of a is read by one workgroup, which would wait for memory."""
    chosen = []
    for m, n in ((50176, 128), (3136, 2048)):
        path = tmp_path / "product.onnx"
        product(path, m, n, 512, True)
        command = [BUILD / "bin" / "sardonyx", "inspect", path, "--device", "sim:gfx942", "--kernels", "--source"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        chosen.append(re.findall(r"gemm<Tiling<(\d+), (\d+),", text))
    assert chosen == [[("96", "128")], [("192", "128")]]
