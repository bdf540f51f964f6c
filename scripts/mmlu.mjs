/**
 * Turns MMLU as it lies on the Hugging Face hub into questions for `tilewright run --task multiple_choice`:
 *
 *   npm run mmlu -- FOLDER mmlu_5shot.jsonl [--shots 5] [--subjects anatomy,virology]
 *
 * FOLDER holds a folder of Parquet files for each subject: a clone of the dataset cais/mmlu, or its snapshot in a hub
 * cache. The prompts are those of lm-evaluation-harness: a line about the subject, the first questions of the split
 * `dev` with their answers, and the question. The choices are the letters.
 */
import { existsSync, readdirSync, realpathSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { asyncBufferFromFile, parquetReadObjects } from 'hyparquet';
import { compressors } from 'hyparquet-compressors';

/** A module from the build. Its name is computed, so that a checkout that was not built yet can be linted as well. */
const built = (path) => import(new URL(`../dist/${path}`, import.meta.url).href);
const { strip } = await built('python/value.js');
const { writeAtomically } = await built('system/write.js');

const LETTERS = ['A', 'B', 'C', 'D'];
/** Every folder of a subject has it. */
const FIRST_FILE = 'dev-00000-of-00001.parquet';
/** The largest subject takes 1 MB. */
const MAX_BYTES = 2 ** 28;
class Mistake extends Error {}

/** The rows of a split, whose files are named `<split>-00000-of-00001.parquet`. */
async function readSplit(folder, split) {
  const files = readdirSync(folder)
    .filter((name) => name.startsWith(`${split}-`) && name.endsWith('.parquet'))
    .sort();
  if (files.length === 0) throw new Mistake(`${folder} has no file ${split}-*.parquet`);
  const rows = [];
  for (const name of files) {
    const path = realpathSync(join(folder, name));
    if (statSync(path).size > MAX_BYTES) throw new Mistake(`${path} is larger than a split of MMLU can be`);
    rows.push(...(await parquetReadObjects({ file: await asyncBufferFromFile(path), compressors })));
  }
  return rows.map((row, i) => checked(row, `${folder}, ${split} ${i}`));
}

function checked({ question, choices, answer }, where) {
  const right = Number(answer);
  const isWhole =
    typeof question === 'string' &&
    Array.isArray(choices) &&
    choices.length === LETTERS.length &&
    choices.every((choice) => typeof choice === 'string') &&
    LETTERS[right] !== undefined;
  if (!isWhole) throw new Mistake(`${where}: expected a question, ${LETTERS.length} choices and the number of one`);
  return { question, choices, answer: right };
}

const ask = ({ question, choices }) =>
  [strip(question), ...choices.map((choice, i) => `${LETTERS[i]}. ${choice}`), 'Answer:'].join('\n');

/** The questions of a subject, each after the same shots. */
async function subjectLines(folder, subject, shots) {
  const solved = (await readSplit(join(folder, subject), 'dev')).slice(0, shots);
  if (solved.length < shots) throw new Mistake(`${subject} has ${solved.length} questions in its split dev`);
  const before = [
    `The following are multiple choice questions (with answers) about ${subject.replaceAll('_', ' ')}.`,
    ...solved.map((row) => `${ask(row)} ${LETTERS[row.answer]}`),
  ];
  return (await readSplit(join(folder, subject), 'test')).map((row, index) =>
    JSON.stringify({
      subject,
      index,
      context: [...before, ask(row)].join('\n\n'),
      choices: LETTERS,
      label: row.answer,
    }),
  );
}

async function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { shots: { type: 'string', default: '5' }, subjects: { type: 'string' } },
  });
  const [folder, output] = positionals;
  const shots = Number(values.shots);
  if (positionals.length !== 2 || !(Number.isInteger(shots) && shots >= 0 && shots <= 100))
    throw new Mistake('usage: npm run mmlu -- FOLDER mmlu_5shot.jsonl [--shots 5] [--subjects anatomy,virology]');
  if (!existsSync(folder)) throw new Mistake(`there is no folder ${folder}`);
  const isSubject = (name) => /^[a-z][a-z0-9_]*$/.test(name) && existsSync(join(folder, name, FIRST_FILE));
  const subjects = values.subjects?.split(',') ?? readdirSync(folder).filter(isSubject).sort();
  const stranger = subjects.find((name) => !isSubject(name));
  if (stranger !== undefined) throw new Mistake(`${folder} has no subject ${stranger}`);
  if (subjects.length === 0) throw new Mistake(`${folder} has no subjects: folders with ${FIRST_FILE}`);
  const lines = [];
  for (const subject of subjects) lines.push(...(await subjectLines(folder, subject, shots)));
  writeAtomically(output, [`${lines.join('\n')}\n`], 'Free some space, then run the same command again');
  process.stdout.write(`${lines.length} questions of ${subjects.length} subjects in ${output}\n`);
}

try {
  await main();
} catch (error) {
  if (!(error instanceof Error)) throw error;
  process.stderr.write(`error: ${error.message}\n`);
  process.exitCode = 1;
}
