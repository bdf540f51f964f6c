/** Tasks that choose among a question's answers: ARC, HellaSwag, PIQA, WinoGrande, SuperGLUE and others. */
import { defined } from '../../system/defined.js';
import { decontaminated, hook, mean, version, type Definitions, type Written, type WrittenMap } from './define.js';

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
