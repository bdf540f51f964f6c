/** `npm run bench:ablation`: what each technique of scoring gives beside one forward over trees. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../errors.js';
import { limitsOf } from '../driver/commands/modelLimits.js';
import { planPathScorer } from '../driver/commands/pathScorer.js';
import { PlanScorer } from '../driver/commands/scorer.js';
import { openOrCompile } from '../driver/compile/open.js';
import { loadExecutor } from '../driver/devices/openReplica.js';
import { detectMachine } from '../driver/machine.js';
import type { Ui } from '../driver/requests.js';
import type { TokenisedQuestion } from '../eval/index.js';
import { parseAblationOptions, USAGE, type AblationOptions } from './ablationOptions.js';
import { NOT_MEASURED, techniquesOf, type Engine } from './ablationRows.js';
import { differences, scoreAll, type Pass } from './ablationPass.js';
import { benchData, packageRoot } from './data.js';

const nothing = (): void => undefined;
const print = (line: string): void => {
  console.error(line);
};
const ui: Ui = { phase: nothing, step: nothing, run: nothing, table: nothing, note: print, warn: print };

const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[values.length >> 1] ?? NaN;

/** A model whose vocabulary is smaller than the tokenizer's still gets valid ids. */
const folded = (questions: readonly TokenisedQuestion[], vocabSize: number): TokenisedQuestion[] => {
  const fold = (ids: Int32Array): Int32Array => ids.map((id) => id % vocabSize);
  return questions.map(({ docId, context, continuations }) => ({
    docId,
    context: fold(context),
    continuations: continuations.map(fold),
  }));
};

async function compare(
  engine: Engine,
  questions: readonly TokenisedQuestion[],
  options: AblationOptions,
): Promise<void> {
  const techniques = techniquesOf(engine, questions, options);
  const passes: Pass[][] = techniques.map(() => []);
  // The first round warms up: kernels are loaded, and clocks rise. Techniques take turns, so that all see the same.
  for (let round = 0; round <= options.rounds; round++)
    for (const [i, technique] of techniques.entries()) {
      const pass = await scoreAll(technique, questions, engine.lane.inFlight);
      if (round > 0) passes[i]!.push(pass);
    }
  const secondsOf = (of: readonly Pass[]): number => median(of.map(({ seconds }) => seconds));
  const [reference] = passes;
  const least = secondsOf(reference!);
  console.log(
    '| technique | tokens | calls | seconds | against trees | log-probabilities |\n|---|---|---|---|---|---|',
  );
  techniques.forEach(({ name }, i) => {
    const { tokens, calls, logProbs } = passes[i]![0]!;
    const seconds = secondsOf(passes[i]!);
    const differing = differences(reference![0]!.logProbs, logProbs);
    const bits = differing === 0 ? 'same bits' : `${differing} of ${logProbs.length} differ`;
    console.log(
      `| ${name} | ${tokens} | ${calls} | ${seconds.toFixed(3)} | ${(seconds / least).toFixed(2)} | ${bits} |`,
    );
  });
  for (const [name, reason] of NOT_MEASURED) console.log(`| ${name} | | | | | not measured: ${reason} |`);
}

async function main(options: AblationOptions): Promise<void> {
  const { model: name, target, threads, maxTokens } = options;
  const below = join(packageRoot(), 'bench', 'models', name);
  const cacheTokens = 2 * maxTokens;
  const { model, checkpoint } = await openOrCompile(
    {
      model: existsSync(below) ? below : name,
      init: { kind: 'random', seed: 1 },
      precision: 'auto',
      target,
      maxTokens,
      cacheTokens,
    },
    detectMachine(),
    ui,
  );
  const data = await benchData(options.data, options.tokenizer, options.questions);
  const executor = await loadExecutor(checkpoint, model, { threads, rebuild: () => 'npm run bench:ablation' }, ui);
  try {
    const scorer = new PlanScorer(executor, limitsOf(checkpoint, model));
    const paths = planPathScorer(executor, cacheTokens, scorer);
    console.log(
      `${name}, ${model.isa}, ${model.arithmetic}: ${data.questions.length} questions of ${data.name}, ` +
        `calls of up to ${scorer.maxTokens} tokens, median of ${options.rounds}\n`,
    );
    const engine = { scorer, lane: await paths.open(0), limits: paths.limits };
    await compare(engine, folded(data.questions, checkpoint.config.vocabSize), options);
  } finally {
    await executor.close();
  }
}

try {
  const options = parseAblationOptions(process.argv.slice(2));
  if (options === undefined) console.log(USAGE);
  else await main(options);
} catch (error) {
  if (!(error instanceof UserError)) throw error;
  console.error(`error: ${error.message}${error.hint === undefined ? '' : `\nhint: ${error.hint}`}`);
  process.exitCode = 1;
}
