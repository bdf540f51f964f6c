/** `npm run bench:ablation`: what each technique of scoring gives beside one forward over trees. */
import { cacheBytesOf } from '../commands/cacheSize.js';
import { limitsOf } from '../commands/modelLimits.js';
import { planPathScorer, stepInputs } from '../commands/pathScorer.js';
import { PlanScorer } from '../commands/scorer.js';
import type { TokenizedQuestion } from '../evaluate/index.js';
import { STEP } from '../ir/function.js';
import type { Engine } from './ablationCalls.js';
import { type AblationOptions, parseAblationOptions, USAGE } from './ablationOptions.js';
import { differences, type Pass, scoreAll } from './ablationPass.js';
import { type Compared, type Technique, techniquesOf } from './ablationRows.js';
import { benchData, withoutLabel } from './data.js';
import { allocatorOf } from './deviceMemory.js';
import { runProgram } from './program.js';
import { openRandomModel } from './randomModel.js';

/** A model whose vocabulary is smaller than the tokenizer's still gets valid ids. */
const folded = (questions: readonly TokenizedQuestion[], vocabSize: number): TokenizedQuestion[] => {
  const fold = (ids: Int32Array): Int32Array => ids.map((id) => id % vocabSize);
  return questions.map(({ docId, context, continuations }) => ({
    docId,
    context: fold(context),
    continuations: continuations.map(fold),
  }));
};

interface Measured {
  readonly pass: Pass;
  /** Of the fastest round: other programs on the machine only add to it. */
  readonly seconds: number;
  /** The same as work of this host's processors; other programs add little to it. */
  readonly cpuSeconds: number;
}

async function measure(
  techniques: readonly Technique[],
  inFlight: number,
  { rounds, threads }: AblationOptions,
): Promise<readonly Measured[]> {
  const passes: Pass[][] = techniques.map(() => []);
  const added = techniques.map(() => 0);
  // The first round warms up: kernels are loaded, and clocks rise. Techniques take turns, so that all see the same.
  for (let round = 0; round <= rounds; round++)
    for (const [i, technique] of techniques.entries()) {
      const pass = await scoreAll(technique, inFlight);
      added[i] = (await technique.added?.()) ?? 0;
      if (round > 0) passes[i]!.push(pass);
    }
  return passes.map((own, i) => ({
    pass: own[0]!,
    seconds: Math.min(...own.map(({ seconds }) => seconds)) + added[i]!,
    cpuSeconds: Math.min(...own.map(({ cpuSeconds }) => cpuSeconds)) + threads * added[i]!,
  }));
}

/** `isHost`: the techniques are compared by the work of this host's processors. */
function print(techniques: readonly Technique[], measured: readonly Measured[], isHost: boolean): void {
  const reference = measured[0]!;
  const timeOf = ({ seconds, cpuSeconds }: Measured): number => (isHost ? cpuSeconds : seconds);
  const columns = ['tokens', 'calls', 'seconds', ...(isHost ? ['CPU seconds'] : []), 'against trees'];
  console.log(`| technique | ${columns.join(' | ')} | log-probabilities |`);
  console.log(`|${'---|'.repeat(columns.length + 2)}`);
  techniques.forEach(({ name, questions }, i) => {
    const own = measured[i]!;
    const { tokens, calls, logProbs } = own.pass;
    const times = [own.seconds, ...(isHost ? [own.cpuSeconds] : [])].map((seconds) => seconds.toFixed(3));
    const ratio = (timeOf(own) / timeOf(reference)).toFixed(2);
    const bits = questions === techniques[0]!.questions ? bitsOf(reference.pass.logProbs, logProbs) : 'other prompts';
    console.log(`| ${[name, tokens, calls, ...times, ratio, bits].join(' | ')} |`);
  });
}

function bitsOf(wanted: Float32Array, found: Float32Array): string {
  const differing = differences(wanted, found);
  return differing === 0 ? 'same bits' : `${differing} of ${found.length} differ`;
}

async function main(options: AblationOptions): Promise<void> {
  const { model: name, target, threads, rounds, batchTokens } = options;
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
    const paths = planPathScorer(executor, { cacheTokens }, scorer);
    const lane = await paths.open(0);
    const engine: Engine = {
      scorer,
      lane,
      limits: paths.limits,
      profile: async (batch) => (await executor.profile(STEP, stepInputs(batch))).launches,
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
    const compared: Compared = { engine, questions, unlabelled: unlabelled.questions, options };
    const techniques = techniquesOf(compared);
    print(techniques, await measure(techniques, lane.inFlight, options), model.target.isHost);
  } finally {
    memory.close();
    await executor.close();
  }
}

await runProgram(USAGE, parseAblationOptions, main);
