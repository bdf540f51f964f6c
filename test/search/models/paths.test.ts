/** Scores of paths: step by step they are those that a verifier gives at once, and nothing is asked for twice. */
import { describe, expect, it } from 'vitest';
import {
  LINES,
  MATH_SHEPHERD,
  OUTCOME,
  QWEN_PROCESS,
  REASON_EVAL,
  RLHFLOW,
  SKYWORK,
} from '../../../models/heads/layout.js';
import { layOutSteps } from '../../../models/heads/solutionTexts.js';
import { askOf } from '../../../search/asking.js';
import { EngineJudge, type JudgeModel } from '../../../search/models/judge.js';
import { type PartOptions, partsOf } from '../../../search/models/parts.js';
import { scoreRows } from '../../../search/models/scoring.js';
import { extend, type Path, rootOf, type Step, stepsOf } from '../../../search/path.js';
import { PathFailed } from '../../../search/ports.js';
import { engineOf, judgeModel, NEVER, pathOf, PROBLEM, recorded, stepOf } from './madeUpEngine.js';

const STEPS = ['We add 2 and 2.', 'That is\n4.', '+ 1 is 5 - 0', 'So 5.'];
const PATH = pathOf(...STEPS.map((step) => `${step}\n\n`));
const prefixes = (path: Path): Path[] => (path.parent === undefined ? [] : [...prefixes(path.parent), path]);

/** All at once, as `reward` does it. */
async function atOnce(model: JudgeModel, steps: readonly string[]): Promise<readonly number[]> {
  const { tokens, rows } = await layOutSteps('all', PROBLEM.problem, steps, model.writer);
  return (await scoreRows(model, tokens, rows, { signal: NEVER, affinity: undefined })).scores;
}

/** The separator of the layout is one token of the made-up tokenizer. */
const LAYOUTS = {
  RLHFLOW,
  QWEN_PROCESS: { ...QWEN_PROCESS, separator: '<s>', step: (step: string) => `${step}<s>` },
  MATH_SHEPHERD: {
    ...MATH_SHEPHERD,
    separator: '<unk>',
    step: (step: string, i: number) => `\nStep ${i}: ${step}<unk>`,
  },
  SKYWORK,
  LINES,
  REASON_EVAL,
};

describe('scores of a path', () => {
  it.each(Object.entries(LAYOUTS))('step by step are those at once, to the bit: %s', async (_, layout) => {
    const asked = await judgeModel(engineOf(), layout);
    const { encodeWritten } = asked.writer;
    const writeTurns = async (_where: string, turns: readonly { readonly content: string }[]) => {
      const text = turns.map(({ content }) => `</s>${content}\n`).join('');
      return { text, tokens: await encodeWritten(text) };
    };
    const model = layout.kind === 'text' ? { ...asked, writer: { ...asked.writer, writeTurns } } : asked;
    const wanted = await atOnce(model, STEPS);
    expect(wanted).toHaveLength(STEPS.length);
    const judge = await EngineJudge.open(model, {});
    for (const path of prefixes(PATH)) expect(await judge.score(path, [], NEVER)).toEqual(wanted.slice(0, path.depth));
    // In one request.
    expect(await new EngineJudge({ ...model, ask: askOf(engineOf()) }, {}).score(PATH, [], NEVER)).toEqual(wanted);
  });

  it('are asked for once, of tokens that only grow', async () => {
    const { ask, asked } = recorded(askOf(engineOf()));
    const judge = new EngineJudge(await judgeModel(engineOf(), RLHFLOW, { ask }), {});
    for (const path of prefixes(PATH)) await judge.score(path, [], NEVER);
    const texts = asked.map((each) => (each.kind === 'score' ? each : { tokens: [], rows: [] }));
    expect(texts.map(({ rows }) => rows.length)).toEqual([2, 2, 2, 2]);
    texts.slice(1).forEach(({ tokens }, i) => {
      const before = texts[i]!.tokens;
      expect(tokens.slice(0, before.length)).toEqual(before);
    });
    await judge.score(PATH, [], NEVER);
    expect(asked).toHaveLength(4);
    const { requests, askedTokens, foundTokens, neededTokens } = judge.counts;
    expect(requests).toBe(4);
    // One after the other, only the last token of a text that goes on is computed again.
    expect(neededTokens).toBe(texts.at(-1)!.rows[0]!.position + 1);
    expect(askedTokens - foundTokens).toBe(neededTokens);
  });

  it('need every different beginning once', async () => {
    const { ask, asked } = recorded(askOf(engineOf({ cacheTokens: 1 << 15 })));
    for (const options of [{}, { compat: 'sal' }] as const) {
      asked.length = 0;
      const judge = new EngineJudge(await judgeModel(engineOf(), RLHFLOW, { ask }), options);
      const words = ['We', ' add', ' 2', '.', ' So', ' 4'];
      let paths: readonly Path[] = [rootOf(PROBLEM)];
      for (let round = 0; round < 5; round++) {
        const children = paths.flatMap((path, i) =>
          Array.from({ length: 6 }, (_, k) => {
            const text = Array.from({ length: 3 }, (_each, j) => words[(7 * round + 3 * i + k * (j + 1)) % 6]!).join(
              '',
            );
            return extend(path, stepOf(`${text}\n\n`));
          }),
        );
        for (const child of children) await judge.score(child, [], NEVER);
        paths = children.filter((_, i) => i % 5 === 0).slice(0, 6);
      }
      const beginnings = new Set<string>();
      for (const each of asked)
        if (each.kind === 'score')
          for (let to = 1 + Math.max(...each.rows.map(({ position }) => position)); to > 0; to--)
            beginnings.add(each.tokens.slice(0, to).join());
      expect(asked.length).toBeGreaterThan(50);
      expect(judge.counts.neededTokens).toBe(beginnings.size);
    }
  });

  it('come together after steps that were not scored, and with steps ahead', async () => {
    const model = await judgeModel(engineOf(), RLHFLOW);
    const judge = new EngineJudge(model, {});
    const wanted = await atOnce(model, STEPS);
    const two = pathOf(...STEPS.slice(0, 2).map((step) => `${step}\n\n`));
    const ahead: readonly Step[] = [stepOf(`${STEPS[2]!}\n\n`), stepOf(STEPS[3]!, 'eos')];
    expect(await judge.score(two, ahead, NEVER)).toEqual(wanted);
    expect(await judge.score(two, [], NEVER)).toEqual(wanted.slice(0, 2));
    expect(judge.counts.requests).toBe(1);
    expect(await judge.score(extend(two, ahead[0]!), [ahead[1]!], NEVER)).toEqual(wanted);
  });

  it('do not depend on company, order or a cold cache', async () => {
    const texts = Array.from({ length: 48 }, (_, i) => STEPS.map((step, k) => (k < 2 ? step : `${step} (${i})`)));
    const pathsOf = () => texts.map((steps) => pathOf(...steps.map((step) => `${step}\n\n`)));
    const alone: (readonly number[])[] = [];
    for (const path of pathsOf())
      alone.push(await new EngineJudge(await judgeModel(engineOf(), RLHFLOW), {}).score(path, [], NEVER));
    const engine = engineOf({ cacheTokens: 2048 });
    const judge = new EngineJudge(await judgeModel(engine, RLHFLOW), {});
    const together = (paths: readonly Path[]) => Promise.all(paths.map((path) => judge.score(path, [], NEVER)));
    expect(await together(pathsOf())).toEqual(alone);
    expect(await together(pathsOf().toReversed())).toEqual(alone.toReversed());
  });
});

describe('which texts are steps', () => {
  const partsAsked = async (path: Path, options: PartOptions, layout: JudgeModel['writer']['layout'] = RLHFLOW) => {
    const split = partsOf(options, layout);
    const parts: string[] = [];
    let open: string | undefined;
    for (const step of stepsOf(path)) {
      const added = split(open, step);
      parts.push(...added.closed);
      ({ open } = added);
    }
    if (open !== undefined) parts.push(open);
    const judge = new EngineJudge(await judgeModel(engineOf(), layout), options);
    expect(await judge.score(path, [], NEVER)).toHaveLength(parts.length);
    return parts;
  };

  it('those of the path, without separators; what has no text has no score', async () => {
    const steps = ['a\n\n', 'b\n\n\n', '\n\n', ' c\n\n-'];
    expect(await partsAsked(pathOf(...steps), {})).toEqual(['a', 'b', '', ' c\n\n-']);
    const ended = extend(pathOf('a\n\n'), stepOf('', 'eos'));
    expect(await partsAsked(ended, {})).toEqual(['a']);
    expect(await partsAsked(extend(pathOf(), stepOf('', 'eos')), {})).toEqual([]);
    expect(await partsAsked(pathOf('a\n\nb', 'c'), { stepTokens: 5 })).toEqual(['a\n\nb', 'c']);
    expect(await partsAsked(pathOf('a;', 'b;'), { stepStop: ';' })).toEqual(['a', 'b']);
  });

  it('those of a text that was drawn at once', async () => {
    const whole = extend(rootOf(PROBLEM), stepOf('a\n\n\n\nb\nc\n\nd', 'eos'));
    expect(await partsAsked(whole, {})).toEqual(['a', 'b\nc', 'd']);
    const cut = extend(rootOf(PROBLEM), stepOf('a\n\nb\n\n', 'length'));
    expect(await partsAsked(cut, {})).toEqual(['a', 'b']);
  });

  it('to the letter of search-and-learn: the text is split, and an empty end counts', async () => {
    const sal: PartOptions = { compat: 'sal' };
    expect(await partsAsked(pathOf('a\n\n', 'b\n\n'), sal)).toEqual(['a', 'b', '']);
    expect(await partsAsked(pathOf('a\n\n\n', 'b'), sal)).toEqual(['a', '\nb']);
    // Another end token than the tokenizer's ends no text there.
    const on = extend(extend(rootOf(PROBLEM), stepOf('a', 'other-eos')), stepOf(' b\n\n'));
    expect(await partsAsked(on, sal)).toEqual(['a b', '']);
    expect(await partsAsked(pathOf('a\nb\n\n'), sal, SKYWORK)).toEqual(['a', 'b', '', '']);
    const judge = new EngineJudge(await judgeModel(engineOf(), RLHFLOW), sal);
    const first = await judge.score(pathOf('a\n\n'), [], NEVER);
    const second = await judge.score(pathOf('a\n\n', 'b\n\n'), [], NEVER);
    expect(second.slice(0, 1)).toEqual(first.slice(0, 1));
    expect(second[1]).not.toBe(first[1]);
  });
});

describe('a path that cannot be scored ends, and says why', () => {
  const failure = async (score: Promise<unknown>): Promise<string> => {
    const error: unknown = await score.catch((each: unknown) => each);
    expect(error).toBeInstanceOf(PathFailed);
    return (error as Error).message;
  };

  it('a separator within a step, a path beyond the context', async () => {
    const judge = new EngineJudge(await judgeModel(engineOf(), LAYOUTS.MATH_SHEPHERD), {});
    expect(await failure(judge.score(pathOf('a<unk>b\n\n'), [], NEVER))).toBe(
      'the path: the separator "<unk>" stands at 2 places, and there is 1 step',
    );
    expect(await judge.score(pathOf('a b\n\n'), [], NEVER)).toHaveLength(1);
    const small = new EngineJudge(await judgeModel(engineOf({ maxLength: 60 }), RLHFLOW), {});
    expect(await failure(small.score(pathOf('word '.repeat(100)), [], NEVER))).toMatch(
      /^the path has \d+ tokens for the verifier, and its context 60$/,
    );
  });

  it('a value that is not finite; others go on', async () => {
    const judge = new EngineJudge(await judgeModel(engineOf({ failsOneIn: 3 }), RLHFLOW), {});
    const paths = Array.from({ length: 12 }, (_, i) => pathOf(`Step ${i}.\n\n`));
    const settled = await Promise.allSettled(paths.map((path) => judge.score(path, [], NEVER)));
    const failed = settled.flatMap((each) => (each.status === 'rejected' ? [each.reason as unknown] : []));
    expect(failed.length).toBeGreaterThan(0);
    expect(failed.length).toBeLessThan(12);
    for (const error of failed) expect(error).toBeInstanceOf(PathFailed);
  });

  it('a score that is no number', async () => {
    const engine = engineOf();
    const nan = {
      kind: 'end',
      sample: 0,
      result: { tokens: [], promptScores: [], reason: 'length', foundTokens: 0 },
    } as const;
    const ask = () => ({
      cancel: () => undefined,
      cut: () => undefined,
      async *[Symbol.asyncIterator]() {
        yield { kind: 'classes', sample: 0, row: { position: 5, logits: Float32Array.of(NaN) } } as const;
        yield nan;
      },
    });
    const asked = {
      ask,
      model: undefined,
      scoring: { kind: 'classes', rule: { is: () => '', of: ([x]: readonly number[]) => x! } },
    } as const;
    expect(await failure(scoreRows(asked, [1], [5], { signal: NEVER, affinity: undefined }))).toBe(
      "the verifier's score is NaN",
    );
    const labels = {
      ...asked,
      scoring: { kind: 'classes', rule: { is: () => '', of: () => [0.1, 0.2, 0.7] } },
    } as const;
    await expect(scoreRows(labels, [1], [5], { signal: NEVER, affinity: undefined })).rejects.toThrow(
      'the verifier gives a score for each of 3 labels, and no single one',
    );
    await engine.close();
  });

  it('for the reason of its signal', async () => {
    const engine = engineOf();
    const judge = new EngineJudge(await judgeModel(engine, RLHFLOW), {});
    const controller = new AbortController();
    const score = judge.score(PATH, [], controller.signal);
    controller.abort(new Error('not needed'));
    await expect(score).rejects.toThrow('not needed');
    await expect.poll(() => engine.statsOf().running + engine.statsOf().waiting).toBe(0);
    // Somebody else who asks for it gets it.
    expect(await judge.score(PATH, [], NEVER)).toHaveLength(4);
  });
});

describe('verifiers', () => {
  it('of answers score whole texts, as they were drawn', async () => {
    const { ask, asked } = recorded(askOf(engineOf()));
    const model = await judgeModel(engineOf(), OUTCOME, { ask });
    const judge = new EngineJudge(model, {});
    expect(judge.kind).toBe('outcome');
    expect(await judge.score(extend(rootOf(PROBLEM), stepOf('a\n\nb\n\n', 'eos')), [], NEVER)).toHaveLength(1);
    const text = `<s>user</s>${PROBLEM.problem}<unk><s>assistant</s>a\n\nb<unk>`;
    expect(asked[0]).toMatchObject({ tokens: await model.writer.encodeWritten(text) });
  });

  it('are refused before a search begins where their tokens cannot be written', async () => {
    const model = await judgeModel(engineOf(), MATH_SHEPHERD);
    await expect(EngineJudge.open(model, {})).rejects.toThrow(
      /^the verifier: the separator "ки" is \d tokens of this tokenizer, not one$/,
    );
    const verdicts = await judgeModel(engineOf(), RLHFLOW);
    const writer = { ...verdicts.writer, verdicts: [3, 4] as const };
    await expect(EngineJudge.open({ ...verdicts, writer }, {})).rejects.toThrow('are not one token each');
    expect((await EngineJudge.open(verdicts, {})).kind).toBe('process');
  });
});
