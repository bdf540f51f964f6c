/**
 * Two models that stay open: one writes answers, the other says how likely it finds them. Answers are judged as soon as
 * they are there, while others are still being written, and the likeliest one of each question is printed.
 *
 *   node examples/engine.mjs [MODEL [JUDGE]]
 */
import { openEngine, UserError } from 'tilewright';

const [writer = 'models/demo', judge = writer] = process.argv.slice(2);
const QUESTIONS = ['The sky is', 'Two and two make', 'A cat likes to'];
const SAMPLES = 4;
const TOKENS = 12;

try {
  const engine = await openEngine({
    models: {
      writer: { model: writer, cacheTokens: 4096 },
      judge: { model: judge, cacheTokens: 4096 },
    },
    queueLimit: 1000,
  });
  try {
    /** The mean log-probability that the judge gives the tokens of `answer`. Judging goes before writing. */
    const judged = async (question, answer) => {
      const first = (await lengthOf(question)) - 1;
      let [sum, count] = [0, 0];
      for await (const event of engine.score({ model: 'judge', priority: -1, inputs: [{ prompt: question + answer }] }))
        if (event.kind === 'row' && event.position >= first) [sum, count] = [sum + event.logProb, count + 1];
        else if (event.kind === 'failed') throw new Error(event.error);
      return count === 0 ? -Infinity : sum / count;
    };
    /** Tokens of a text, as the judge sees it. */
    const lengthOf = async (prompt) => {
      for await (const event of engine.score({ model: 'judge', inputs: [{ prompt, rows: [] }] }))
        if (event.kind === 'end') return event.tokens.length;
      throw new Error(`${prompt}: not a text that the judge can read`);
    };

    const texts = QUESTIONS.map(() => Array.from({ length: SAMPLES }, () => ''));
    const scores = QUESTIONS.map(() => []);
    const asked = { prompts: QUESTIONS, n: SAMPLES, temperature: 0.8, seed: 1, maxNewTokens: TOKENS, stop: ['\n'] };
    for await (const event of engine.generate({ model: 'writer', deadline: 600_000, ...asked })) {
      const { prompt, sample } = event;
      if (event.kind === 'failed') throw new Error(`${QUESTIONS[prompt]}: ${event.error}`);
      texts[prompt][sample] += event.text;
      if (event.kind === 'end') scores[prompt][sample] = judged(QUESTIONS[prompt], texts[prompt][sample]);
    }
    for (const [i, question] of QUESTIONS.entries()) {
      const found = await Promise.all(scores[i]);
      const best = found.indexOf(Math.max(...found));
      console.log(`${question}${texts[i][best]} (${found[best].toFixed(2)}, of ${SAMPLES})`);
    }
  } finally {
    await engine.close();
  }
} catch (error) {
  if (!(error instanceof UserError)) throw error;
  console.error(`${error.message}\n${error.hint ?? ''}`);
  process.exitCode = 1;
}
