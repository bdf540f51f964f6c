/** Contenders measured in turn: what each is asked for, and what counts. */
import { describe, expect, it } from 'vitest';
import {
  blockShape,
  type Contender,
  interleave,
  ratioOverRounds,
  sumOverRounds,
  sustain,
} from '../../../autotune/cuda/timing.js';

describe('interleave', () => {
  /** Takes `seconds` a launch, and logs what it is asked for. */
  const logging = (log: string[], name: string, seconds: number): Contender => ({
    name,
    time: ({ warmup, repeats, perSample }) => {
      log.push(`${name} ${warmup}+${repeats}×${perSample}`);
      return Promise.resolve(Array.from({ length: repeats }, () => seconds));
    },
  });

  it('gives everyone a turn in every round, blocks of equal time', async () => {
    const log: string[] = [];
    expect(await interleave([logging(log, 'a', 1e-3), logging(log, 'b', 4e-3)], { rounds: 2, seconds: 0.08 })).toEqual([
      [1e-3, 1e-3],
      [4e-3, 4e-3],
    ]);
    expect(log).toEqual(['a 1+3×1', 'b 1+3×1', 'a 1+4×10', 'b 1+4×3', 'a 1+4×10', 'b 1+4×3']);
    expect(blockShape(1e-3, 1)).toEqual({ warmup: 1, repeats: 1, perSample: 1 });
  });

  it('sustains: load by the first, then to and fro, half of each block uncounted', async () => {
    const log: string[] = [];
    let rounds = 0;
    const found = await sustain([logging(log, 'a', 1e-3), logging(log, 'b', 4e-3)], {
      seconds: 1.2,
      settling: 0.2,
      onRound: () => {
        log.push(`round ${rounds++}`);
      },
    });
    expect(found).toEqual([new Array<number>(6).fill(1e-3), new Array<number>(6).fill(4e-3)]);
    // 0.24 s of load; blocks of 0.08 s.
    expect(log.splice(0, 4)).toEqual(['a 1+3×1', 'a 0+48×5', 'a 1+3×1', 'b 1+3×1']);
    const there = ['a 4+4×10', 'b 4+4×3'],
      back = [...there].reverse();
    expect(log).toEqual(
      [there, back, there, back, there, back].flatMap((turns, round) => [...turns, `round ${round}`]),
    );
  });

  it('sustains in more rounds where there is time, in six where there is hardly any', async () => {
    const log: string[] = [];
    const long = await sustain([logging(log, 'a', 1e-3), logging(log, 'b', 1e-3)], { seconds: 4, settling: 0.1 });
    // 1.8 s each, in blocks of at most 0.12 s; as many to as fro.
    expect(long!.map((own) => own.length)).toEqual([14, 14]);
    expect(log.slice(4, 6)).toEqual(['a 4+4×15', 'b 4+4×15']);
    const short = await sustain([logging(log, 'a', 1), logging(log, 'b', 1)], { seconds: 0.1, settling: 0.5 });
    expect(short!.map((own) => own.length)).toEqual([6, 6]);
    expect(log.at(-1)).toBe('a 1+1×1');
  });

  it('sustains nothing once it is aborted, neither the load before nor the rounds', async () => {
    const log: string[] = [];
    const controller = new AbortController();
    let heard = 0;
    const onRound = (): void => {
      if (++heard === 2) controller.abort();
    };
    expect(
      await sustain([logging(log, 'a', 1e-3)], { seconds: 1, settling: 0.1, onRound, signal: controller.signal }),
    ).toBeUndefined();
    expect([heard, log.filter((turn) => turn.startsWith('a 4+4'))]).toEqual([
      2,
      new Array<string | undefined>(2).fill(log.at(-1)),
    ]);
    const before = log.length;
    expect(
      await sustain([logging(log, 'a', 1e-3)], { seconds: 10, settling: 0.9, signal: AbortSignal.abort() }),
    ).toBeUndefined();
    expect(log.slice(before)).toEqual(['a 1+3×1']);
    expect(await sustain([], { seconds: 1, settling: 0.1 })).toEqual([]);
  });

  it('takes ratios within rounds: a clock that falls does not move them', () => {
    expect(ratioOverRounds([1, 2, 4], [0.5, 1, 2])).toBe(0.5);
    expect(ratioOverRounds([1, 1, 1], [1, 2, 9])).toBe(2);
    expect(
      sumOverRounds([
        [1, 2],
        [3, 4],
        [5, 6],
      ]),
    ).toEqual([9, 12]);
  });
});
