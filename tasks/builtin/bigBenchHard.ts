/** BIG-Bench-Hard in its three forms: with reasoning, with answers alone, and as choices (leaderboard_bbh). */
import { z } from 'zod';
import { mean, overall, readText, version, ZERO, type Definitions, type WrittenMap } from './define.js';

const NAMES = (
  'boolean_expressions causal_judgement date_understanding disambiguation_qa dyck_languages formal_fallacies ' +
  'geometric_shapes hyperbaton logical_deduction_five_objects logical_deduction_seven_objects ' +
  'logical_deduction_three_objects movie_recommendation multistep_arithmetic_two navigate object_counting ' +
  'penguins_in_a_table reasoning_about_colored_objects ruin_names salient_translation_error_detection snarks ' +
  'sports_understanding temporal_sequences tracking_shuffled_objects_five_objects ' +
  'tracking_shuffled_objects_seven_objects tracking_shuffled_objects_three_objects web_of_lies word_sorting'
).split(' ');
/** Their answers cannot be listed. */
const OPEN = new Set(['dyck_languages', 'multistep_arithmetic_two', 'word_sorting']);

const TEXTS = z.record(
  z.string(),
  z.object({
    task: z.string(),
    choices: z.array(z.string()).optional(),
    shots: z.array(z.object({ question: z.string(), answer: z.string(), reasoning: z.string() })),
  }),
);
type Texts = z.infer<typeof TEXTS>[string];

let texts: z.infer<typeof TEXTS> | undefined;
/** Read when the first of these tasks is asked for. */
function textsOf(name: string): Texts {
  texts ??= TEXTS.parse(JSON.parse(readText('bigBenchHard.json')));
  const found = texts[name];
  if (found === undefined) throw new Error(`there are no texts of ${name}`);
  return found;
}

const common = (name: string, target: (shot: Texts['shots'][number]) => string): WrittenMap => ({
  dataset_path: 'SaylorTwift/bbh',
  dataset_name: name,
  test_split: 'test',
  doc_to_target: '{{target}}',
  num_fewshot: 3,
  fewshot_config: {
    sampler: 'first_n',
    samples: textsOf(name).shots.map((shot) => ({ input: shot.question, target: target(shot) })),
  },
});

const until = { until: ['</s>', 'Q', '\n\n'], do_sample: false, temperature: ZERO };

const withReasoning = (name: string): WrittenMap => ({
  ...common(name, ({ reasoning }) => reasoning),
  output_type: 'generate_until',
  description: `${textsOf(name).task}\n\n`,
  doc_to_text: "Q: {{input}}\nA: Let's think step by step.\n",
  target_delimiter: '',
  generation_kwargs: { max_gen_toks: 1024, ...until },
  filter_list: [
    {
      name: 'get-answer',
      filter: [{ function: 'regex', regex_pattern: '(?<=the answer is )(.*)(?=.)' }, { function: 'take_first' }],
    },
  ],
  metric_list: [mean('exact_match')],
  ...version(4),
});

const withAnswers = (name: string): WrittenMap => ({
  ...common(name, ({ answer }) => answer),
  output_type: 'generate_until',
  description: `${textsOf(name).task}\n\n`,
  doc_to_text: 'Q: {{input}}\nA:',
  generation_kwargs: until,
  metric_list: [mean('exact_match')],
  ...version(2),
});

/** The description meets "Q:" with nothing between, as in the public harness. */
const asChoices = (name: string): WrittenMap => ({
  ...common(name, ({ answer }) => answer),
  output_type: 'multiple_choice',
  description: textsOf(name).task,
  doc_to_text: 'Q: {{input}}\nA:',
  doc_to_choice: textsOf(name).choices ?? [],
  metric_list: [mean('acc_norm')],
  ...version(1),
});

export function bigBenchHard(all: Definitions): void {
  const family = (prefix: string, names: readonly string[], made: (name: string) => WrittenMap): string[] =>
    names.map((name) => {
      all.task(`${prefix}_${name}`, () => made(name));
      return `${prefix}_${name}`;
    });
  const reasoned = family('bbh_cot_fewshot', NAMES, withReasoning);
  const score = overall('exact_match', { aggregation: 'mean' });
  for (const group of ['bbh', 'bbh_cot_fewshot'])
    all.group(group, reasoned, {
      aggregate_metric_list: [{ ...score, filter_list: 'get-answer' }],
      ...version(3),
    });
  all.group('bbh_fewshot', family('bbh_fewshot', NAMES, withAnswers), {
    aggregate_metric_list: [score],
    ...version(3),
  });
  const listed = NAMES.filter((name) => !OPEN.has(name));
  all.group('leaderboard_bbh', family('leaderboard_bbh', listed, asChoices), {
    aggregate_metric_list: [overall('acc_norm', { aggregation: 'mean' })],
  });
}
