/**
 * Two models that stay open: one writes answers, the other says how likely it finds them. Answers are judged as soon as
 * they are there, while others are still being written, and the likeliest one of each question is printed.
 *
 *   node examples/engine.mjs [WRITER [JUDGE]]
 */
import { openEngine, UserError } from 'tilewright';

const [writer = 'models/demo', judge = writer] = process.argv.slice(2);
const QUESTIONS = ['The sky is', 'Two and two make', 'A cat likes to'];
const SAMPLES = 4;

/** The mean log-probability that the judge gives the tokens of `answer`. Judging goes before writing. */
async function judged(engine, question, answer) {
  const [rows, before] = [[], []];
  const ask = (prompt) => engine.score({ model: 'judge', priority: -1, inputs: [{ prompt }] });
  for await (const event of ask(question)) if (event.kind === 'row') before.push(event.logProb);
  for await (const event of ask(question + answer)) if (event.kind === 'row') rows.push(event.logProb);
  const own = rows.slice(before.length);
  return own.length === 0 ? -Infinity : own.reduce((sum, logProb) => sum + logProb, 0) / own.length;
}

try {
  const engine = await openEngine({
    models: { writer: { model: writer, cacheTokens: 4096 }, judge: { model: judge, cacheTokens: 4096 } },
  });
  try {
    const texts = QUESTIONS.map(() => Array.from({ length: SAMPLES }, () => ''));
    const judging = [];
    const asked = { prompts: QUESTIONS, n: SAMPLES, temperature: 0.8, seed: 1, maxNewTokens: 12, stop: ['\n'] };
    for await (const event of engine.generate({ model: 'writer', deadline: 600_000, ...asked })) {
      const { prompt, sample } = event;
      if (event.kind === 'failed') throw new Error(`${QUESTIONS[prompt]}: ${event.error}`);
      texts[prompt][sample] += event.text;
      if (event.kind !== 'end') continue;
      const text = texts[prompt][sample];
      judging.push(judged(engine, QUESTIONS[prompt], text).then((score) => ({ prompt, sample, text, score })));
    }
    const found = await Promise.all(judging);
    for (const [i, question] of QUESTIONS.entries()) {
      const own = found.filter(({ prompt }) => prompt === i).sort((a, b) => b.score - a.score || a.sample - b.sample);
      console.log(`${question}${own[0].text} (${own[0].score.toFixed(2)}, the best of ${SAMPLES})`);
    }
  } finally {
    await engine.close();
  }
} catch (error) {
  if (!(error instanceof UserError)) throw error;
  console.error(`${error.message}\n${error.hint ?? ''}`);
  process.exitCode = 1;
}
