/** Hostile task files, data sets and answers of models, through prompts to figures. */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../../errors.js';
import type { Dict } from '../../python/value.js';
import { openSplit } from '../../tasks/data/splits.js';
import { TaskLibrary } from '../../tasks/definition/library.js';
import { tasksBelow } from '../../tasks/definition/settings.js';
import { openTask } from '../../tasks/requests/task.js';
import { type Measured, TaskScores } from '../../tasks/scores/ofTask.js';
import { mutateBytes, mutateText, pick, type Random, several } from './mutate.js';
import { expectRefusal } from './refusals.js';
import { scratch } from './scratch.js';

const CHOICES = `output_type: multiple_choice
doc_to_choice: "{{choices}}"
metric_list:
- metric: acc
- metric: acc_mutual_info
- {metric: brier_score, aggregation: brier_score}
- {metric: f1, aggregation: f1}
`;
const TEXTS = `output_type: generate_until
repeats: 2
generation_kwargs: {until: ["\\n"], max_gen_toks: 8, do_sample: true, temperature: 0.5}
filter_list:
- name: strict
  filter:
  - {function: regex, regex_pattern: "(-?[0-9.,]+)", group_select: -1}
  - {function: majority_vote}
  - {function: take_first}
- name: choice
  filter:
  - {function: multi_choice_regex, regex_pattern: "(\\\\([A-Z]\\\\))", ignore_case: true}
  - {function: take_first}
metric_list:
- {metric: exact_match, aggregation: mean, ignore_case: true, regexes_to_ignore: [",", "(?s).*#### "]}
`;
const SCORED = ['output_type: loglikelihood\n', 'output_type: loglikelihood_rolling\n'];
const COMMON = `task: t
dataset_path: json
dataset_kwargs: {data_files: {test: FILE, train: FILE}}
test_split: test
training_split: train
num_fewshot: 1
description: "About {{question|length}}: "
doc_to_text: "Q: {{question.strip()}}\\n{% for c in choices %}{{loop.index}}. {{c}}\\n{% endfor %}A:"
doc_to_target: "{{choices.index(answer) if answer is defined else 0}}"
fewshot_config: {sampler: default}
metadata: {version: 1.0}
`;
const WORDS = [
  '{{',
  '}}',
  '{% if x %}',
  '{% for a in range(100000000) %}',
  '{{ "a" * 100000000 }}',
  '{{ [0] * 100000000 }}',
  '!function utils.f',
  '&a',
  '*a',
  '<<: *a',
  'null',
  '.inf',
  '- ',
  '[',
  '?',
  '|',
  '"',
  "'",
  'include: t.yaml',
  'group: t',
  'majority_vote',
  'take_first_k',
  '(a+)+$',
  'question[-1]',
  'question[::0]',
  'default',
  'first_n',
];
const ROW = { question: 'Why is it so?', choices: ['a b', 'c'], answer: 'c', label: 1 };

function dataOf(random: Random): { readonly name: string; readonly bytes: Uint8Array } {
  if (random() < 0.3) {
    const text = 'question,choices,answer\n"Why, so?",ab,a\nx,"c\n""d""",NA\n';
    const changed = mutateText(text, random, ['"', '""', ',', '\n', '\r', '\0', '1e999', '-0']);
    return {
      name: 'data.csv',
      bytes: random() < 0.3 ? mutateBytes(Buffer.from(changed), random) : Buffer.from(changed),
    };
  }
  const lines = Array.from({ length: 4 }, () => JSON.stringify(random() < 0.3 ? several(ROW, random) : ROW));
  const bytes = Buffer.from(`${lines.join('\n')}\n`);
  return { name: 'data.jsonl', bytes: random() < 0.2 ? mutateBytes(bytes, random) : bytes };
}

const ANSWERS = ['12', '', '(B)', 'a b', '1,000.5\n', '\ud800', ': A', '#### 7'];

/** Figures of answers that are as strange as answers can be. */
async function scored(folder: string, random: Random): Promise<void> {
  for (const { settings } of tasksBelow(new TaskLibrary([folder]).resolve('t'))) {
    const scores = new TaskScores(settings);
    const read = (dataset: string, config: string | undefined, split: string, options?: Dict) =>
      openSplit({ root: folder }, dataset, config, split, options);
    const shots = random() < 0.5 ? undefined : Math.floor(random() * 6);
    const task = await openTask(settings, read, { shots, limit: pick(random, [undefined, 2, 0.5]) });
    const measured: (readonly Measured[])[] = [];
    for await (const { requests, ...document } of task.documents()) {
      const responses = requests.map(() =>
        Array.from({ length: scores.repeats > 100 ? 1 : scores.repeats }, () =>
          scores.type === 'generate_until'
            ? pick(random, ANSWERS)
            : { ll: pick(random, [-1, -0.5, 0, -Infinity, NaN, -1e308]), isGreedy: random() < 0.5 },
        ),
      );
      measured.push(scores.measure(document, responses));
    }
    scores.figures(measured, 10);
  }
}

/** A round takes milliseconds; what hangs or explodes takes far more than this, on any machine. */
const MAX_CPU_US = 20e6;

async function round(random: Random): Promise<void> {
  const folder = join(scratch(), 'tasks');
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  const { name, bytes } = dataOf(random);
  const path = join(folder, name);
  writeFileSync(path, bytes);
  const whole = COMMON + pick(random, [CHOICES, CHOICES, TEXTS, ...SCORED]);
  const text = (random() < 0.8 ? mutateText(whole, random, WORDS) : whole).replaceAll('FILE', path);
  writeFileSync(join(folder, 't.yaml'), text.replaceAll('json\n', name.endsWith('.csv') ? 'csv\n' : 'json\n'));
  const before = process.cpuUsage();
  try {
    await scored(folder, random);
  } catch (error) {
    expectRefusal(error);
    if (error instanceof UserError && error.message.length > 2000) throw error;
  }
  const { user } = process.cpuUsage(before);
  if (user > MAX_CPU_US) throw new Error(`it took ${user / 1e6} s of processor time:\n${text}`);
}

export const tasks = { about: 'task files, data sets and answers, through prompts to figures', rounds: 150, round };
