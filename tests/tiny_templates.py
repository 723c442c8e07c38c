"""Chat templates of the tiny models, each with the output format of its family.

Every template takes contents as a string or as a list of text and image items, several turns, a system message
and `add_generation_prompt`. `show` renders one content; it is put in front of each template.
"""

_SHOW_IN_ORDER = r"""
{%- macro show(content) -%}
    {%- if content is string -%}{{ content }}
    {%- else -%}
        {%- for item in content -%}
            {%- if item.type == 'image' -%}{{ IMAGE }}{%- else -%}{{ item.text }}{%- endif -%}
        {%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
"""
# These families' templates know lists only: of a plain string they write nothing, whoever speaks.
_SHOW_IMAGES_FIRST = r"""
{%- macro show(content) -%}
    {%- for item in content if item.type == 'image' -%}{{ IMAGE }}{%- endfor -%}
    {%- for item in content if item.type == 'text' -%}{{ BEFORE + item.text }}{%- endfor -%}
{%- endmacro -%}
"""


def _in_order(image: str) -> str:
    return _SHOW_IN_ORDER.replace("IMAGE", image)


def _images_first(image: str, before_text: str) -> str:
    return _SHOW_IMAGES_FIRST.replace("BEFORE", before_text).replace("IMAGE", image)


TEXT_ONLY = _in_order("raise_exception('this model reads text only')")

LLAMA = TEXT_ONLY + (
    r"""
{%- macro turn(role, text) -%}
    {{ '<|start_header_id|>' + role + '<|end_header_id|>\n\n' + text + '<|eot_id|>' }}
{%- endmacro -%}
{%- set date = date_string if date_string is defined else '26 Jul 2024' -%}
{%- set system, turns = '', messages -%}
{%- if messages[0].role == 'system' -%}
    {%- set system, turns = show(messages[0].content) | trim, messages[1:] -%}
{%- endif -%}
{{ bos_token }}
{{- turn('system', 'Cutting Knowledge Date: December 2023\nToday Date: ' + date + '\n\n' + system) }}
{%- for message in turns -%}{{ turn(message.role, show(message.content) | trim) }}{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif -%}
"""
)

MISTRAL = TEXT_ONLY + (
    r"""
{%- set system, turns = '', messages -%}
{%- if messages[0].role == 'system' -%}
    {%- set system, turns = show(messages[0].content) + '\n\n', messages[1:] -%}
{%- endif -%}
{{ bos_token }}
{%- for message in turns -%}
    {%- if (message.role == 'user') != (loop.index0 is even) -%}
        {{ raise_exception('user and assistant must take turns') }}
    {%- elif message.role == 'user' -%}
        {{ '[INST] ' + (system if loop.first else '') + show(message.content) + ' [/INST]' }}
    {%- else -%}
        {{ ' ' + show(message.content) + eos_token }}
    {%- endif -%}
{%- endfor -%}
"""
)

_CHATML = r"""
{%- for message in messages -%}
    {{ '<|im_start|>' + message.role + '\n' + show(message.content) + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}
"""
_DEFAULT_SYSTEM = r"""
{%- if messages[0].role != 'system' -%}
    {{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}
{%- endif -%}
"""
_QWEN_IMAGE = "'<|vision_start|><|image_pad|><|vision_end|>'"

QWEN2 = TEXT_ONLY + _DEFAULT_SYSTEM + _CHATML
QWEN2_VL = _in_order(_QWEN_IMAGE) + _DEFAULT_SYSTEM + _CHATML
QWEN3_VL = _in_order(_QWEN_IMAGE) + _CHATML

# Thoughts of finished exchanges are dropped; the answer to the last question keeps its own, empty ones included.
QWEN3 = TEXT_ONLY + (
    r"""
{%- set asked = namespace(at=-1) -%}
{%- for message in messages if message.role == 'user' -%}{%- set asked.at = messages.index(message) -%}{%- endfor -%}
{%- for message in messages -%}
    {%- set text = show(message.content) -%}
    {%- if message.role == 'assistant' -%}
        {%- set parts = text.split('</think>') -%}
        {%- set text = parts[-1].lstrip('\n') -%}
        {%- set thought = parts[0].split('<think>')[-1].strip('\n') if parts | length > 1 else '' -%}
        {%- if loop.index0 > asked.at and (loop.last or thought) -%}
            {%- set text = '<think>\n' + thought + '\n</think>\n\n' + text -%}
        {%- endif -%}
    {%- endif -%}
    {{ '<|im_start|>' + message.role + '\n' + text + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and not enable_thinking -%}{{ '<think>\n\n</think>\n\n' }}{%- endif -%}
{%- endif -%}
"""
)

GLM = _in_order("'<|begin_of_image|><|image|><|end_of_image|>'") + (
    r"""
{{- '[gMASK]<sop>' }}
{%- for message in messages -%}{{ '<|' + message.role + '|>\n' + show(message.content) }}{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>\n' }}{%- endif -%}
"""
)

PADDLE = _images_first("'<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>'", before_text="''") + (
    r"""
{{- '<|begin_of_sentence|>' }}
{%- for message in messages -%}
    {%- if message.role == 'user' -%}{{ 'User: ' + show(message.content) + '\n' }}
    {%- elif message.role == 'assistant' -%}{{ 'Assistant: ' + show(message.content) + eos_token }}
    {%- else -%}{{ show(message.content) + '\n' }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ 'Assistant: ' }}{%- endif -%}
"""
)

LLAVA = _images_first("'<image>'", before_text=r"'\n'") + (
    r"""
{%- for message in messages -%}
    {{ '<|im_start|>' + message.role + ' ' + show(message.content) + '<|im_end|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}
"""
)
