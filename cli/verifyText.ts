/** A verification as text: what was checked, the first differences, the verdict and the next command. */
import { type Check, type CheckName, CHECKS, type Difference } from '../evaluate/verify/findings.js';
import { kindName, type Verification } from '../evaluate/verify/verification.js';
import { count, counted, duration } from '../system/text.js';
import { quoteForShell } from '../system/process.js';
import { textTable } from '../system/text.js';
import { printableLine } from './report.js';

/** What is counted in each check. */
const WHAT: Readonly<Record<CheckName, readonly [one: string, many: string]>> = {
  samples: ['line', 'lines'],
  data: ['document', 'documents'],
  metrics: ['value', 'values'],
  settings: ['field', 'fields'],
  model: ['property', 'properties'],
  answers: ['answer', 'answers'],
};

const NAMES: Readonly<Record<CheckName, string>> = {
  samples: 'samples as a run writes them, each by its own hashes',
  data: 'documents and prompts, made again from the data',
  metrics: 'metrics and figures, computed again from all samples',
  settings: 'settings, as the record and the tasks say',
  model: 'checkpoint, tokenizer, chat template',
  answers: 'answers, computed again by the model',
};

function row(name: CheckName, { compared, differing, unchecked }: Check): string[] {
  const [one, many] = WHAT[name];
  const found =
    differing > 0
      ? `${count(differing)} ${differing === 1 ? 'difference' : 'differences'}`
      : unchecked !== undefined
        ? `not in full: ${unchecked}`
        : compared === 0
          ? 'not compared'
          : 'agree';
  return [`  ${NAMES[name]}`, counted(compared, one, many), found];
}

const MAX_SHOWN = 8;
const MAX_OF_CHECK = 3;

/** A few of each check, so that many of one kind do not hide another. */
function firstOf(differences: readonly Difference[]): readonly Difference[] {
  return CHECKS.flatMap((check) => differences.filter((each) => each.check === check).slice(0, MAX_OF_CHECK)).slice(
    0,
    MAX_SHOWN,
  );
}

const placeOf = ({ task, doc }: Difference): string =>
  task === undefined ? 'the run' : doc === undefined ? task : `${task}, document ${doc}`;

function differenceLines({ differences, checks }: Verification): string[] {
  const total = CHECKS.reduce((sum, check) => sum + checks[check].differing, 0);
  if (total === 0) return [];
  const shown = firstOf(differences);
  return [
    '',
    total === shown.length ? 'What differs:' : `What differs, ${shown.length} of ${count(total)} (all: --json):`,
    ...shown.flatMap((each) => [
      `  ${placeOf(each)}: ${each.what}`,
      `    recorded ${each.recorded}`,
      `    computed ${each.computed}`,
    ]),
  ];
}

/** What to type next. */
function nextOf(of: Verification, invocation: string): string {
  const path = quoteForShell(of.results);
  const { checks, sample, answers } = of;
  if (of.outcome === 'agrees') {
    const left = sample.of - sample.documents;
    if (left === 0) return 'nothing is left to compute';
    return `${invocation} verify ${path} --sample all   (computes the other ${counted(left, 'document')}, too)`;
  }
  if (checks.model.differing > 0) return `name the model of the results: ${invocation} verify ${path} --model DIR`;
  if (checks.data.differing > 0)
    return `name the data of the results: ${invocation} verify ${path} --data-root DIR (or --data FILE)`;
  if (of.outcome === 'unchecked' && checks.answers.differing > 0)
    return `type the same command on a machine with ${of.devices.recorded.name || of.devices.recorded.isa}`;
  if (of.outcome === 'differs' && answers.documents < sample.of)
    return `see how many: ${invocation} verify ${path} --sample all --json`;
  return `see all of it: ${invocation} verify ${path} --seed ${sample.seed} --json`;
}

function devicesLine({ devices: { recorded, here } }: Verification): string {
  const made = `made on ${kindName(recorded)}`;
  return here === null ? made : `${made}; computed on ${kindName(here)}`;
}

export function verificationText(
  of: Verification,
  { isQuiet, invocation }: { readonly isQuiet: boolean; readonly invocation: string },
): string {
  if (isQuiet) return `${printableLine(of.verdict)}\n`;
  const { documents, of: all, seed } = of.sample;
  const lines = [
    of.results,
    devicesLine(of),
    `${count(documents)} of ${counted(all, 'document')} computed again, drawn by seed ${seed}, in ` +
      duration(of.seconds),
    '',
    ...textTable(
      CHECKS.map((check) => row(check, of.checks[check])),
      new Set([1]),
    ),
    ...differenceLines(of),
    ...(of.notes.length === 0 ? [] : ['', ...of.notes.map((note) => `note: ${note}`)]),
    '',
    of.verdict,
    `next: ${nextOf(of, invocation)}`,
  ];
  return `${lines.map(printableLine).join('\n')}\n`;
}
