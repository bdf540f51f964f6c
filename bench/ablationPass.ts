/** One pass of a technique over all questions. */
import { pathsOf } from '../evaluate/index.js';
import type { ScoredRows } from '../evaluate/scorer.js';
import type { Call } from './ablationCalls.js';
import type { Technique } from './ablationRows.js';

export interface Pass {
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
export async function scoreAll(technique: Technique, inFlight: number): Promise<Pass> {
  const placeOf = new Map<string, number>();
  let length = 0;
  for (const { question, choice, continuation } of pathsOf(technique.questions)) {
    placeOf.set(`${question} ${choice}`, length);
    length += continuation.length;
  }
  const logProbs = new Float32Array(length).fill(NaN);
  const flights: { readonly call: Call; readonly rows: Promise<ScoredRows> }[] = [];
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
