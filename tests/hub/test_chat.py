"""Chat templates: the texts and ids of `transformers`, and no way out of the sandbox."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers

from regard.hub import chat, chat_worker
from regard.hub.chat import ChatTemplate, find_chat_template
from regard.tokens import Tokenizer
from tests.tokens.conftest import LINES

transformers = pytest.importorskip("transformers")
pytest.importorskip("jinja2")

TEMPLATES = {
    "chatml": """\
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message.content | trim + '<|im_end|>' + '\\n' }}
{%- endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}
{% endif %}
""",
    "instructions": """\
{% if messages[0].role == 'system' %}
{% set first = '<<SYS>>\\n' ~ messages[0].content ~ '\\n<</SYS>>\\n\\n' %}
{% set rest = messages[1:] %}
{% else %}
{% set first, rest = '', messages %}
{% endif %}
{% for message in rest %}
{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('roles must alternate: user, assistant, … but message ' ~ loop.index ~ ' is by ' ~ message.role) }}
{% endif %}
{% if message.role == 'user' %}
{{- bos_token + '[INST] ' + (first if loop.first else '') + message.content.strip() + ' [/INST]' -}}
{% elif message.role == 'assistant' %}
{{- ' ' ~ message.content ~ ' ' ~ eos_token -}}
{% endif %}
{% endfor %}""",
    "headers": """\
{{- bos_token }}
{%- set ns = namespace(count=0, self='x') %}
{%- if tools is not none or documents is not none %}{{- raise_exception('there are no tools') }}{%- endif %}
{%- macro head(role) %}{{ '<|start|>' ~ role ~ '<|end|>\\n\\n' }}{%- endmacro %}
{%- for message in messages %}
  {%- set ns.count = ns.count + 1 %}
  {{- head(message.role) + message['content'] + '<|eot|>' }}
{%- endfor %}
{%- if pad_token is defined %}{{- '(padded)' }}{%- endif %}
{%- if add_generation_prompt %}{{- head('assistant') }}{%- endif %}
{{- ns.count }} {{ ns.self }} {{ undefined_token }}""",
    "dated": """\
Today is {{ strftime_now('%d %B %Y') }}.
{% for message in messages %}{{ message.role }}: {{ message.content }}
{% endfor %}
""",
    "picking": """\
{% for message in messages %}
  {% if message.role == 'system' %}{% continue %}{% endif %}
  {% if loop.index > 3 %}{% break %}{% endif %}
  {% generation %}{{ message.content }}{% set hidden = 1 %}{% endgeneration %}{{ hidden }}
{% endfor %}""",
    "json": """\
{% for message in messages %}{{ message | tojson }}
{{ message | tojson(indent=2, sort_keys=true) }}{{ message.content | tojson(ensure_ascii=true) }}
{{ dict(a=1) | tojson }}
{% endfor %}""",
}
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one": [{"role": "user", "content": "Where was Ada born?"}],
    "system": [
        {"role": "system", "content": "Be brief. <b>No</b> 'HTML' & no \"quotes\"."},
        {"role": "user", "content": "  The cat sat\non the mat  "},
        {"role": "assistant", "content": "größer, schöner 😀"},
        {"role": "user", "content": "{{ messages }} {% raw %} <|im_end|><|eot|> </s>"},
    ],
    "more": [
        {"role": ("user", "assistant")[turn % 2], "content": f"the hat {turn}", "name": "Ada", "extra": [turn, None]}
        for turn in range(5)
    ],
    "wrong": [{"role": "assistant", "content": "hello"}, {"role": "tool", "content": ""}],
}
NAMES = ["<|im_start|>", "<|im_end|>", "<|start|>", "<|end|>", "<|eot|>"]


@pytest.fixture(scope="module", params=["bytes", "pieces"])
def theirs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A tokenizer as GPT-2's, and one as Llama's, which puts a space in front of a text."""
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<unk>", "<s>", "</s>", *NAMES], show_progress=False
    )
    inner = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=request.param == "pieces"))
    if request.param == "bytes":
        inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = decoders.ByteLevel()
    else:
        inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    inner.train_from_iterator(LINES, trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def write(directory: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():
        (directory / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return directory


def refusal(source: str, messages: list[dict[str, Any]] | None = None, **tokens: str) -> str:
    """The one line that is said."""
    with pytest.raises(ValueError) as caught:
        ChatTemplate(source=source, tokens=tokens).render(messages or CONVERSATIONS["one"])
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
        "{{ 'x' * 3000000000 }}",
        "{{ 9 ** 9 ** 9 }}",
    ],
)
def test_a_template_comes_to_an_end(source):
    with pytest.raises(ValueError, match="what a template must not"):
        ChatTemplate(source=source).render([{"role": "user", "content": "hi"}])


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' | center(10000000000) }}",
        "{{ '%010000000000d' % 1 }}",
        "{{ ('%s' * 9 ~ '%0999999999d') | format(1, 2, 3, 4, 5, 6, 7, 8, 9, 1) | length }}",
        "{{ range(99999) | join('x' * 1000000) | length }}",
        "{% set x = 'a' * 9999 %}{{ x | replace('a', x) | replace('a', x) | length }}",
        "{{ messages | tojson(indent=1000000000) | length }}",
        "{{ 'x'.ljust(3000000000) | length }}",
    ],
)
def test_a_template_has_little_memory(source):
    """Filters and methods make large values that no operator of the sandbox sees; the process has no room for them."""
    with pytest.raises(ValueError, match=r"what a template must not|the chat template failed .(Overflow|Value)Error"):
        ChatTemplate(source=source).render([{"role": "user", "content": "hi"}])
    assert ChatTemplate(source="a{{ messages[0].content }}").render([{"role": "user", "content": "hi"}]) == "ahi"
    assert resource.prlimit(chat._worker.process.pid, resource.RLIMIT_AS)[0] == 512 * 1024**2


def test_a_template_has_little_time(monkeypatch):
    """Few turns may take long; the time is that of the processor, and the next template gets a new process."""
    monkeypatch.setattr(chat, "SECONDS", 0.2)
    with pytest.raises(ValueError, match="what a template must not .it takes more than 0.2 s"):
        ChatTemplate(source=ENDLESS).render([{"role": "user", "content": "hi"}])
    monkeypatch.undo()
    assert ChatTemplate(source="{{ 1 + 1 }}").render([{"role": "user", "content": "hi"}]) == "2"


ENDLESS = "{% for i in range(99999) %}{% set x = range(99999) | list | sort | reverse | list %}{% endfor %}"


@pytest.mark.timeout(300)
def test_the_time_is_limited_where_the_memory_is_already() -> None:
    """A system whose limit of memory is lower than ours refuses ours; the limit of time must not go with it."""
    request = {"source": ENDLESS, "variables": {}, "longest": 99, "seconds": 0.2}
    command = ["sh", "-c", f"ulimit -v 400000; exec {sys.executable} {chat_worker.__file__}"]
    done = subprocess.run(command, input=json.dumps(request) + "\n", text=True, capture_output=True, timeout=240)
    assert done.returncode == -signal.SIGPROF and not done.stdout


def test_the_process_ends_with_its_owner() -> None:
    code = "from regard.hub import chat; chat.ChatTemplate(source='a').render([{}]); print(chat._worker.process.pid)"
    done = subprocess.run([sys.executable, "-W", "error", "-X", "dev", "-c", code], text=True, capture_output=True)
    assert done.returncode == 0 and "ResourceWarning" not in done.stderr, done.stderr
    assert not Path(f"/proc/{done.stdout.strip()}").exists()


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_texts_and_ids_equal_those_of_transformers(theirs: Any, tmp_path: Path, name: str, conversation: str) -> None:
    theirs.chat_template = TEMPLATES[name]
    theirs.save_pretrained(tmp_path)
    template, tokenizer = find_chat_template(tmp_path), Tokenizer.load(tmp_path)
    assert template and template.path.name == "chat_template.jinja"
    messages = CONVERSATIONS[conversation]
    if (name, conversation) == ("instructions", "wrong"):
        with pytest.raises(Exception, match="roles must alternate") as caught:
            theirs.apply_chat_template(messages, tokenize=False)
        with pytest.raises(ValueError, match=f"refuses these messages: {caught.value}; "):
            template.render(messages)
        return
    for prompt in (False, True):
        options = {"add_generation_prompt": prompt}
        text = template.render([MappingProxyType(message) for message in messages], **options)
        assert text == theirs.apply_chat_template(messages, tokenize=False, **options)
        ids = tokenizer.encode(text, parse_special=True)
        assert ids == theirs.apply_chat_template(messages, return_dict=False, **options)
    if name in ("chatml", "headers"):
        starts = theirs.convert_tokens_to_ids("<|im_start|>" if name == "chatml" else "<|start|>")
        assert ids.count(starts) == len(messages) + 1


def test_the_date_is_of_today() -> None:
    source = "{{ strftime_now('%Y-%m-%d') }}"
    before, text, after = datetime.now(), ChatTemplate(source=source).render(CONVERSATIONS["one"]), datetime.now()
    assert text in {f"{when:%Y-%m-%d}" for when in (before, after)}


def test_where_a_template_is_looked_for(tmp_path: Path) -> None:
    def found() -> str:
        template = find_chat_template(tmp_path)
        return template.render(CONVERSATIONS["one"]) if template else "none"

    assert found() == "none"
    write(tmp_path, {"tokenizer_config.json": {"bos_token": "<s>"}})
    assert found() == "none"
    write(tmp_path, {"chat_template.json": {"chat_template": "old"}})
    assert found() == "old"
    several = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "one of several"}]
    write(tmp_path, {"tokenizer_config.json": {"chat_template": several}})
    assert found() == "one of several"
    write(tmp_path, {"tokenizer_config.json": {"chat_template": "config"}})
    assert found() == "config"
    write(tmp_path, {"chat_template.jinja": "file"})
    assert found() == "file"


def test_special_tokens_are_variables(tmp_path: Path) -> None:
    names = "|".join(f"{{{{ {role}_token }}}}" for role in ("bos", "eos", "unk", "pad", "add_bos"))
    settings = {"bos_token": {"content": "<s>", "lstrip": False}, "unk_token": None, "add_bos_token": True}
    files = {
        "chat_template.jinja": names,
        "tokenizer_config.json": settings,
        "special_tokens_map.json": {"eos_token": "</s>", "bos_token": "older"},
    }
    template = find_chat_template(write(tmp_path, files))
    assert template and template.render(CONVERSATIONS["one"]) == "<s>|</s>|||"


def test_our_own_runs_need_no_settings(tmp_path: Path) -> None:
    Tokenizer.train(texts=LINES, vocab_size=300).save(tmp_path)
    assert not (tmp_path / "tokenizer_config.json").exists()
    template = find_chat_template(write(tmp_path, {"chat_template.jinja": "{{ bos_token }}a{{ eos_token }}"}))
    assert template
    tokenizer = Tokenizer.load(tmp_path)
    ids = tokenizer.encode(template.render(CONVERSATIONS["one"]), parse_special=True)
    assert ids == [tokenizer.bos, *tokenizer.encode("a"), tokenizer.eos]


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception.__globals__.keys() }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ '{0.__class__}'.format(1) }}{{ ('{0.__class__.__mro__}' | attr('format'))(1) }}",
        "{{ (messages | attr('__class__')).__mro__ }}",
        "{% set ns = namespace() %}{% set ns.__call__ = 1 %}",
        "{{ namespace(_x=1) }}",
        "{{ namespace({'__html__': 1}) }}",
        "{{ range(10 ** 9) | length }}",
    ],
)
def test_no_way_out_of_the_sandbox(source: str) -> None:
    said = refusal(source)
    assert "chat_template.jinja: the chat template" in said and said.count("; ") >= 1


def test_the_sandbox_is_named_when_it_refuses() -> None:
    assert "does what a template must not" in refusal("{{ ''.__class__.__mro__ }}")
    assert "do not use this checkpoint" in refusal("{{ messages.append(1) }}")


def test_a_template_never_changes_the_messages() -> None:
    messages = [{"role": "user", "content": ["a"]}]
    refusal("{{ messages[0].update(role='system') }}", messages)
    assert messages == [{"role": "user", "content": ["a"]}]


def test_what_is_wrong_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "line 2 of the chat template" in refusal("a\n{% if %}\nb")
    assert "no filter named 'nothing'" in refusal("{{ 1 | nothing }}").lower()
    assert "UndefinedError: 'dict object' has no attribute 'nothing'" in refusal("{{ messages[0].nothing.more }}")
    assert "TypeError" in refusal("{{ messages + 1 }}") and "ZeroDivisionError" in refusal("{{ 1 / 0 }}")
    assert "refuses these messages: no system here; " in refusal("{{ raise_exception('no\\nsystem here') }}")
    assert "what JSON cannot" in refusal("a", [{"role": "user", "content": {1, 2}}])
    with pytest.raises(ValueError, match="no messages; give at least one"):
        ChatTemplate(source="a").render([])
    monkeypatch.setattr(chat, "LONGEST", 1000)
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}xx{% endfor %}{% endfor %}"
    assert "more than 1000 characters" in refusal(endless)


def test_what_is_wrong_with_the_files(tmp_path: Path) -> None:
    def said(name: str, content: Any) -> str:
        write(tmp_path, {name: content})
        with pytest.raises(ValueError, match=name) as caught:
            find_chat_template(tmp_path)
        (tmp_path / name).unlink()
        return str(caught.value)

    assert "none is named 'default'" in said(
        "tokenizer_config.json", {"chat_template": [{"name": "a", "template": ""}]}
    )
    assert "is int, not a text" in said("chat_template.json", {"chat_template": 3})
    assert "not valid JSON" in said("tokenizer_config.json", "{")
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="not UTF-8"):
        find_chat_template(tmp_path)


def test_without_jinja_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "_worker", chat.Worker())
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"pip install 'regard\[serve\]'"):
        ChatTemplate(source="a").render(CONVERSATIONS["one"])


def test_a_process_that_somebody_ended_is_replaced():
    template = ChatTemplate(source="{{ 1 + 1 }}")
    assert template.render([{"role": "user", "content": "hi"}]) == "2"
    process = chat._worker.process
    assert os.getpgid(process.pid) != os.getpgid(0), "Ctrl-C does not reach it"
    process.kill()
    process.wait()
    assert template.render([{"role": "user", "content": "hi"}]) == "2"
