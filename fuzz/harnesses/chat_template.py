"""Chat templates: a file of Jinja, or a field of tokenizer_config.json, rendered for a short talk."""

import json

from fuzz.scratch import FOLDER, put
from regard.hub.chat import find_chat_template

READS = ("regard.hub.chat",)
TALK = [
    {"role": "user", "content": "a red bird"},
    {"role": "assistant", "content": "yes"},
    {"role": "user", "content": "why?"},
]
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}<u>{{ message['content'] | trim }}"
    "{% else %}{{ message.content }}{{ eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"
)
WORDS = [
    b"{{", b"}}", b"{%", b"%}", b"{% for x in range(9) %}", b"{% endfor %}", b"{% set x = 1 %}",
    b"{% macro m(a) %}", b"{% endmacro %}", b"{% if x %}", b"{% endif %}",
    b"x * 99", b"'a' * 999999999", b"| join", b"| tojson", b"| list", b"| length", b"loop.index",
    b"namespace(a=1)", b"raise_exception('no')", b"x ** 99999",
    b"range(999999999)", b"| center(999999999)", b"| replace('a','aaaa')", b"'%99999999d' % 1",
    b"'{:>99999999}'.format(1)", b"messages", b"strftime_now('%Y')", b"~",
]  # fmt: skip


def seeds() -> list[bytes]:
    """Return a template, and the same in a JSON file."""
    more = "{% set n = namespace(x=0) %}{% for m in messages %}{% set n.x = 1 %}{{ n.x }}{{ m | tojson }}{% endfor %}"
    settings = {
        "chat_template": [{"name": "default", "template": TEMPLATE}],
        "bos_token": "<s>",
        "eos_token": {"content": "</s>"},
    }
    return [TEMPLATE.encode(), more.encode(), json.dumps(settings).encode()]


def run(data: bytes) -> None:
    """Find the template and render it."""
    as_json = data[:1] == b"{" and data[:2] not in (b"{{", b"{%")
    put("chat/tokenizer_config.json", data if as_json else b'{"bos_token": "<s>"}')
    (FOLDER / "chat" / "chat_template.jinja").unlink(missing_ok=True)
    if not as_json:
        put("chat/chat_template.jinja", data)
    template = find_chat_template(FOLDER / "chat")
    if template is not None:
        template.render(TALK)
