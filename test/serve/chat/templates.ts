/** Chat templates of the families' kinds, written for tests. */

const CALLS = [
  '{% for c in m.tool_calls %}<tool_call>\n{"name": "{{ c.function.name }}", ',
  '"arguments": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}',
].join('');
const TURNS = [
  '{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}',
  `{% if m.tool_calls %}${CALLS}{% endif %}<|im_end|>\n{% endfor %}`,
].join('');
const TOOLS = '{% if tools %}<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>\n{% endif %}';
const UNTHINKING = '{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}';

/** Calls as Hermes writes them, thoughts unless they are turned off. */
export const HERMES = `${TOOLS}${TURNS}{% if add_generation_prompt %}<|im_start|>assistant\n${UNTHINKING}{% endif %}`;

/** Neither calls nor thoughts. */
export const PLAIN = [
  '{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}',
  '{% if add_generation_prompt %}<|assistant|>{% endif %}',
].join('');

/** It opens the thoughts itself. */
export const OPENED = PLAIN.replace('<|assistant|>{% endif %}', '<|assistant|><think>\n{% endif %}{# </think> #}');

export const MISTRAL = [
  "{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]{% else %}{{ m.content }}{% endif %}",
  '{% endfor %}{# [TOOL_CALLS] #}',
].join('');

export const LLAMA = [
  '{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}<|eot_id|>{% endfor %}',
  '{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}{# "parameters" #}',
].join('');

/** Its messages have parts. */
export const PARTS = [
  '{% for m in messages %}<|{{ m.role }}|>{% for p in m.content %}',
  "{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% endfor %}",
].join('');
