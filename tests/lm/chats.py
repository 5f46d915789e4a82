"""Chat templates in the words of the tiny tokenizer, and conversations to read through them."""

from tests.lm.tiny_models import tiny_tokenizer

_ROLES = "{% set names = {'system': 'w37', 'user': 'w38', 'assistant': 'w39'} %}"
MARKED = (
    _ROLES
    + "{% for m in messages %}<s>{{ names[m.role] }} {{ m.content }}</s>{% endfor %}"
    + "{% if add_generation_prompt %}<s>w39 {% endif %}"
)
"""Every message between marks with the name of its role, as in ChatML."""
BRACKETED = (
    "{% for m in messages %}{% if m.role == 'user' %}<s>w38 {{ m.content }} w38{% else %} {{ m.content | trim }}</s>"
    "{% endif %}{% endfor %}"
)
"""Only the user's messages are marked, and nothing is written before an answer, as in Llama 2."""
COUNTED = _ROLES + "{% for m in messages %}w{{ messages | length }} {{ names[m.role] }} {{ m.content }}{% endfor %}"
"""The beginning of a conversation depends on its length."""
RAISES = "{{ raise_exception('Conversation roles must\nalternate.') }}"

QUESTION = [{"role": "user", "content": "w1 w2"}]
ANSWERED = [*QUESTION, {"role": "assistant", "content": "w3 w4 w5"}]
DIALOGUE = [*ANSWERED, {"role": "user", "content": "w6"}]
LONGER = [
    {"role": "system", "content": "w7"},
    *DIALOGUE,
    {"role": "assistant", "content": "w8 w9"},
    {"role": "user", "content": "w10 w11"},
]


def chatty(template=MARKED):
    """Return the tiny tokenizer with a chat template."""
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    return tokenizer


def word(i):
    """Return the token of the word ``wi``."""
    return 4 + i
