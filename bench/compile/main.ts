/** `npm run bench:compile`: how long models take to plan. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { defined } from '../../system/defined.js';
import { UserError } from '../../errors.js';
import { modelPath } from '../optionReader.js';
import { runProgram } from '../program.js';
import type { Case, Detail, Measured } from './measure.js';
import { parseCompileOptions, USAGE, type CompileBenchOptions } from './options.js';
import { detailLines, growthLine, HEADER, medianOf, rowLine, type Row } from './table.js';

const CHILD = fileURLToPath(new URL('./child.js', import.meta.url));

interface Answer {
  readonly measured: Measured;
  readonly detail?: Detail;
}

/** The answer of a process of its own; the text of its error where it has none. */
function planOnce(each: Case, hasDetail: boolean): Answer | string {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [CHILD, JSON.stringify(each), ...(hasDetail ? ['detail'] : [])],
    { encoding: 'utf8', maxBuffer: 1 << 26 },
  );
  if (status === 0) return JSON.parse(stdout) as Answer;
  return /^\w*Error: (.*)$/m.exec(stderr)?.[1] ?? (stderr.trim() || 'the process ended');
}

function measureRow(each: Case, name: string, options: CompileBenchOptions): Row {
  const rounds: Measured[] = [];
  let detail: Detail | undefined;
  for (let round = 0; round < options.rounds; round++) {
    const answer = planOnce(each, options.hasDetail && round === 0);
    if (typeof answer === 'string') return { name, problem: answer };
    rounds.push(answer.measured);
    detail ??= answer.detail;
  }
  return { name, measured: medianOf(rounds), ...defined({ detail }) };
}

async function main(options: CompileBenchOptions): Promise<void> {
  const layers = options.layers.length === 0 ? [undefined] : options.layers;
  if (!options.isJson) console.log(HEADER);
  let found = 0;
  for (const model of options.models)
    for (const precision of options.precisions)
      for (const fn of options.functions) {
        const rows = layers.map((count) => {
          const each: Case = {
            path: modelPath(model),
            precision,
            target: options.target,
            ...(fn === 'step' ? { cacheTokens: options.cacheTokens } : {}),
            ...defined({ layers: count }),
          };
          const name = [model, precision, fn, ...(count === undefined ? [] : [`${count} layers`])].join(' ');
          const row = measureRow(each, name, options);
          console.log(options.isJson ? JSON.stringify({ ...each, ...row }) : rowLine(row));
          if (row.detail !== undefined && !options.isJson) console.log(detailLines(row.detail).join('\n'));
          if (row.measured !== undefined) found++;
          return row;
        });
        const [first, last] = [rows[0], rows.at(-1)];
        if (!options.isJson && rows.length > 1) console.log(growthLine(first!, last!));
      }
  if (found === 0) throw new UserError('no model could be planned', 'npm run bench:compile -- --help');
}

await runProgram(USAGE, parseCompileOptions, main);
