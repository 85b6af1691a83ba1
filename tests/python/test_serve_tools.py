"""Calls of functions by served language models: reading the forms in which models write them, grammars that make models write them, and OpenAI's client."""

import json
import random

import pytest
import sardonyx

for package in ("fastapi", "uvicorn", "prometheus_client"):
    pytest.importorskip(package, reason=f"serving needs the package {package}")
openai = pytest.importorskip("openai", reason="its client is the tests' client")

from sardonyx.llm import Engine  # noqa: E402
from sardonyx.llm.constraints import Constraints  # noqa: E402
from sardonyx.serve.tool_calls import ToolParser, read_calls, tool_format  # noqa: E402
from sardonyx.serve.tool_grammar import Function, tool_grammar  # noqa: E402
from serving import servers, write_model  # noqa: E402

MARKED = """{% if tools %}[tools]{% for t in tools %}{{ t | tojson }}{% endfor %}<tool_call>{% endif %}{% for m in messages %}[{{m.role}}]{{m.content}}{% for c in m.tool_calls %}{{c.function.name}}:{{c.function.arguments.city}}{% endfor %}{% endfor %}[assistant]"""
LISTED = "{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}{% endif %}[TOOL_CALLS]{{ messages[0].content }}"
BARE = '{% if tools %}Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.{% endif %}{{ messages[0].content }}'
CITY = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"], "additionalProperties": False}  # fmt: skip


def tool(name, parameters=CITY, **own):
    return {"type": "function", "function": {"name": name, "description": "a test", "parameters": parameters, **own}}


def parsed(form, text, names=("weather", "time"), parallel=True, parts=None):
    """Content and (name, arguments) of an answer that comes in parts."""
    parser = ToolParser(form, names, parallel=parallel)
    content, calls = "", []
    deltas = []
    for part in [text] if parts is None else parts:
        deltas += parser.add(part)
    for d in (*deltas, *parser.finish()):
        content += d.content
        if d.name:
            assert d.index == len(calls) and d.id
            calls.append([d.name, ""])
        if d.arguments:
            calls[d.index][1] += d.arguments
    return content, calls


ANSWERS = [
    (MARKED, 'Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"city": "R}\\"{ome"}}\n</tool_call>', "Let me see.", [["weather", '{"city": "R}\\"{ome"}']]),
    (MARKED, '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>\n<tool_call>\n{"arguments": {"x": [1, {}]}, "name": "time"}\n</tool_call>', "", [["weather", "{}"], ["time", '{"x": [1, {}]}']]),
    (MARKED, '<tool_call>{"name": "rm", "arguments": {}}</tool_call> ok', '<tool_call>{"name": "rm", "arguments": {}}</tool_call> ok', []),
    (MARKED, "a <tool_call> b", "a <tool_call> b", []),
    (MARKED, "1 < 2 <tool", "1 < 2 <tool", []),
    (MARKED, '<tool_call>\n{"name": "weather", "arguments": {"city": "Ro', "", [["weather", '{"city": "Ro']]),
    (MARKED, "only text \n", "only text \n", []),
    (MARKED, '<tool_call>{"name": 3}</tool_call>', '<tool_call>{"name": 3}</tool_call>', []),
    (LISTED, '[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Rome"}}, {"name": "time", "arguments": {"a": "]"}, "id": "x"}]', "", [["weather", '{"city": "Rome"}'], ["time", '{"a": "]"}']]),
    (LISTED, "[TOOL_CALLS] none", "[TOOL_CALLS] none", []),
    (BARE, ' {"name": "weather", "parameters": {"city": "Oslo"}}', "", [["weather", '{"city": "Oslo"}']]),
    (BARE, '<|python_tag|>{"name": "weather", "parameters": {}}; {"name": "time", "parameters": {}}', "", [["weather", "{}"], ["time", "{}"]]),
    (BARE, 'It is {"name": "weather", "parameters": {}}', 'It is {"name": "weather", "parameters": {}}', []),
    (BARE, '{"answer": 42} or so', '{"answer": 42} or so', []),
]  # fmt: skip


@pytest.mark.parametrize("template, text, content, calls", ANSWERS)
def test_answers_are_read_in_any_parts(template, text, content, calls):
    form = tool_format(template)
    assert parsed(form, text) == (content, calls)
    assert parsed(form, text, parts=list(text)) == (content, calls)
    rng = random.Random(1)
    for _ in range(10):
        cuts = sorted(rng.randrange(len(text) + 1) for _ in range(3))
        parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])]
        assert parsed(form, text, parts=parts) == (content, calls)
    assert len(parsed(form, text, parallel=False)[1]) == min(1, len(calls))
    whole = read_calls(ToolParser(form, ("weather", "time")), text)
    assert whole[0] == content and [c["function"]["name"] for c in whole[1]] == [n for n, _ in calls]


def test_random_answers_keep_their_characters():
    """Nothing is lost of what is no call, in any order of marks and braces; and parts do not matter."""
    rng = random.Random(3)
    bits = ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "{", "}", "[", "]", '"', "\\", '"name"', ": ", "weather", '"weather"', ", ", '"arguments"', '"parameters"', "\n", " ", "x", "<|python_tag|>", '{"name": "weather", "arguments": {"a": 1}}', ";"]  # fmt: skip
    for template in (MARKED, LISTED, BARE):
        form = tool_format(template)
        for _ in range(300):
            text = "".join(rng.choice(bits) for _ in range(rng.randrange(1, 14)))
            found = parsed(form, text)
            assert found == parsed(form, text, parts=list(text)), text
            if not found[1]:
                assert found[0] in (text, text.strip(), text.lstrip()) or template == BARE, text


def test_forms_that_are_not_known():
    for template in (
        "{{ messages }}",
        "{{ tools }}",
        "{{ tools }}<tool_call><function=x>",
        "{{ tools }}[TOOL_CALLS]f[ARGS]",
    ):
        with pytest.raises(sardonyx.UnsupportedError):
            tool_format(template)
    assert tool_format(LISTED).new_id().isalnum() and len(tool_format(LISTED).new_id()) == 9


# ---- grammars
@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = write_model(tmp_path_factory.mktemp("models") / "tiny", positions=2048)
    (path / "chat_template.jinja").write_text(MARKED)
    return path


def takes(engine, grammar, text, special=()):
    """Whether the grammar takes a text of single-byte tokens; special: (text, token) that stand for themselves."""
    constraint = Constraints(engine._folder).make("lark", grammar)
    tokens = engine.encode(text)
    for name, token in special:
        mark = engine.encode(name)
        at = 0
        while at + len(mark) <= len(tokens):
            if tokens[at : at + len(mark)] == mark:
                tokens[at : at + len(mark)] = [token]
            at += 1
    for t in (*tokens, engine.ends[0]):
        mask = constraint.allowed()
        if not mask[t // 32] >> (t % 32) & 1:
            return False
        constraint.accept(t)
    return True


def test_a_grammar_whose_size_is_seen_as_it_is_read(folder):
    with Engine(folder, max_sequences=1) as engine:
        constraint = Constraints(engine._folder).make("regex", "a{1000000000}")
        constraint.allowed()
        with pytest.raises(sardonyx.InvalidArgumentError, match="too large"):
            constraint.accept(engine.encode("a")[0])


def call(template, name, arguments):
    text = json.dumps({"name": name, tool_format(template).arguments: arguments})
    return {MARKED: f"<tool_call>\n{text}\n</tool_call>", LISTED: f"[TOOL_CALLS] [{text}]", BARE: text}[template]


@pytest.mark.parametrize("template", [MARKED, LISTED, BARE])
@pytest.mark.parametrize("marks", [False, True])
def test_grammars(folder, template, marks):
    pytest.importorskip("llguidance", reason="grammars need the package llguidance")
    form, engine = tool_format(template), Engine(folder, cache_memory=1 << 20)
    token = engine.special_token("<s>")  # stands for the mark
    special = (lambda t: token if t == form.begin else None) if marks else (lambda t: None)
    stands = [(form.begin, token)] if marks and form.begin else []
    functions = [Function("weather", CITY, strict=True), Function("time", {"type": "object"})]
    right, wrong = call(template, "weather", {"city": "Rome"}), call(template, "weather", {"city": "Bonn"})
    other = call(template, "time", {"x": [1]})

    def grammar(needed, parallel=False):
        return tool_grammar(form, functions, special, needed=needed, parallel=parallel)

    for needed in (True, False):
        assert takes(engine, grammar(needed), right, stands) and takes(engine, grammar(needed), other, stands)
        assert not takes(engine, grammar(needed), wrong, stands)
        assert not takes(engine, grammar(needed), call(template, "rm", {}), stands)
        assert takes(engine, grammar(needed), "no call", stands) is not needed
        if form.begin:
            assert takes(engine, grammar(needed), "Well: " + right, stands) is not needed
            two = right + "\n" + other if template == MARKED else right[:-1] + ", " + json.dumps({"name": "time", "arguments": {}}) + "]"  # fmt: skip
            assert takes(engine, grammar(needed, True), two, stands)
            assert not takes(engine, grammar(needed), two, stands)
    engine.close()


def test_a_model_that_must_call(folder):
    """A random model that knows nothing of tools calls the function with arguments of the schema."""
    pytest.importorskip("llguidance", reason="grammars need the package llguidance")
    engine = Engine(folder, cache_memory=1 << 20)
    form = tool_format(engine.chat_template)
    grammar = tool_grammar(form, [Function("weather", CITY)], engine.special_token, needed=True, parallel=False)
    prompt = engine.chat_tokens([{"role": "user", "content": "x"}], [tool("weather")])
    constraint = Constraints(engine._folder).make("lark", grammar)
    answer = engine.generate(prompt, constraint=constraint, max_new_tokens=200)
    engine.close()
    text, calls = read_calls(ToolParser(form, ["weather"]), answer.text)
    assert answer.finished == "end" and not text and calls[0]["function"]["name"] == "weather"
    assert json.loads(calls[0]["function"]["arguments"])["city"] in ("Rome", "Oslo")


# ---- the server
@pytest.fixture
def serve(monkeypatch, folder):
    with servers(monkeypatch, folder) as start:
        yield start


def test_openai_client(serve):
    server = serve(cache_memory=2 << 20)
    client, engine = server.client(), server.engine
    told = 'I ask.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>\n<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'
    engine._decoder.script = engine.encode(told)
    ask = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "?"}],
        "tools": [tool("weather"), tool("time", None)],
    }
    found = client.chat.completions.create(**ask).choices[0]
    calls = found.message.tool_calls
    assert found.finish_reason == "tool_calls" and found.message.content == "I ask."
    assert [(c.function.name, json.loads(c.function.arguments)) for c in calls] == [("weather", {"city": "Rome"}), ("time", {})]  # fmt: skip
    assert len({c.id for c in calls}) == 2
    with client.chat.completions.stream(**ask, n=2) as stream:
        final = stream.get_final_completion()
    for choice in final.choices:
        assert choice.finish_reason == "tool_calls" and choice.message.content == "I ask."
        assert [c.function.name for c in choice.message.tool_calls] == ["weather", "time"]
        assert choice.message.tool_calls[0].function.arguments == '{"city": "Rome"}'
    one = client.chat.completions.create(**ask, parallel_tool_calls=False, logprobs=True).choices[0]
    assert len(one.message.tool_calls) == 1 and one.finish_reason == "tool_calls"
    none = client.chat.completions.create(**ask, tool_choice="none").choices[0]
    assert none.message.content == told and not none.message.tool_calls and none.finish_reason == "stop"
    short = client.chat.completions.create(**ask, max_tokens=60, stream=True)
    parts = [c.choices[0] for c in short]
    assert parts[-1].finish_reason == "length"
    assert (
        "".join(c.function.arguments or "" for p in parts for c in p.delta.tool_calls or [])
        == told[:60].split('"arguments": ')[1]
    )
    # The calls' results are the next turn's prompt.
    engine._decoder.script = engine.encode("It is warm.")
    messages = [*ask["messages"], found.message.model_dump(exclude_none=True)]
    messages += [{"role": "tool", "tool_call_id": c.id, "content": "25"} for c in calls]
    answer = client.chat.completions.create(**{**ask, "messages": messages})
    assert answer.choices[0].message.content == "It is warm." and answer.choices[0].finish_reason == "stop"
    prompt = engine.chat_prompt([{"role": "user", "content": "?"}], [])
    assert answer.usage.prompt_tokens > len(prompt)


def test_wrong_requests(serve, folder):
    server = serve(cache_memory=2 << 20)
    chat = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 4}
    ask = {**chat, "tools": [tool("weather")]}
    said = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "no"}}]}  # fmt: skip
    wrong = [
        ({**chat, "tools": []}, 422),
        ({**chat, "tools": [{"type": "web_search"}]}, 422),
        ({**chat, "tools": [tool("a b")]}, 422),
        ({**chat, "tools": [tool("f", 3)]}, 422),
        ({**chat, "tools": [tool("f"), tool("f")]}, 400),
        ({**chat, "tools": [tool("f")] * 129}, 422),
        ({**chat, "tool_choice": "required"}, 400),
        ({**ask, "tool_choice": "other"}, 422),
        ({**ask, "tool_choice": {"type": "function", "function": {"name": "none"}}}, 400),
        ({**ask, "response_format": {"type": "json_object"}}, 400),
        ({**chat, "messages": [said]}, 400),
        ({**chat, "messages": [{"role": "assistant"}]}, 422),
    ]
    for body, status in wrong:
        assert server.ask("POST", "/v1/chat/completions", body)[0] == status, body
    strange = {**ask, "tool_choice": "required", "tools": [tool("f", {"type": "nothing"})]}
    assert server.ask("POST", "/v1/chat/completions", strange)[0] == 400
    assert server.ask("POST", "/v1/chat/completions", ask)[0] == 200
    server.engine._template.source = "{{ messages }}"
    status, _, content = server.ask("POST", "/v1/chat/completions", ask)
    assert status == 400 and b"has no tools" in content
