/** `npm run bench:ablation`: each technique of scoring compared with one forward pass over trees. */
import type { Command } from 'commander';
import { cacheBytesOf } from '../commands/cacheSize.js';
import { limitsOf } from '../commands/modelLimits.js';
import { planPathScorer, PlanScorer, stepInputs, stepShapeOf } from '../commands/scorer.js';
import { pathsOf } from '../evaluate/pathOrder.js';
import type { TokenizedQuestion } from '../evaluate/tokenize.js';
import type { ScoredRows } from '../evaluate/scorer.js';
import { STEP } from '../ir/function.js';
import { at } from '../system/at.js';
import {
  type AblationEngine,
  allocatorOf,
  describeRows,
  type Technique,
  type TechniqueCall,
  type TechniqueInputs,
  type TechniqueOptions,
  techniquesOf,
} from './ablationTechniques.js';
import { BENCH_TARGETS, benchCommand, type BenchTarget, oneOf, runProgram, whole } from './command.js';
import { benchData, openRandomModel, withoutLabel } from './inputs.js';

/** A model whose vocabulary is smaller than the tokenizer's still gets valid ids. */
const folded = (questions: readonly TokenizedQuestion[], vocabSize: number): TokenizedQuestion[] => {
  const fold = (ids: Int32Array): Int32Array => ids.map((id) => id % vocabSize);
  return questions.map(({ docId, context, continuations }) => ({
    docId,
    context: fold(context),
    continuations: continuations.map(fold),
  }));
};

interface MeasuredTechnique {
  readonly technique: Technique;
  readonly pass: TechniquePass;
  /** Of the fastest round: other programs on the machine only add to it. */
  readonly seconds: number;
  /** The same as work of this host's processors; other programs add little to it. */
  readonly cpuSeconds: number;
}

async function measure(
  techniques: readonly Technique[],
  inFlight: number,
  { rounds, threads }: AblationOptions,
): Promise<readonly MeasuredTechnique[]> {
  const found = techniques.map((technique) => ({ technique, passes: [] as TechniquePass[], added: 0 }));
  // The first round warms up: kernels are loaded, and clocks rise. Techniques take turns, so that all see the same.
  for (let round = 0; round <= rounds; round++)
    for (const one of found) {
      const pass = await scoreAll(one.technique, inFlight);
      one.added = (await one.technique.added?.()) ?? 0;
      if (round > 0) one.passes.push(pass);
    }
  return found.map(({ technique, passes, added }) => ({
    technique,
    pass: at(passes, 0),
    seconds: Math.min(...passes.map(({ seconds }) => seconds)) + added,
    cpuSeconds: Math.min(...passes.map(({ cpuSeconds }) => cpuSeconds)) + threads * added,
  }));
}

/** `isHost`: the techniques are compared by the work of this host's processors. */
function print(measured: readonly MeasuredTechnique[], isHost: boolean): void {
  const reference = at(measured, 0);
  const timeOf = ({ seconds, cpuSeconds }: MeasuredTechnique): number => (isHost ? cpuSeconds : seconds);
  const columns = ['tokens', 'calls', 'seconds', ...(isHost ? ['CPU seconds'] : []), 'against trees'];
  console.log(`| technique | ${columns.join(' | ')} | log-probabilities |`);
  console.log(`|${'---|'.repeat(columns.length + 2)}`);
  for (const own of measured) {
    const { name, questions } = own.technique;
    const { tokens, calls, logProbs } = own.pass;
    const times = [own.seconds, ...(isHost ? [own.cpuSeconds] : [])].map((seconds) => seconds.toFixed(3));
    const ratio = (timeOf(own) / timeOf(reference)).toFixed(2);
    const bits =
      questions === reference.technique.questions ? bitsOf(reference.pass.logProbs, logProbs) : 'other prompts';
    console.log(`| ${[name, tokens, calls, ...times, ratio, bits].join(' | ')} |`);
  }
}

function bitsOf(wanted: Float32Array, found: Float32Array): string {
  const differing = differences(wanted, found);
  return differing === 0 ? 'same bits' : `${differing} of ${found.length} differ`;
}

async function main(options: AblationOptions): Promise<void> {
  const { model: name, target, threads, rounds, batchTokens = CALL_TOKENS[target] } = options;
  // Room for two of the largest calls: contexts, and choices beside them.
  const cacheTokens = 2 * batchTokens;
  const { model, checkpoint, executor } = await openRandomModel({
    model: name,
    target,
    threads,
    batchTokens,
    cacheTokens,
    script: 'bench:ablation',
  });
  const memory = allocatorOf(target);
  try {
    const tokenBytes = cacheBytesOf(model) / cacheTokens;
    const scorer = new PlanScorer(executor, limitsOf(checkpoint, model));
    const kept = { ...stepShapeOf(model), cacheTokens };
    const paths = planPathScorer(executor, kept, scorer);
    const lane = await paths.open(0);
    const engine: AblationEngine = {
      scorer,
      lane,
      limits: paths.limits,
      profile: async (batch) => (await executor.profile(STEP, stepInputs(batch, kept))).launches,
      allocate: (tokens) => memory.allocate(tokens * tokenBytes),
    };
    const load = async (change?: typeof withoutLabel): Promise<{ name: string; questions: TokenizedQuestion[] }> => {
      const data = await benchData(options.data, options.tokenizer, options.questions, change);
      return { name: data.name, questions: folded(data.questions, checkpoint.config.vocabSize) };
    };
    const [labelled, unlabelled] = [await load(), await load(withoutLabel)];
    const { questions } = labelled;
    console.log(
      `${name}, ${model.isa}, ${model.arithmetic}: ${questions.length} questions of ${labelled.name}, ` +
        `calls of up to ${scorer.maxTokens} tokens, the fastest of ${rounds} rounds\n`,
    );
    const compared: TechniqueInputs = { engine, questions, unlabelled: unlabelled.questions, options };
    const techniques = techniquesOf(compared);
    print(await measure(techniques, lane.inFlight, options), model.target.devices.isHost);
  } finally {
    memory.close();
    await executor.close();
  }
}

/** Tokens of the largest call, as `run` has them where a model's context is that long. */
const CALL_TOKENS: Readonly<Record<BenchTarget, number>> = { cpu: 4096, cuda: 8448 };
const DEFAULTS: TechniqueOptions = { sequences: 32, prefill: 512 };

export interface AblationOptions extends TechniqueOptions {
  readonly model: string;
  readonly target: BenchTarget;
  readonly threads: number;
  readonly questions: number;
  readonly rounds: number;
  readonly batchTokens?: number;
  readonly data?: string;
  readonly tokenizer?: string;
}

export const ablationCommand = (): Command =>
  benchCommand(
    'bench:ablation',
    'Compares techniques of scoring on the same kernels and weights. Prints for each the tokens that it ' +
      'computes, its calls, the time of all questions in its fastest round, how many times as long that is as ' +
      'trees take, and whether every log-probability is the same bits. On a CPU techniques are compared by the ' +
      'work of its processors (CPU seconds, of all threads together), to which other programs add little.',
  )
    .option('--model <path>', 'folder of a config.json, or one below bench/models; weights are random', 'llama-110m')
    .option('--target <name>', 'cpu or cuda', oneOf(BENCH_TARGETS), 'cpu')
    .option('--threads <n>', 'threads that compute on a CPU', whole(1, 1024), 2)
    .option('--questions <n>', 'questions to score: the first of the data set', whole(1, 1_000_000), 100)
    .option('--rounds <n>', 'times that every technique scores them, in turn', whole(1, 1000), 3)
    .option(
      '--batch-tokens <n>',
      `tokens of the largest call (default: ${CALL_TOKENS.cpu}, with --target cuda ${CALL_TOKENS.cuda})`,
      whole(32, 32_768),
    )
    .option('--sequences <n>', 'sequences of a fixed batch', whole(1, 4096), DEFAULTS.sequences)
    .option(
      '--prefill <n>',
      'tokens of a call of contexts, where contexts are computed in small calls',
      whole(1, 32_768),
      DEFAULTS.prefill,
    )
    .option(
      '--data <file>',
      'HellaSwag as JSON lines (default: the real one if it is there, else the bundled questions)',
    )
    .option('--tokenizer <folder>', 'folder of a tokenizer')
    .addHelpText(
      'after',
      `\nThe techniques, each a row:\n\n${describeRows(DEFAULTS)}\n\nA row that begins with … is the one of ` +
        'filled calls in two phases, with one change. No row has padding: a batch is as many tokens as its ' +
        'sequences have.',
    );

/** One pass of a technique over all questions. */

export interface TechniquePass {
  readonly tokens: number;
  readonly calls: number;
  /** From the first call to the results of the last; all of them are laid out before. */
  readonly seconds: number;
  /** Seconds that the processors of this host worked for them, all threads together. */
  readonly cpuSeconds: number;
  /** f32: those of every token of every choice, in the order of the questions; NaN where none was computed. */
  readonly logProbs: Float32Array;
}

/** Makes all calls of a technique, `inFlight` of them at a time. */
export async function scoreAll(technique: Technique, inFlight: number): Promise<TechniquePass> {
  const placeOf = new Map<string, number>();
  let length = 0;
  for (const { question, choice, continuation } of pathsOf(technique.questions)) {
    placeOf.set(`${question} ${choice}`, length);
    length += continuation.length;
  }
  const logProbs = new Float32Array(length).fill(NaN);
  const flights: { readonly call: TechniqueCall; readonly rows: Promise<ScoredRows> }[] = [];
  const land = async (): Promise<void> => {
    const { call, rows } = flights.shift()!;
    const { logProb } = await rows;
    for (const { row, question, choice, index } of call.scored)
      logProbs[placeOf.get(`${question} ${choice}`)! + index] = logProb[row]!;
  };
  const calls = [...technique.calls()];
  const cpu = process.cpuUsage();
  const started = performance.now();
  try {
    for (const call of calls) {
      const rows = call.score();
      // It is awaited when its turn comes; calls before it may fail first.
      rows.catch(() => undefined);
      flights.push({ call, rows });
      if (flights.length >= inFlight) await land();
    }
    while (flights.length > 0) await land();
  } finally {
    // After an error the device may still be at work on memory that the caller is about to release.
    await Promise.allSettled(flights.map(({ rows }) => rows));
  }
  const seconds = (performance.now() - started) / 1000;
  const { user, system } = process.cpuUsage(cpu);
  const tokens = calls.reduce((sum, call) => sum + call.tokens, 0);
  return { tokens, calls: calls.length, seconds, cpuSeconds: (user + system) / 1e6, logProbs };
}

/** Log-probabilities whose bits differ. One that was not computed differs from every other. */
export function differences(a: Float32Array, b: Float32Array): number {
  const bitsOf = ({ buffer, byteOffset, length }: Float32Array): Uint32Array =>
    new Uint32Array(buffer, byteOffset, length);
  const [left, right] = [bitsOf(a), bitsOf(b)];
  return left.reduce((count, bits, i) => count + (bits === right[i] && !Number.isNaN(a[i]) ? 0 : 1), 0);
}

await runProgram(import.meta.url, ablationCommand, main);
