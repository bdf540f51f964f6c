/** The Open LLM Leaderboard, first (openllm) and second (leaderboard_*). */
import { hook, mean, overall, version, ZERO, type Definitions, type Written, type WrittenMap } from './define.js';

const MUSR = ['murder_mysteries', 'object_placements', 'team_allocation'];

function proWithLetters(all: Definitions): void {
  all.task('leaderboard_mmlu_pro', () => ({
    dataset_path: 'TIGER-Lab/MMLU-Pro',
    test_split: 'test',
    fewshot_split: 'validation',
    fewshot_config: { sampler: 'first_n' },
    output_type: 'multiple_choice',
    doc_to_text: hook('mmlu_pro', 'utils.doc_to_text'),
    doc_to_choice: hook('mmlu_pro', 'utils.doc_to_choice'),
    doc_to_target: 'answer',
    metric_list: [mean('acc')],
    num_fewshot: 5,
    ...version(0.1),
  }));
}

function musr(all: Definitions): void {
  for (const split of MUSR)
    all.task(`leaderboard_musr_${split}`, () => ({
      dataset_path: 'TAUR-Lab/MuSR',
      test_split: split,
      output_type: 'multiple_choice',
      doc_to_text: hook('musr', 'utils.doc_to_text'),
      doc_to_target: '{{answer_choice}}',
      doc_to_choice: '{{choices}}',
      metric_list: [mean('acc_norm')],
      ...version(1),
    }));
  all.group(
    'leaderboard_musr',
    MUSR.map((split) => `leaderboard_musr_${split}`),
    { aggregate_metric_list: [overall('acc_norm', { aggregation: 'mean' })] },
  );
}

/** Choices are shuffled by Python's own generator, which all tasks of a run share. */
function gpqa(all: Definitions): void {
  const names = ['diamond', 'extended', 'main'];
  for (const name of names)
    all.task(`leaderboard_gpqa_${name}`, () => ({
      dataset_path: 'Idavidrein/gpqa',
      dataset_name: `gpqa_${name}`,
      output_type: 'multiple_choice',
      process_docs: hook('gpqa', 'utils.process_docs'),
      training_split: 'train',
      validation_split: 'train',
      doc_to_text:
        'What is the correct answer to this question:{{Question}}\nChoices:\n' +
        [1, 2, 3, 4].map((n) => `(${'ABCD'.charAt(n - 1)}) {{choice${n}}}\n`).join('') +
        'Answer: ',
      doc_to_target: 'answer',
      doc_to_choice: ['(A)', '(B)', '(C)', '(D)'],
      num_fewshot: 0,
      fewshot_config: { sampler: 'first_n' },
      metric_list: [mean('acc_norm')],
      ...version(1),
    }));
  all.group(
    'leaderboard_gpqa',
    names.map((name) => `leaderboard_gpqa_${name}`),
    { aggregate_metric_list: [overall('acc_norm', { aggregation: 'mean' })] },
  );
}

/** A prompt with instructions whose answers functions check. */
function instructions(all: Definitions): void {
  const results = hook('ifeval', 'utils.process_results');
  const joined = hook('ifeval', 'utils.agg_inst_level_acc');
  const metric = (name: string, aggregation: Written): WrittenMap => ({
    metric: name,
    aggregation,
    higher_is_better: true,
  });
  const keys = (dataset: string): WrittenMap => ({
    dataset_path: dataset,
    output_type: 'generate_until',
    test_split: 'train',
    num_fewshot: 0,
    doc_to_text: 'prompt',
    doc_to_target: 0,
    generation_kwargs: { until: [], do_sample: false, temperature: ZERO, max_gen_toks: 1280 },
    process_results: results,
    metric_list: ['strict', 'loose'].flatMap((how) => [
      metric(`prompt_level_${how}_acc`, 'mean'),
      metric(`inst_level_${how}_acc`, joined),
    ]),
  });
  all.task('ifeval', () => ({ ...keys('google/IFEval'), ...version(4) }));
  all.task('leaderboard_ifeval', () => ({
    ...keys('wis-k/instruction-following-eval'),
    fewshot_config: { sampler: 'first_n' },
    ...version(3),
  }));
  all.group('leaderboard_instruction_following', ['leaderboard_ifeval']);
}

const OPEN_LLM = [
  { task: 'arc_challenge', fewshot_split: 'train', num_fewshot: 25 },
  { task: 'hellaswag', fewshot_split: 'train', num_fewshot: 10 },
  { task: 'truthfulqa', num_fewshot: 0 },
  { task: 'mmlu', num_fewshot: 5 },
  { task: 'winogrande', fewshot_split: 'train', num_fewshot: 5 },
  { task: 'gsm8k', num_fewshot: 5 },
];

const SUBJECTS = {
  algebra: 'algebra',
  counting_and_prob: 'counting_and_probability',
  geometry: 'geometry',
  intermediate_algebra: 'intermediate_algebra',
  num_theory: 'number_theory',
  prealgebra: 'prealgebra',
  precalculus: 'precalculus',
};

/** Problems of level 5; answers are compared as expressions. */
function hardMath(all: Definitions): void {
  for (const [name, config] of Object.entries(SUBJECTS))
    all.task(`leaderboard_math_${name}_hard`, () => ({
      dataset_path: 'DigitalLearningGmbH/MATH-lighteval',
      dataset_name: config,
      process_docs: hook('math', 'utils.process_docs'),
      output_type: 'generate_until',
      training_split: 'train',
      test_split: 'test',
      doc_to_text: hook('math', 'utils.doc_to_text'),
      process_results: hook('math', 'utils.process_results'),
      doc_to_target: '{{answer if few_shot is undefined else solution}}',
      generation_kwargs: { until: ['Problem:'], do_sample: false, temperature: 0, max_gen_toks: 1024 },
      metric_list: [mean('exact_match'), mean('exact_match_original')],
      num_fewshot: 4,
      ...version(3),
      fewshot_config: { sampler: 'first_n', samples: hook('math', 'utils.list_fewshot_samples') },
    }));
  all.group(
    'leaderboard_math_hard',
    Object.keys(SUBJECTS).map((name) => `leaderboard_math_${name}_hard`),
    { aggregate_metric_list: [overall('exact_match', { aggregation: 'mean' })] },
  );
}

const SECOND = ['mmlu_pro', 'bbh', 'gpqa', 'math_hard', 'ifeval', 'musr'];
const LEVELS = ['inst_level_loose', 'inst_level_strict', 'prompt_level_loose', 'prompt_level_strict'];
const FIGURES = ['acc', 'acc_norm', 'exact_match', ...LEVELS.map((level) => `${level}_acc`)];

export function leaderboard(all: Definitions): void {
  all.group('openllm', OPEN_LLM, { group_alias: 'Open LLM Leaderboard', metadata: { version: 2 } });
  for (const add of [proWithLetters, musr, gpqa, instructions, hardMath]) add(all);
  all.group(
    'leaderboard',
    SECOND.map((name) => `leaderboard_${name}`),
    { aggregate_metric_list: FIGURES.map((name) => overall(name, { aggregation: 'mean' })), ...version(1) },
  );
}
