/**
 * Searches for answers to problems: beam search where there is a verifier, else a majority of samples. Problems come as
 * they end, each with its whole tree.
 *
 *   node examples/search.mjs [GENERATOR [VERIFIER]]
 */
import { openEngine, UserError } from 'tilewright';

const [generator = 'models/demo', verifier] = process.argv.slice(2);
const PROBLEMS = [
  { problem: 'What is 12 · 12?', answer: '144' },
  { problem: 'How many primes are below 10?', answer: '4' },
];
// The bundled model is small: it is asked for short steps, and not for sense.
const STEPS = { iterations: 4, stepTokens: 16, maxStepTokens: 48 };

/** Steps of a tree by what became of them, as `4 completed, 12 pruned`. */
function fatesOf(tree) {
  const counts = new Map();
  for (const { fate } of tree) counts.set(fate, (counts.get(fate) ?? 0) + 1);
  return [...counts].map(([fate, count]) => `${count} ${fate}`).join(', ');
}

try {
  const models = { generator: { model: generator }, ...(verifier && { verifier: { model: verifier } }) };
  const engine = await openEngine({ models });
  try {
    const method = verifier === undefined ? 'majority' : 'beam';
    const asked = { generator: 'generator', ...(verifier && { verifier: 'verifier' }), problems: PROBLEMS };
    for await (const event of engine.search({ ...asked, ...STEPS, method, n: 8, width: 4, seed: 1 })) {
      const { problem } = PROBLEMS[event.problem];
      if (event.kind === 'failed') throw new Error(`${problem}: ${event.error}`);
      const { answer, isRight, result } = event;
      console.log(
        `${problem} ${answer || 'no answer'} (${isRight ? 'right' : 'wrong'}; steps: ${fatesOf(result.tree)})`,
      );
    }
  } finally {
    await engine.close();
  }
} catch (error) {
  if (!(error instanceof UserError)) throw error;
  console.error(`${error.message}\n${error.hint ?? ''}`);
  process.exitCode = 1;
}
