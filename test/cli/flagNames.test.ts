/** Spellings of flags: underscores, and what --max-tokens means in each command. */
import { describe, expect, it } from 'vitest';
import { withDashes } from '../../cli/options.js';
import { Command } from 'commander';
import { runCli, type Stories } from './fakeIo.js';

/** What the command was asked for, and what it said. */
async function asked(...argv: string[]): Promise<{
  readonly request: Record<string, unknown> | undefined;
  readonly status: number;
  readonly stderr: string;
}> {
  let request: Record<string, unknown> | undefined;
  const seen = (given: object): never => {
    request = { ...given };
    throw new Error('seen');
  };
  const names = ['run', 'generate', 'compile', 'inspect', 'explore', 'quantize', 'tune', 'mergeShards'] as const;
  const commands: Partial<Stories> = Object.fromEntries(names.map((name) => [name, seen]));
  const { status, stderr } = await runCli(argv, commands);
  return { request, status, stderr };
}

const RUN = ['run', 'models/demo', '--task', 'hellaswag', '--data', 'd.jsonl'];

describe('underscores', () => {
  it.each([
    [[...RUN, '--kv_cache', 'int8'], { kvCache: 'int8' }],
    [[...RUN, '--batch_tokens', '512', '--model_name=a_b'], { batchTokens: 512, modelName: 'a_b' }],
    [['run', 'm', '--tasks', 'mmlu', '--num_fewshot', '3', '--data_root', 'a_b'], { shots: 3, dataRoot: 'a_b' }],
    [['run', 'm', '--tasks', 'mmlu', '--num-fewshot', '3', '--gen-kwargs', 'top_k=1'], { shots: 3 }],
    [['generate', 'm', 'a', '--max_new_tokens', '7', '--top_p', '0.5'], { maxNewTokens: 7, topP: 0.5 }],
    [['generate', 'm', 'a', '--cache_tokens', '64'], { cacheTokens: 64 }],
    [['compile', 'm', '-o', 'a_b', '--pack_weights', '--batch_tokens', '64'], { packsWeights: true, output: 'a_b' }],
    [['inspect', 'm', '--kv_cache_dtype', 'fp8'], { kvCache: 'fp8' }],
    [['explore', 'm', '--cache_tokens', '64'], { cacheTokens: 64 }],
    [['quantize', 'm', '-o', 'x', '--method', 'gptq', '--calibration', 't', '--act_order'], { byActivation: true }],
  ])('%j', async (argv, expected) => {
    const { request, stderr } = await asked(...argv);
    expect(request, stderr).toMatchObject(expected);
  });

  it('in values stay', async () => {
    expect((await asked('generate', 'm', '--stop', '--kv_cache', 'a')).request).toMatchObject({ stop: ['--kv_cache'] });
    expect((await asked('generate', 'm', '--', '--kv_cache')).request).toMatchObject({
      prompts: [{ prompt: { prompt: '--kv_cache' } }],
    });
    const { request } = await asked('run', 'm', '--tasks', 'mmlu', '--system_instruction', '--num_fewshot');
    expect(request).toMatchObject({ systemInstruction: '--num_fewshot' });
  });

  it('leave what no command has as it was typed', async () => {
    expect((await asked(...RUN, '--no_such_flag')).stderr).toContain("unknown option '--no_such_flag'");
    expect(withDashes(new Command(), ['--a_b', 'run', '--c_d'])).toEqual(['--a_b', 'run', '--c_d']);
  });
});

describe('--max-tokens', () => {
  it('is the size of a micro-batch in run, and says so', async () => {
    const { request, stderr } = await asked(...RUN, '--max-tokens', '512');
    expect(request).toMatchObject({ batchTokens: 512 });
    expect(stderr).toMatch(/^note: --max-tokens is taken for --batch-tokens, the size of a micro-batch\n/);
    expect((await asked(...RUN, '--max_tokens', '512', '-q')).stderr).not.toContain('note');
  });

  it.each([
    [[...RUN, '--max-tokens', '512', '--batch-tokens', '64'], '--batch-tokens and --max-tokens are both the size', ''],
    [[...RUN, '--max-tokens', '16'], '--max-tokens 16: expected a whole number from 32', '--gen_kwargs max_gen_toks='],
    [
      ['compile', 'm', '-o', 'x', '--max-tokens', '64'],
      "unknown option '--max-tokens'",
      'hint: the size of a micro-batch is --batch-tokens',
    ],
    [
      ['inspect', 'm', '--max_tokens', '64'],
      "unknown option '--max_tokens'",
      'hint: the size of a micro-batch is --batch-tokens',
    ],
    [
      ['tune', 'm.tw', '--max-tokens=64'],
      "unknown option '--max-tokens=64'",
      'hint: the size of a micro-batch is --batch-tokens',
    ],
    [['generate', 'm', 'a', '--max-tokens', '9', '--max-new-tokens', '8'], 'are both the length of an answer', ''],
  ])('is refused: %j', async (argv, message, hint) => {
    const { request, status, stderr } = await asked(...argv);
    expect([request, status]).toEqual([undefined, 2]);
    expect(stderr).toContain(message);
    expect(stderr).toContain(hint);
    expect(stderr).toMatch(/^hint: /m);
  });

  it('is the length of an answer in generate', async () => {
    const { request } = await asked('generate', 'm', 'a', '--max-tokens', '9', '--batch-tokens', '64');
    expect(request).toMatchObject({ maxNewTokens: 9, batchTokens: 64 });
    expect((await asked('generate', 'm', 'a', '--max_tokens', '9')).request).toMatchObject({ maxNewTokens: 9 });
  });

  it('is not what help shows', async () => {
    const { stdout } = await runCli(['run', '--help']);
    expect(stdout).toContain('--batch-tokens <n>');
    expect(stdout).not.toContain('--max-tokens <n>');
  });
});
