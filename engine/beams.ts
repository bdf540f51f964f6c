/**
 * Beam search: the continuations with the largest total log-probability that can be reached by keeping the best few of
 * each length. A path is a request of its own, which finds the pages of the path that it branched from and copies the
 * last of them; two tokens are computed. The log-probability of a path's last token comes from the kernel that scores
 * it, so the score of a path has the bits that scoring it afterwards gives.
 */
import type { Engine } from './engine.js';
import type { EndReason, GenerateRequest, RequestOptions } from './request.js';
import { MAX_BEAMS } from './limits.js';

export interface Beam {
  /** What follows the prompt, a stop token included. */
  readonly tokens: readonly number[];
  readonly logProbs: readonly number[];
  /** Sum of the log-probabilities, in order. */
  readonly score: number;
  readonly reason: EndReason;
}

export interface BeamRequest extends Pick<GenerateRequest, 'prompt' | 'maxNewTokens' | 'stopTokens'>, RequestOptions {
  /** Paths that are kept, 1 to MAX_BEAMS. */
  readonly beams: number;
}

/** A path whose last token has only the estimate that it was chosen by. */
interface Candidate {
  readonly from: Beam;
  readonly token: number;
  readonly estimate: number;
}

const sumOf = (logProbs: readonly number[]): number => logProbs.reduce((sum, each) => sum + each, 0);

/** The best paths, best first; of equals the one whose tokens are lower. Rejects with what `generate` rejects with. */
export async function searchBeams(
  engine: Pick<Engine, 'generate' | 'limitsOf'>,
  { prompt, maxNewTokens, stopTokens, beams, ...options }: BeamRequest,
): Promise<readonly Beam[]> {
  if (!Number.isInteger(beams) || beams < 1 || beams > MAX_BEAMS)
    throw new RangeError(`${beams} beams: expected 1 to ${MAX_BEAMS}`);
  const shared = { stopTokens: new Set<number>(), ...options };
  const { maxLength, room } = engine.limitsOf(options.model);
  const endOf = (tokens: readonly number[], length: number): EndReason | undefined => {
    if (tokens.length > 0 && stopTokens?.has(tokens.at(-1)!) === true) return 'eos';
    if (tokens.length >= maxNewTokens) return 'length';
    if (length >= maxLength) return 'context';
    return length >= room ? 'cache' : undefined;
  };
  /** The path with its last token scored, and how it could go on. */
  const visit = async ({ from, token }: Candidate): Promise<{ beam: Beam; next: readonly Candidate[] }> => {
    const tokens = token < 0 ? [] : [...from.tokens, token];
    const path = [...prompt, ...tokens];
    const end = endOf(tokens, path.length);
    const result = await engine.generate({
      ...shared,
      prompt: path,
      maxNewTokens: end === undefined ? 1 : 0,
      ...(token < 0 ? {} : { scoreFrom: path.length - 1 }),
      ...(end === undefined ? { sampling: { topLogProbs: beams } } : {}),
    });
    // What was told to stop may lack the score of its last token, which is left out.
    if (result.reason === 'aborted' || result.reason === 'deadline')
      return { beam: { ...from, reason: result.reason }, next: [] };
    const logProbs = [...from.logProbs, ...result.promptScores.map(({ logProb }) => logProb)];
    const beam: Beam = { tokens, logProbs, score: sumOf(logProbs), reason: end ?? 'length' };
    const top = result.tokens[0]?.top ?? [];
    return { beam, next: top.map((each) => ({ from: beam, token: each.token, estimate: beam.score + each.logProb })) };
  };
  let ended: Beam[] = [];
  let live: readonly Candidate[] = [
    { from: { tokens: [], logProbs: [], score: 0, reason: 'length' }, token: -1, estimate: 0 },
  ];
  while (live.length > 0) {
    const visited = await Promise.all(live.map(visit));
    ended.push(...visited.flatMap(({ beam, next }) => (next.length === 0 ? [beam] : [])));
    const pool = [
      ...ended.map((beam) => ({ score: beam.score, tokens: beam.tokens, keep: beam })),
      ...visited.flatMap(({ next }) =>
        next.map((each) => ({ score: each.estimate, tokens: [...each.from.tokens, each.token], keep: each })),
      ),
    ];
    const kept = pool
      .sort(better)
      .slice(0, beams)
      .map(({ keep }) => keep);
    ended = kept.flatMap((each) => ('from' in each ? [] : [each]));
    live = kept.flatMap((each) => ('from' in each ? [each] : []));
  }
  // Paths that were told to stop may have gone back to the same beginning.
  return ended.sort(better).filter((beam, i, all) => i === 0 || better(all[i - 1]!, beam) !== 0);
}

type Ranked = Pick<Beam, 'score' | 'tokens'>;

function better(a: Ranked, b: Ranked): number {
  if (a.score !== b.score) return b.score - a.score;
  const at = a.tokens.findIndex((token, i) => token !== b.tokens[i]);
  return at < 0 ? a.tokens.length - b.tokens.length : a.tokens[at]! - (b.tokens[at] ?? -1);
}
