/** Events of a request as choices: what is acknowledged, and when; what is dropped; how a request ends. */
import { describe, expect, it } from 'vitest';
import type { EndReason, Generated, RequestEvent } from '../../engine/request.js';
import type { TokenText } from '../../engine/textStream.js';
import { badRequest } from '../../serve/apiError.js';
import { type ChoiceListener, Choices, type ChoicesOptions } from '../../serve/choices.js';
import type { ModelClient, RequestListener } from '../../serve/models.js';

/** Token t is the letter with number t. */
const letters = (): TokenText => ({
  push: (id) => String.fromCharCode(97 + id),
  end: () => '',
  isWhole: () => false,
});

const token = (sample: number, id: number): RequestEvent => ({
  kind: 'token',
  sample,
  token: { token: id, logProb: -1 },
});
const end = (sample: number, reason: EndReason, foundTokens = 0): RequestEvent => {
  const result: Generated = { tokens: [], promptScores: [], reason, foundTokens };
  return { kind: 'end', sample, result };
};

function open(n: number, options: Partial<ChoicesOptions> = {}, more: Partial<ChoiceListener> = {}) {
  const told: unknown[] = [];
  let listener: RequestListener | undefined;
  const submit: ModelClient['submit'] = (_, own) => {
    listener = own;
    return {
      cancel: () => void told.push('cancel'),
      cut: (sample, count) => void told.push(['cut', sample, count]),
      acknowledge: (count) => void told.push(['acknowledge', count]),
    };
  };
  const choices = new Choices(
    { submit } as ModelClient,
    { kind: 'generate', prompt: [1, 2, 3], maxNewTokens: 9, n },
    {
      ...{ eosTokenIds: new Set([25]), openText: letters, stop: [], stopTokenIds: new Set<number>() },
      ...{ includesStop: false, minTokens: 0, ignoresEos: false, ...options },
    },
    {
      onToken: (choice, { token: id }, text) => told.push([choice, id, text]),
      onFinish: (choice, text, { reason, stopReason }) => told.push([choice, text, reason, stopReason]),
      ...more,
    },
  );
  return { choices, told, listener: listener! };
}

describe('choices', () => {
  it('are cut at a stop text, and drop what was computed meanwhile', async () => {
    const { choices, told, listener } = open(2, { stop: ['bc'] });
    listener.onEvents([token(0, 0), token(0, 1), token(1, 5)]);
    listener.onEvents([token(0, 2), token(0, 3), token(1, 25)]);
    expect(told).toEqual([
      [0, 0, 'a'],
      [0, 1, ''],
      [1, 5, 'f'],
      ['acknowledge', 3],
      [0, 2, ''],
      ['cut', 0, 3],
      [0, '', 'stop', 'bc'],
      [1, 25, ''],
      ['acknowledge', 3],
    ]);
    told.length = 0;
    listener.onEvents([end(1, 'eos'), end(0, 'stop', 2), end(0, 'stop', 2)]);
    expect(told).toEqual([
      [1, '', 'stop', null],
      ['acknowledge', 3],
    ]);
    expect(await choices.ended).toEqual({ promptTokens: 3, completionTokens: 5, cachedTokens: 2 });
  });

  it('are held back while their reader has no room', async () => {
    let free: (() => void) | undefined;
    const room = new Promise<void>((resolve) => (free = resolve));
    let isSlow = true;
    const { told, listener } = open(1, {}, { onTold: () => (isSlow ? room : undefined) });
    listener.onEvents([token(0, 0)]);
    isSlow = false;
    listener.onEvents([token(0, 1), token(0, 2)]);
    await Promise.resolve();
    const acknowledged = (): unknown[] => told.filter((each) => Array.isArray(each) && each[0] === 'acknowledge');
    expect(acknowledged()).toEqual([['acknowledge', 2]]);
    free!();
    await room;
    await Promise.resolve();
    expect(acknowledged()).toEqual([
      ['acknowledge', 2],
      ['acknowledge', 1],
    ]);
  });

  it('fail together, once, and end what is left of them', async () => {
    const { choices, told, listener } = open(2);
    const error = badRequest('no');
    listener.onEvents([token(0, 0), { kind: 'failed', sample: 1, error }, token(0, 1)]);
    expect(told).toEqual([[0, 0, 'a'], 'cancel', ['acknowledge', 3]]);
    listener.onEvents([end(0, 'aborted')]);
    expect(told.slice(3)).toEqual([['acknowledge', 1]]);
    await expect(choices.ended).rejects.toBe(error);
    const refused = open(1);
    refused.listener.onRefused(error);
    await expect(refused.choices.ended).rejects.toBe(error);
  });

  it('fail where their listener throws, and not whoever brings events', async () => {
    const thrown = new Error('a fault of an endpoint');
    const { choices, told, listener } = open(
      1,
      {},
      {
        onToken: () => {
          throw thrown;
        },
      },
    );
    expect(() => listener.onEvents([token(0, 0)])).not.toThrow();
    expect(told).toEqual(['cancel', ['acknowledge', 1]]);
    await expect(choices.ended).rejects.toBe(thrown);
  });

  it.each<readonly [EndReason, string]>([
    ['length', 'length'],
    ['context', 'length'],
    ['cache', 'length'],
    ['deadline', 'length'],
    ['aborted', 'abort'],
  ])('that end by %s say %s', (reason, said) => {
    const { told, listener } = open(1, { stop: ['bz'] });
    listener.onEvents([token(0, 1), end(0, reason)]);
    expect(told[1]).toEqual([0, 'b', said, null]);
  });
});
