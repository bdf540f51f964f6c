/** MMLU, and MMLU-Pro with reasoning. */
import { hook, mean, overall, version, whole, ZERO, type Definitions } from './define.js';

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
