/** `npm run bench:compile`: how long models take to plan. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { median } from '../autotune/records.js';
import { type Precision, PRECISIONS } from '../driver/precision.js';
import { UserError } from '../errors.js';
import { defined } from '../system/defined.js';
import { benchCommand, oneOf, repeated, runProgram, text, whole } from './command.js';
import type { Detail, PartTimes, PlanCase, PlanTimes } from './compilePlan.js';
import { modelPath } from './inputs.js';

const CHILD = fileURLToPath(new URL('./compilePlan.js', import.meta.url));

interface PlanAnswer {
  readonly measured: PlanTimes;
  readonly detail?: Detail;
}

/** The answer of a process of its own; the text of its error where it has none. */
function planOnce(each: PlanCase, hasDetail: boolean): PlanAnswer | string {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [CHILD, JSON.stringify(each), ...(hasDetail ? ['detail'] : [])],
    { encoding: 'utf8', maxBuffer: 1 << 26 },
  );
  if (status === 0) return JSON.parse(stdout) as PlanAnswer;
  return /^\w*Error: (.*)$/m.exec(stderr)?.[1] ?? (stderr.trim() || 'the process ended');
}

function measureRow(each: PlanCase, name: string, options: CompileBenchOptions): PlanRow {
  const rounds: PlanTimes[] = [];
  let detail: Detail | undefined;
  for (let round = 0; round < options.rounds; round++) {
    const answer = planOnce(each, options.detail === true && round === 0);
    if (typeof answer === 'string') return { name, problem: answer };
    rounds.push(answer.measured);
    detail ??= answer.detail;
  }
  return { name, measured: medianOf(rounds), ...defined({ detail }) };
}

async function main(options: CompileBenchOptions): Promise<void> {
  const layers = options.layers.length === 0 ? [undefined] : options.layers;
  if (options.json !== true) console.log(HEADER);
  let found = 0;
  for (const model of options.model)
    for (const precision of options.precision)
      for (const fn of options.function) {
        const rows = layers.map((count) => {
          const each: PlanCase = {
            path: modelPath(model),
            precision,
            target: options.target,
            ...(fn === 'step' ? { cacheTokens: options.cacheTokens } : {}),
            ...defined({ layers: count }),
          };
          const name = [model, precision, fn, ...(count === undefined ? [] : [`${count} layers`])].join(' ');
          const row = measureRow(each, name, options);
          console.log(options.json === true ? JSON.stringify({ ...each, ...row }) : rowLine(row));
          if (row.detail !== undefined && options.json !== true) console.log(detailLines(row.detail).join('\n'));
          if (row.measured !== undefined) found++;
          return row;
        });
        const [first, last] = [rows[0], rows.at(-1)];
        if (options.json !== true && rows.length > 1) console.log(growthLine(first!, last!));
      }
  if (found === 0) throw new UserError('no model could be planned', 'npm run bench:compile -- --help');
}

const FUNCTIONS = ['score', 'step'] as const;
const TARGETS = ['cpu', 'cuda:sm_80', 'cuda:sm_90a'] as const;

export interface CompileBenchOptions {
  readonly model: readonly string[];
  readonly precision: readonly Precision[];
  readonly function: readonly (typeof FUNCTIONS)[number][];
  readonly target: (typeof TARGETS)[number];
  readonly cacheTokens: number;
  /** Empty: the model's own number. */
  readonly layers: readonly number[];
  readonly rounds: number;
  readonly detail?: boolean;
  readonly json?: boolean;
}

export const compileCommand = (): Command =>
  benchCommand(
    'bench:compile',
    'How long models take to plan: from a config.json to kernels, memory and schedules, and to the sources of ' +
      'all kernels. Nothing is compiled or loaded, and no GPU is needed. Each plan is made in a process of its ' +
      'own, as a command makes it; figures are medians. plan: seconds of compileModel; cpu: processor time of ' +
      'that, which other programs disturb less; emit: seconds for the sources of all kernels; check: seconds in ' +
      'which a plan that was read is checked against its own kernels.',
  )
    .option('--model <path>', 'folder of a config.json, or one below bench/models; may be repeated', repeated(text), [
      'llama-8b',
      'llama-33b',
      'qwen3-30b-a3b',
      'gemma-2-9b',
    ])
    .option(
      '--precision <name>',
      "as the commands' --precision and --quantize; int4 takes a model as if its matrices were stored in 4 bits, in " +
        'groups of 128; may be repeated',
      repeated(oneOf(PRECISIONS)),
      ['bf16', 'fp8', 'int4'],
    )
    .option(
      '--function <name>',
      'score alone, or score with step, which keeps keys and values; may be repeated',
      repeated(oneOf(FUNCTIONS)),
      [...FUNCTIONS],
    )
    .option('--target <name>', 'cpu, cuda:sm_80 or cuda:sm_90a', oneOf(TARGETS), 'cuda:sm_90a')
    .option('--cache-tokens <n>', 'tokens that step keeps keys and values of', whole(32, 1 << 24), 65_536)
    .option(
      '--layers <n>',
      "as many layers instead of the model's own; given twice, growth with layers is printed",
      repeated(whole(1, 1000)),
      [],
    )
    .option('--rounds <n>', 'plans for each figure', whole(1, 100), 3)
    .option(
      '--detail',
      'also, from a second plan in the same process, milliseconds by pass (each with the verification of what it ' +
        'leaves, which a command does at the end only), and by kind of kernel: signatures, default schedules, sources',
    )
    .option('--json', 'one line of JSON for each row, for programs');

/** What the benchmark of planning prints. */

export interface PlanRow {
  readonly name: string;
  /** Absent where the model could not be planned. */
  readonly measured?: PlanTimes;
  readonly problem?: string;
  readonly detail?: Detail;
}

const NAME_COLUMNS = 38;
const COLUMNS = ['plan', 'cpu', 'emit', 'check', 'launches', 'sources'] as const;
const WIDTH = 9;

export const HEADER = ''.padEnd(NAME_COLUMNS) + COLUMNS.map((name) => name.padStart(WIDTH)).join('');

/** The median of each figure. */
export const medianOf = (rounds: readonly PlanTimes[]): PlanTimes => {
  const of = (key: keyof PlanTimes): number => median(rounds.map((round) => round[key]));
  return {
    planSeconds: of('planSeconds'),
    planCpuSeconds: of('planCpuSeconds'),
    emitSeconds: of('emitSeconds'),
    checkSeconds: of('checkSeconds'),
    launches: of('launches'),
    sources: of('sources'),
  };
};

export function rowLine({ name, measured, problem }: PlanRow): string {
  if (measured === undefined) return `${name.padEnd(NAME_COLUMNS)} ${problem ?? ''}`;
  const { planSeconds, planCpuSeconds, emitSeconds, checkSeconds, launches, sources } = measured;
  const times = [planSeconds, planCpuSeconds, emitSeconds, checkSeconds].map((value) => value.toFixed(2));
  return name.padEnd(NAME_COLUMNS) + [...times, launches, sources].map((text) => String(text).padStart(WIDTH)).join('');
}

/** How processor time grows between two rows of one model. */
export function growthLine(first: PlanRow, last: PlanRow): string {
  if (first.measured === undefined || last.measured === undefined) return '  growth: unknown';
  const [launches, cpu] = (['launches', 'planCpuSeconds'] as const).map(
    (key) => last.measured![key] / first.measured![key],
  );
  return `  ${launches!.toFixed(2)} times as many launches: ${cpu!.toFixed(2)} times the processor time`;
}

const partLines = (title: string, parts: PartTimes): string[] => {
  const sorted = Object.entries(parts).toSorted(([, a], [, b]) => b - a);
  const total = sorted.reduce((sum, [, value]) => sum + value, 0);
  return [
    `  ${title}, ${total.toFixed(0)} ms`,
    ...sorted.map(([name, value]) => `    ${value.toFixed(1).padStart(8)}  ${name}`),
  ];
};

export const detailLines = ({ passes, signatures, schedules, emission }: Detail): string[] => [
  ...partLines('by pass', passes),
  ...partLines('signatures, by anchor', signatures),
  ...partLines('default schedules, by kind of kernel', schedules),
  ...partLines('sources, by kind of kernel', emission),
];

await runProgram(import.meta.url, compileCommand, main);
