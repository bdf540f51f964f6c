/** GSM8K: answers are written out, and their last number counts. */
import { z } from 'zod';
import { Float } from '../../python/value.js';
import { mean, readText, version, ZERO, type Definitions, type Written, type WrittenMap } from './define.js';

const SHOTS = z.array(z.object({ question: z.string(), target: z.string() }));

const FLEXIBLE = '(-?[$0-9.,]{2,})|(-?[0-9]+)';
const filter = (name: string, regex: WrittenMap): WrittenMap => ({
  name,
  filter: [{ function: 'regex', ...regex }, { function: 'take_first' }],
});

const common = (strict: string): WrittenMap => ({
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
      ...common('#### (\\-?[0-9\\.\\,]+)'),
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
      ...common(AFTER_ANSWER),
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
      ...common(AFTER_ANSWER),
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
      ...common(AFTER_ANSWER),
      ...TRAIN,
      doc_to_text: "Q: {{question}}\nA: Let's think step by step.",
      doc_to_target: '{{answer}}',
      ...ending('Q:'),
      num_fewshot: 0,
    }),
    ['math_word_problems'],
  );
}
