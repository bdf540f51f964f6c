/**
 * The public harness as a client: the bodies that its `local-completions` sends, and what it reads of the answers, give
 * what `run` says of the same questions, to the bit.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { TokenLine } from '../../evaluate/tokenLines.js';
import type { Answer } from '../serve/completions/client.js';
import { complete, post } from '../serve/completions/client.js';
import { type ServerProcess, startServer } from './serverProcess.js';
import { isBuilt, ROOT, success, temporaryFolder, tilewright } from './support.js';

const MODEL = join(ROOT, 'models', 'demo');
const DEVICE = ['--precision', 'f32', '--target', 'cpu', '--threads', '2', '--batch-tokens', '64'];
const QUESTIONS = ['--task', 'hellaswag', '--data', join(ROOT, 'examples', 'everyday.jsonl'), '--limit', '10'];

interface Sample {
  readonly arguments: Readonly<Record<string, { readonly arg_0: string; readonly arg_1: string }>>;
  readonly resps: readonly (readonly (readonly [string, string])[])[];
}

/** A choice of a question, its context and itself as tokens, and what `run` says of it. */
interface Asked {
  readonly context: readonly number[];
  readonly tokens: readonly number[];
  readonly logProbs: readonly number[];
  readonly logLikelihood: string;
  readonly isGreedy: string;
}

/** What the harness reads of an answer: a sum and a comparison of Python's floats, which are JavaScript's numbers. */
const read = ({ choices }: Answer, lengths: readonly number[]) =>
  [...choices]
    .sort((a, b) => a.index - b.index)
    .map(({ logprobs }, i) => {
      const own = logprobs!.token_logprobs.slice(lengths[i], -1) as number[];
      const tops = logprobs!.top_logprobs.slice(lengths[i], -1);
      const isGreedy = own.every((logProb, at) => logProb === Math.max(...Object.values(tops[at]!)));
      return { own, sum: own.reduce((sum, logProb) => sum + logProb, 0), isGreedy };
    });

describe.skipIf(!isBuilt)('the public harness as a client', () => {
  let server: ServerProcess;
  const asked: Asked[] = [];

  beforeAll(async () => {
    server = await startServer(MODEL, ...DEVICE);
    const out = temporaryFolder();
    success(await tilewright(['run', MODEL, ...DEVICE, ...QUESTIONS, '--log-tokens', '--out', out]));
    const linesOf = <T>(kind: string): T[] => {
      const name = readdirSync(join(out, 'demo')).find((each) => each.startsWith(`${kind}_hellaswag_`));
      const text = readFileSync(join(out, 'demo', name!), 'utf8');
      return text
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line) as T);
    };
    const samples = linesOf<Sample>('samples');
    for (const [i, { choices, shared_tokens: shared }] of linesOf<TokenLine>('tokens').entries()) {
      const sample = samples[i]!;
      const [first] = Object.values(sample.arguments);
      const answer = await post(server.url, '/tokenize', { prompt: first!.arg_0 });
      const { tokens: context } = (await answer.json()) as { readonly tokens: readonly number[] };
      expect(context.length).toBe(shared);
      for (const [choice, { tokens, logprobs: logProbs }] of choices.entries()) {
        const [logLikelihood, isGreedy] = sample.resps[choice]![0]!;
        asked.push({ context, tokens, logProbs, logLikelihood, isGreedy });
      }
    }
  });
  afterAll(() => server.stop().then(() => undefined));

  it.each([1, 8, 40])('scores choices, %i at a time, as run does', async (batch) => {
    expect(asked.length).toBe(40);
    const batches = Array.from({ length: Math.ceil(asked.length / batch) }, (_, i) =>
      asked.slice(i * batch, (i + 1) * batch),
    );
    // As with num_concurrent.
    const answers = await Promise.all(
      batches.map((own) =>
        complete(server.url, {
          model: 'demo',
          prompt: own.map(({ context, tokens }) => [...context, ...tokens]),
          ...{ temperature: 0, max_tokens: 1, logprobs: 1, seed: 1234, echo: true },
        }),
      ),
    );
    const found = answers.flatMap((answer, i) =>
      read(
        answer,
        batches[i]!.map(({ context }) => context.length),
      ),
    );
    expect(found.map(({ own }) => own)).toEqual(asked.map(({ logProbs }) => logProbs));
    expect(found.map(({ sum }) => sum)).toEqual(asked.map(({ logLikelihood }) => Number(logLikelihood)));
    expect(found.map(({ isGreedy }) => (isGreedy ? 'True' : 'False'))).toEqual(asked.map(({ isGreedy }) => isGreedy));
  });

  it('finds choices that are greedy', async () => {
    const { context } = asked[0]!;
    const { choices } = await complete(server.url, {
      ...{ prompt: context, max_tokens: 8, temperature: 0, return_token_ids: true },
    });
    const prompt = [...context, ...choices[0]!.token_ids!];
    const answer = await complete(server.url, { prompt, temperature: 0, max_tokens: 1, logprobs: 1, echo: true });
    expect(read(answer, [context.length])[0]!.isGreedy).toBe(true);
  });

  it('generates as generate does, until a stop text', async () => {
    const prompt = 'The sky is';
    const flags = ['--max-new-tokens', '24', '--stop', ' yellow', '--stop', '</s>', '--json'];
    const { stdout } = success(await tilewright(['generate', MODEL, prompt, ...DEVICE, ...flags]));
    const { text } = JSON.parse(stdout.trim().split('\n')[0]!) as { readonly text: string };
    const { choices } = await complete(server.url, {
      ...{ prompt: [prompt], model: 'demo', max_tokens: 24, temperature: 0, seed: 1234 },
      stop: [' yellow', '</s>'],
      do_sample: false,
    });
    expect(choices[0]!.text).toBe(text);
  });

  it('tells a client without a tokenizer what it needs', async () => {
    const info = (await (await fetch(`${server.url}/tokenizer_info`)).json()) as Record<string, unknown>;
    expect(info['eos_token']).toBe('</s>');
    const test = await post(server.url, '/tokenize', { prompt: 'test', add_special_tokens: false });
    const { tokens } = (await test.json()) as { readonly tokens: readonly number[] };
    const back = await post(server.url, '/detokenize', { tokens });
    expect(await back.json()).toEqual({ prompt: 'test' });
  });
});
