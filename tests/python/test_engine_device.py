"""sardonyx.llm.Engine on one device: steps of answers and prompts together, captured graphs that are made ahead, pages in host memory."""

import llm_models
import pytest
from sardonyx.llm import Engine
from sardonyx.llm.paged_sampling import StepKind
from test_engine import VARIANTS, WAIT, one_by_one


@pytest.mark.parametrize("variant", ["plain", "inside", pytest.param("packed", marks=pytest.mark.slow)])
def test_prompts_beside_answers_on_a_simulated_card(tmp_path, variant):
    """A step of answers and a part of a prompt gives the tokens of greedy decoding; both are in one launch of the model."""
    folder = llm_models.write(
        tmp_path / "m", llm_models.Decoder(layers=1, head_size=32, positions=128, **VARIANTS[variant])
    )
    prompts = [[5, 77, 100], list(range(40)), [9] * 17]
    with Engine(folder, device="sim:gfx942", page_tokens=16, max_sequences=4, cache_memory=1 << 20) as engine:
        first = engine.submit(prompts[0], max_new_tokens=12, ignore_eos=True)
        next(iter(first))
        others = [engine.submit(p, max_new_tokens=4, ignore_eos=True) for p in prompts[1:]]
        assert all(r.wait(WAIT) for r in (first, *others))
        assert any(key[1] == "both" for key in engine._decoder.runs.kept)
    wanted = one_by_one(folder, prompts, 12)
    assert first.answer == wanted[0] and [r.answer for r in others] == [w[:4] for w in wanted[1:]]


def test_rows_of_logits_beside_parts_of_prompts(tmp_path):
    """A step has as many rows of logits as answers: more rows would take slower kernels. If all of them are used, parts of prompts
    that give a token take a step with room for more answers."""
    folder = llm_models.write(tmp_path / "m", llm_models.Decoder(layers=1, head_size=32, positions=128))
    prompts = [[5 + k, 77, 100] for k in range(8)] + [list(range(40)), [9] * 17]
    with Engine(folder, device="sim:gfx942", page_tokens=16, max_sequences=10, cache_memory=1 << 20) as engine:
        first = [engine.submit(p, max_new_tokens=12, ignore_eos=True) for p in prompts[:8]]
        for r in first:
            next(iter(r))
        others = [engine.submit(p, max_new_tokens=4, ignore_eos=True) for p in prompts[8:]]
        assert all(r.wait(WAIT) for r in (*first, *others))
        kept = {key: run for key, run in engine._decoder.runs.kept.items() if key[1] == "both"}
        assert {key[2] for key in kept} >= {16}
        for key, run in kept.items():
            assert run.side().found["next_tokens"].shape == (key[2], 1)
    wanted = one_by_one(folder, prompts, 12)
    assert [r.answer for r in first] == wanted[:8] and [r.answer for r in others] == [w[:4] for w in wanted[8:]]


@pytest.mark.parametrize("device", ["sim:gfx942", "sim:gfx1100"])
@pytest.mark.parametrize("size", [24, 56])
def test_parts_that_are_no_whole_tiles(tmp_path, device, size):
    """Answers and tokens of prompts fill 32 or 64 rows: tokens are those of greedy decoding, whatever the sizes of parts. The parts
    of the last prompt end within a tile, and one of them beside the end of another prompt."""
    folder = llm_models.write(tmp_path / "m", llm_models.Decoder(layers=1, head_size=32, positions=256))
    prompts = [[5 + k, 77, 100] for k in range(4)] + [[9] * 17, [k % 50 for k in range(size + 9)], [7] * 70]
    with Engine(folder, device=device, page_tokens=16, max_sequences=8, cache_memory=1 << 20) as engine:
        engine._scheduler.times.most = lambda answers, tokens, clients: size
        first = [engine.submit(p, max_new_tokens=14, ignore_eos=True) for p in prompts[:4]]
        for r in first:
            next(iter(r))
        others = [engine.submit(p, max_new_tokens=4, ignore_eos=True) for p in prompts[4:]]
        assert all(r.wait(WAIT) for r in (*first, *others))
        assert (8, size) in {key[2:] for key in engine._decoder.runs.kept if key[1] == "both"}
    wanted = one_by_one(folder, prompts, 14)
    assert [r.answer for r in first] == wanted[:4] and [r.answer for r in others] == [w[:4] for w in wanted[4:]]


def test_prepared_graphs_on_a_simulated_card(tmp_path):
    """After prepare(), all kernels are compiled, and no step makes a captured graph or moves a program's memory."""
    folder = llm_models.write(tmp_path / "m", llm_models.Decoder(layers=1, head_size=32, positions=128))
    prompts = [[5, 77, 100], list(range(40)), [9] * 17, [3] * 70]
    with Engine(
        folder, device="sim:gfx942", page_tokens=16, max_sequences=4, cache_memory=1 << 20, step_tokens=64
    ) as engine:
        engine.prepare(StepKind())
        decoder = engine._decoder
        programs = list(decoder.programs._programs.values())
        assert len(programs) == 3 and all(p.compiled.ready == p.compiled.objects for p in programs)
        sizes, memory = set(decoder.runs.kept), [p.memory_in_use() for p in programs]
        assert {key[1] for key in sizes} == {"both", True, False}
        requests = [engine.submit(p, max_new_tokens=12, ignore_eos=True) for p in prompts for _ in range(2)]
        assert all(r.wait(WAIT) for r in requests)
        assert set(decoder.runs.kept) == sizes
        assert [p.memory_in_use() for p in programs] == memory
    wanted = one_by_one(folder, prompts, 12)
    assert [r.answer for r in requests] == [w for w in wanted for _ in range(2)]


@pytest.mark.parametrize("device, cache_type", [("host", ""), ("host", "fp8"), ("sim:gfx942", "int8")])
def test_pages_move_to_host_memory_and_back(tmp_path, device, cache_type):
    """Tokens are those of a cache that is large enough; keys and values of restored tokens are not computed again."""
    small = device != "host"
    folder = llm_models.write(tmp_path / "m", llm_models.Decoder(layers=1, head_size=32, positions=128))
    prompts, count = ([[5] * 30, list(range(30))], 8) if small else ([[5] * 20, list(range(20)), [9] * 17], 60)
    options = {
        "device": device,
        "page_tokens": 16,
        "max_sequences": 4,
        "share_prefixes": False,
        "cache_type": cache_type,
    }
    with Engine(folder, cache_memory=1 << 20, **options) as engine:
        wanted = [a.tokens for a in engine.generate_batch(prompts, max_new_tokens=count, ignore_eos=True)]
        page = engine.statistics().cache_bytes // (engine.statistics().pages + 1)
    # All begin with two pages, and need more than there are as they grow.
    with Engine(folder, cache_memory=(6 if small else 8) * page, swap_memory=16 * page, **options) as engine:
        requests = [engine.submit(p, max_new_tokens=count, ignore_eos=True) for p in prompts]
        assert all(r.wait(WAIT) for r in requests)
        s = engine.statistics()
    assert [r.answer for r in requests] == wanted
    assert s.preemptions > 0 and s.restored_tokens > 0 and s.used_host_pages == 0
    if not small:
        assert s.prompt_tokens == sum(map(len, prompts))
