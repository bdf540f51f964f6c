/** A model that is named as the hub names it is what every command speaks of first. */
import { expect, it } from 'vitest';
import { runCli } from './fakeIo.js';

const NAME = 'Qwen/Qwen3-8B';
const COMMAND = 'hf download Qwen/Qwen3-8B --local-dir Qwen3-8B';

it.each([
  [['run', NAME]],
  [['run', NAME, '--task', 'nothing', '--limit', '-1']],
  [['run', NAME, '--tasks', 'hellaswag', '--resume']],
  [['run', '--model', 'hf', '--model_args', `pretrained=${NAME}`, '--tasks', 'hellaswag', '--log_samples']],
  [['generate', NAME]],
  [['generate', NAME, 'Hello', '--max-new-tokens', 'x']],
  [['compile', NAME]],
  [['compile', NAME, '-o', 'out.tw', '--logits']],
  [['tune', NAME]],
  [['inspect', NAME, '--limit', '3']],
  [['inspect', NAME, '--error']],
  [['explore', NAME, '--tokens', '0']],
  [['quantize', NAME]],
])('%j', async (argv) => {
  const { status, stdout, stderr } = await runCli(argv);
  expect([status, stdout]).toEqual([1, '']);
  expect(stderr).toMatch(/^error: Qwen\/Qwen3-8B: there is no such folder in [^\n]*\nhint: [^\n]*\n$/);
  expect(stderr).toContain('models are local folders or .gguf files, and nothing is downloaded here');
  expect(stderr).toContain(COMMAND);
});

it('an old name without an owner, and a page', async () => {
  expect((await runCli(['run', 'gpt2'])).stderr).toContain('hf download gpt2 --local-dir gpt2');
  const { stderr } = await runCli(['generate', 'https://huggingface.co/Qwen/Qwen3-8B']);
  expect(stderr).toContain('error: https://huggingface.co/Qwen/Qwen3-8B: is a web address\n');
  expect(stderr).toContain(COMMAND);
});

it('names that may be anything leave the first word to what else is missing', async () => {
  expect((await runCli(['run', 'models/demo'])).stderr).toContain('--task');
  expect((await runCli(['compile', 'nowhere'])).stderr).toContain('-o DIR is missing');
});
