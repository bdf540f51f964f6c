/** Tasks that generate text: BIG-Bench-Hard and GSM8K. */
import { z } from 'zod';
import { Float } from '../../python/value.js';
import { type Definitions, mean, overall, readText, version, type Written, type WrittenMap, ZERO } from './define.js';

// BIG-Bench-Hard in its three forms: with reasoning, with answers alone, and as choices (leaderboard_bbh).

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
type BigBenchTexts = z.infer<typeof TEXTS>[string];

let texts: z.infer<typeof TEXTS> | undefined;
/** Read when the first of these tasks is asked for. */
function textsOf(name: string): BigBenchTexts {
  texts ??= TEXTS.parse(JSON.parse(readText('bigBenchHard.json')));
  const found = texts[name];
  if (found === undefined) throw new Error(`there are no texts of ${name}`);
  return found;
}

const commonBigBenchHard = (name: string, target: (shot: BigBenchTexts['shots'][number]) => string): WrittenMap => ({
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
  ...commonBigBenchHard(name, ({ reasoning }) => reasoning),
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
  ...commonBigBenchHard(name, ({ answer }) => answer),
  output_type: 'generate_until',
  description: `${textsOf(name).task}\n\n`,
  doc_to_text: 'Q: {{input}}\nA:',
  generation_kwargs: until,
  metric_list: [mean('exact_match')],
  ...version(2),
});

/** The description meets "Q:" with nothing between, as in the public harness. */
const asChoices = (name: string): WrittenMap => ({
  ...commonBigBenchHard(name, ({ answer }) => answer),
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

// GSM8K: answers are written out, and their last number counts.

const SHOTS = z.array(z.object({ question: z.string(), target: z.string() }));

const FLEXIBLE = '(-?[$0-9.,]{2,})|(-?[0-9]+)';
const filter = (name: string, regex: WrittenMap): WrittenMap => ({
  name,
  filter: [{ function: 'regex', ...regex }, { function: 'take_first' }],
});

const commonGsm8k = (strict: string): WrittenMap => ({
  dataset_path: 'openai/gsm8k',
  dataset_name: 'main',
  output_type: 'generate_until',
  test_split: 'test',
  repeats: 1,
  metric_list: [
    mean('exact_match', {
      ignore_case: true,
      ignore_punctuation: false,
      regexes_to_ignore: [',', '\\$', '(?s).*#### ', '\\.$'],
    }),
  ],
  filter_list: [
    filter('strict-match', { regex_pattern: strict }),
    filter('flexible-extract', { group_select: -1, regex_pattern: FLEXIBLE }),
  ],
  ...version(3),
});

const ending = (first: string, options: WrittenMap = {}): WrittenMap => ({
  generation_kwargs: { until: [first, '</s>', '<|im_end|>'] as readonly Written[], do_sample: false, ...options },
});

const AFTER_ANSWER = 'The answer is (\\-?[0-9\\.\\,]+).';
const REASONED = {
  doc_to_text: 'Q: {{question}}\nA:',
  doc_to_target: "{{answer.split('####')[-1].strip() if answer is defined else target}}",
};
const shownSamples = (): WrittenMap => ({
  sampler: 'first_n',
  samples: SHOTS.parse(JSON.parse(readText('gsm8k.json'))),
});
/** The number after the answer, of texts that are chosen before and after it is found. */
const voted = (name: string, before: readonly WrittenMap[] = [], after: readonly WrittenMap[] = []): WrittenMap => ({
  name,
  filter: [
    ...before,
    { function: 'regex', regex_pattern: 'The answer is (\\-?[0-9\\.\\,]*[0-9]+)' },
    ...after,
    { function: 'take_first' },
  ],
});
const TRAIN = { training_split: 'train', fewshot_split: 'train' };

export function gsm8k(all: Definitions): void {
  all.task(
    'gsm8k',
    () => ({
      ...commonGsm8k('#### (\\-?[0-9\\.\\,]+)'),
      ...TRAIN,
      doc_to_text: 'Question: {{question}}\nAnswer:',
      doc_to_target: '{{answer}}',
      ...ending('Question:', { temperature: ZERO }),
      num_fewshot: 5,
    }),
    ['math_word_problems'],
  );
  all.task(
    'gsm8k_cot',
    () => ({
      ...commonGsm8k(AFTER_ANSWER),
      ...REASONED,
      fewshot_config: shownSamples(),
      ...ending('Q:'),
      num_fewshot: 8,
    }),
    ['chain_of_thought'],
  );
  all.task(
    'gsm8k_cot_self_consistency',
    () => ({
      ...commonGsm8k(AFTER_ANSWER),
      ...REASONED,
      fewshot_config: shownSamples(),
      generation_kwargs: { until: ['Q:', '\n\n'], do_sample: true, temperature: new Float(0.2) },
      repeats: 64,
      filter_list: [
        voted('score-first'),
        voted('maj@64', [], [{ function: 'majority_vote' }]),
        voted('maj@8', [{ function: 'take_first_k', k: 8 }], [{ function: 'majority_vote' }]),
      ],
      num_fewshot: 8,
      ...version(2),
    }),
    ['chain_of_thought', 'self_consistency'],
  );
  all.task(
    'gsm8k_cot_zeroshot',
    () => ({
      ...commonGsm8k(AFTER_ANSWER),
      ...TRAIN,
      doc_to_text: "Q: {{question}}\nA: Let's think step by step.",
      doc_to_target: '{{answer}}',
      ...ending('Q:'),
      num_fewshot: 0,
    }),
    ['math_word_problems'],
  );
}
