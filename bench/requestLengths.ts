/**
 * Requests as a chat service has them: lengths drawn from lognormal distributions, cut as public benchmarks cut them.
 */
export interface RequestLengths {
  readonly prompt: number;
  readonly answer: number;
}

/** Mean tokens of the cut lengths: those of the conversations that public benchmarks of serving take. */
export const MEAN_LENGTHS: RequestLengths = { prompt: 215, answer: 198 };
/** Standard deviation of the logarithm of a length: the longest of 1,000 answers has nine times the mean length. */
export const SPREAD = 1.1;
const [LEAST, MAX_PROMPT, MAX_TOGETHER] = [4, 1024, 2048];
const ROUNDS = 60;

/** Park–Miller, as numbers between 0 and 1, neither of them included. The seed is from 1 to 2³¹ − 2. */
export function uniform(seed: number): () => number {
  let state = seed;
  return () => (state = (state * 48_271) % 2_147_483_647) / 2_147_483_647;
}

/** `count` pairs of lengths, the same for a seed, whose means are MEAN_LENGTHS within 1 %. */
export function requestLengths(count: number, spread = SPREAD, seed = 1): readonly RequestLengths[] {
  let [prompt, answer] = [Math.log(MEAN_LENGTHS.prompt), Math.log(MEAN_LENGTHS.answer)];
  for (let round = 0; ; round++) {
    const lengths = drawn({ count, spread, seed }, prompt, answer);
    const mean = (of: (each: RequestLengths) => number): number =>
      lengths.reduce((sum, each) => sum + of(each), 0) / count;
    const [prompts, answers] = [mean((each) => each.prompt), mean((each) => each.answer)];
    if (round === ROUNDS) return lengths;
    prompt += 0.5 * Math.log(MEAN_LENGTHS.prompt / prompts);
    answer += 0.5 * Math.log(MEAN_LENGTHS.answer / answers);
  }
}

function drawn(
  { count, spread, seed }: { readonly count: number; readonly spread: number; readonly seed: number },
  prompt: number,
  answer: number,
): readonly RequestLengths[] {
  const random = uniform(seed);
  // Box and Muller's transform.
  const normal = (): number => Math.sqrt(-2 * Math.log(random())) * Math.cos(2 * Math.PI * random());
  const lengths: RequestLengths[] = [];
  while (lengths.length < count) {
    const each = {
      prompt: Math.round(Math.exp(prompt + spread * normal())),
      answer: Math.round(Math.exp(answer + spread * normal())),
    };
    const isKept =
      Math.min(each.prompt, each.answer) >= LEAST &&
      each.prompt <= MAX_PROMPT &&
      each.prompt + each.answer <= MAX_TOGETHER;
    if (isKept) lengths.push(each);
  }
  return lengths;
}

/** Park–Miller: prompts that are the same in every batch, and have no common beginning. */
export function promptOf(index: number, length: number, vocabSize: number): number[] {
  let state = index + 1;
  return Array.from({ length }, () => (state = (state * 48271) % 2147483647) % vocabSize);
}
