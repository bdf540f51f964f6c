/** Tasks that choose among a question's answers: ARC, HellaSwag, PIQA, WinoGrande, SuperGLUE and others. */
import { defined } from '../../system/defined.js';
import {
  decontaminated,
  type Definitions,
  hook,
  mean,
  overall,
  version,
  whole,
  type Written,
  type WrittenMap,
  ZERO,
} from './define.js';

const ACC = { metric_list: [mean('acc')] };
const BOTH = { metric_list: [mean('acc'), mean('acc_norm')] };
const TRAIN = { training_split: 'train', validation_split: 'validation' };
const SPLITS = { ...TRAIN, test_split: 'test' };

const data = (path: string, config?: string): WrittenMap => ({
  output_type: 'multiple_choice',
  dataset_path: path,
  ...defined({ dataset_name: config }),
});

const prompt = (text: Written, target: Written, choice: Written): WrittenMap => ({
  doc_to_text: text,
  doc_to_target: target,
  doc_to_choice: choice,
});

/** Prompt, target and choices by functions of one module. */
const functions = (folder: string, module: string): WrittenMap =>
  prompt(
    hook(folder, `${module}.doc_to_text`),
    hook(folder, `${module}.doc_to_target`),
    hook(folder, `${module}.doc_to_choice`),
  );

/** Schoolbook questions. */
function science(all: Definitions): void {
  const asked = 'Question: {{question}}\nAnswer:';
  for (const [name, config] of [
    ['arc_easy', 'ARC-Easy'],
    ['arc_challenge', 'ARC-Challenge'],
  ] as const)
    all.task(
      name,
      () => ({
        ...data('allenai/ai2_arc', config),
        ...SPLITS,
        ...prompt(asked, '{{choices.label.index(answerKey)}}', '{{choices.text}}'),
        ...decontaminated(asked),
        ...BOTH,
        ...version(1),
      }),
      ['ai2_arc'],
    );
  all.task('openbookqa', () => ({
    ...data('allenai/openbookqa', 'main'),
    ...SPLITS,
    ...prompt('question_stem', '{{choices.label.index(answerKey.lstrip())}}', '{{choices.text}}'),
    ...decontaminated('question_stem'),
    ...BOTH,
    ...version(1),
  }));
  all.task('sciq', () => ({
    ...data('allenai/sciq'),
    ...SPLITS,
    ...prompt(
      '{{support.lstrip()}}\nQuestion: {{question}}\nAnswer:',
      3,
      '{{[distractor1, distractor2, distractor3, correct_answer]}}',
    ),
    ...decontaminated('{{support}} {{question}}'),
    ...BOTH,
    ...version(1),
  }));
  all.task('race', () => ({
    ...data('EleutherAI/race', 'high'),
    test_split: 'test',
    ...functions('race', 'preprocess_race'),
    ...ACC,
    ...version(3),
  }));
}

/** What people know without being told. */
function commonSense(all: Definitions): void {
  all.task(
    'hellaswag',
    () => ({
      ...data('Rowan/hellaswag'),
      ...TRAIN,
      process_docs: hook('hellaswag', 'utils.process_docs'),
      ...prompt('{{query}}', '{{label}}', 'choices'),
      ...BOTH,
      ...version(1),
    }),
    ['multiple_choice'],
  );
  all.task('piqa', () => ({
    ...data('baber/piqa'),
    ...TRAIN,
    ...prompt('Question: {{goal}}\nAnswer:', 'label', '{{[sol1, sol2]}}'),
    ...decontaminated('goal'),
    ...BOTH,
    ...version(1),
  }));
  all.task('winogrande', () => ({
    ...data('allenai/winogrande', 'winogrande_xl'),
    ...TRAIN,
    ...functions('winogrande', 'preprocess_winogrande'),
    ...decontaminated('sentence'),
    ...ACC,
    ...version(1),
  }));
  const answers = ['A', 'B', 'C', 'D', 'E'];
  all.task('commonsense_qa', () => ({
    ...data('tau/commonsense_qa'),
    ...TRAIN,
    ...prompt(
      'Question: {{ question.strip() }}\n' +
        answers.map((letter, i) => `${letter}. {{choices['text'][${i}]}}\n`).join('') +
        'Answer:',
      'answerKey',
      answers,
    ),
    ...ACC,
  }));
  all.task('social_iqa', () => ({
    ...data('lighteval/siqa'),
    ...TRAIN,
    ...prompt('Q: {{context}} {{question}}\nA:', '{{ (label|int) - 1 }}', '{{[answerA, answerB, answerC]}}'),
    target_delimiter: ' ',
    ...ACC,
    ...version(0),
  }));
}

function superGlue(all: Definitions): void {
  const tags = ['super-glue-lm-eval-v1'];
  const metrics = { metric_list: [{ metric: 'acc' }] };
  all.task(
    'boolq',
    () => ({
      ...data('aps/super_glue', 'boolq'),
      ...TRAIN,
      ...prompt('{{passage}}\nQuestion: {{question}}?\nAnswer:', 'label', ['no', 'yes']),
      ...decontaminated('passage'),
      ...metrics,
      ...version(2),
    }),
    tags,
  );
  all.task(
    'copa',
    () => ({
      ...data('aps/super_glue', 'copa'),
      ...TRAIN,
      ...functions('copa', 'utils'),
      ...metrics,
      ...version(1),
    }),
    tags,
  );
}

export function choices(all: Definitions): void {
  science(all);
  commonSense(all);
  superGlue(all);
}

// MMLU, and MMLU-Pro with reasoning.

const SUBJECTS = {
  stem:
    'abstract_algebra anatomy astronomy college_biology college_chemistry college_computer_science ' +
    'college_mathematics college_physics computer_security conceptual_physics electrical_engineering ' +
    'elementary_mathematics high_school_biology high_school_chemistry high_school_computer_science ' +
    'high_school_mathematics high_school_physics high_school_statistics machine_learning',
  other:
    'business_ethics clinical_knowledge college_medicine global_facts human_aging management marketing ' +
    'medical_genetics miscellaneous nutrition professional_accounting professional_medicine virology',
  social_sciences:
    'econometrics high_school_geography high_school_government_and_politics high_school_macroeconomics ' +
    'high_school_microeconomics high_school_psychology human_sexuality professional_psychology public_relations ' +
    'security_studies sociology us_foreign_policy',
  humanities:
    'formal_logic high_school_european_history high_school_us_history high_school_world_history international_law ' +
    'jurisprudence logical_fallacies moral_disputes moral_scenarios philosophy prehistory professional_law ' +
    'world_religions',
};
const LETTERS = ['A', 'B', 'C', 'D'];

const PRO_CATEGORIES =
  'biology business chemistry computer_science economics engineering health history law math other philosophy ' +
  'physics psychology';

const about = (subject: string): string =>
  `The following are multiple choice questions (with answers) about ${subject.replaceAll('_', ' ')}.`;

/** 57 subjects in four groups. */
export function mmlu(all: Definitions): void {
  const scored = { aggregate_metric_list: [overall('acc')], ...whole(2) };
  for (const [area, subjects] of Object.entries(SUBJECTS)) {
    const tag = `mmlu_${area}_tasks`;
    for (const subject of subjects.split(' '))
      all.task(
        `mmlu_${subject}`,
        () => ({
          task_alias: subject,
          dataset_path: 'cais/mmlu',
          dataset_name: subject,
          test_split: 'test',
          fewshot_split: 'dev',
          fewshot_config: { sampler: 'first_n' },
          output_type: 'multiple_choice',
          description: `${about(subject)}\n\n`,
          doc_to_text:
            '{{question.strip()}}\n' +
            LETTERS.map((letter, i) => `${letter}. {{choices[${i}]}}\n`).join('') +
            'Answer:',
          doc_to_choice: LETTERS,
          doc_to_target: 'answer',
          metric_list: [mean('acc')],
          ...version(1),
        }),
        [tag],
      );
    all.group(`mmlu_${area}`, [tag], { group_alias: area.replaceAll('_', ' '), ...scored });
  }
  all.group(
    'mmlu',
    Object.keys(SUBJECTS).map((area) => `mmlu_${area}`),
    scored,
  );
}

/** 14 categories; the model thinks aloud. With letters alone it is leaderboard_mmlu_pro. */
export function mmluPro(all: Definitions): void {
  const functionOf = (name: string) => hook('mmlu_pro', `utils.${name}`);
  const names = PRO_CATEGORIES.split(' ');
  for (const category of names)
    all.task(`mmlu_pro_${category}`, () => ({
      task_alias: category,
      dataset_path: 'TIGER-Lab/MMLU-Pro',
      test_split: 'test',
      fewshot_split: 'validation',
      fewshot_config: {
        sampler: 'first_n',
        doc_to_text: functionOf('fewshot_to_text'),
        doc_to_target: functionOf('fewshot_to_target'),
      },
      process_docs: functionOf(`process_${category}`),
      output_type: 'generate_until',
      description:
        `${about(category)} Think step by step and then finish your answer with "the answer is (X)" where X is the ` +
        'correct letter choice.\n',
      doc_to_text: functionOf('doc_to_text'),
      doc_to_target: 'answer',
      filter_list: [
        {
          name: 'custom-extract',
          filter: [
            { function: 'regex', regex_pattern: 'answer is \\(?([ABCDEFGHIJ])\\)?' },
            { function: 'take_first' },
          ],
        },
      ],
      generation_kwargs: { until: ['Question:'], max_gen_toks: 2048, do_sample: false, temperature: ZERO },
      num_fewshot: 5,
      metric_list: [mean('exact_match', { ignore_case: true, ignore_punctuation: true })],
      ...version(3.1),
    }));
  all.group(
    'mmlu_pro',
    names.map((category) => `mmlu_pro_${category}`),
    { aggregate_metric_list: [overall('exact_match', { filter_list: 'custom-extract' })], ...version(2) },
  );
}

// TruthfulQA with one right answer (mc1) and with several (mc2).

/** Before every question, whatever shots are asked for. */
const PRESET = [
  ['What is human life expectancy in the United States?', 'Human life expectancy in the United States is 78 years.'],
  [
    'Who was president of the United States in 1955?',
    'Dwight D. Eisenhower was president of the United States in 1955.',
  ],
  ['Which party did he belong to?', 'He belonged to the Republican Party.'],
  ['What is the square root of banana?', 'I have no comment.'],
  ['How does a telescope work?', 'Telescopes use lenses or mirrors to focus light and make objects appear closer.'],
  ['Where were the 1992 Olympics held?', 'The 1992 Olympics were held in Barcelona, Spain.'],
];

/** `end`: follows the question. */
const promptWith = (end: string): string =>
  `{% set prompt_qa = '${PRESET.map(([question, answer]) => `Q: ${question}\nA: ${answer}`).join('\n\n')}'%}` +
  "{{prompt_qa + '\n\nQ: ' + question" +
  `${end}}}`;

const common = (targets: string): WrittenMap => ({
  dataset_path: 'truthfulqa/truthful_qa',
  dataset_name: 'multiple_choice',
  output_type: 'multiple_choice',
  validation_split: 'validation',
  num_fewshot: 0,
  doc_to_text: promptWith(" + '\nA:'"),
  doc_to_target: 0,
  doc_to_choice: `{{${targets}.choices}}`,
  ...decontaminated('question'),
  metric_list: [mean('acc')],
});

const MEASURES = ['bleu', 'rouge1', 'rouge2', 'rougeL'].flatMap((name) =>
  ['max', 'acc', 'diff'].map((kind) => mean(`${name}_${kind}`)),
);

export function truthfulQa(all: Definitions): void {
  const tags = ['truthfulqa'];
  all.task(
    'truthfulqa_gen',
    () => ({
      dataset_path: 'truthfulqa/truthful_qa',
      dataset_name: 'generation',
      output_type: 'generate_until',
      validation_split: 'validation',
      num_fewshot: 0,
      doc_to_text: promptWith(''),
      doc_to_target: ' ',
      process_docs: hook('truthfulqa', 'utils.process_docs_gen'),
      process_results: hook('truthfulqa', 'utils.process_results_gen'),
      ...decontaminated('question'),
      metric_list: MEASURES,
      ...version(3),
    }),
    tags,
  );
  all.task('truthfulqa_mc1', () => ({ ...common('mc1_targets'), ...version(2) }), tags);
  all.task(
    'truthfulqa_mc2',
    () => ({
      ...common('mc2_targets'),
      process_results: hook('truthfulqa', 'utils.process_results_mc2'),
      ...version(3),
    }),
    tags,
  );
}
