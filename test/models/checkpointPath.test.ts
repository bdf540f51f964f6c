import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openCheckpoint } from '../../models/checkpoint.js';
import { refuseHubName, requireModelAt } from '../../models/model/refusals.js';
import { describeRandomCheckpoint } from '../../models/randomCheckpoint.js';
import { DEMO, temporaryFolder, userError } from './support.js';

describe('a path that is no folder', () => {
  it.each([
    ['nowhere', `there is no such folder in ${process.cwd()}`, 'give the folder of a Hugging Face checkpoint'],
    ['/nowhere/owner/name', '/nowhere/owner/name: there is no such folder', 'give the folder of a Hugging Face'],
    ['owner/some-model', 'owner/some-model: there is no', 'hf download owner/some-model --local-dir some-model'],
    ['my model.tw', 'my model.tw: there is no such folder', "tilewright compile CHECKPOINT -o 'my model.tw'"],
    [join(DEMO, 'config.json'), 'config.json is a file', `give the folder ${DEMO}, or make weights up for this file`],
    [join(DEMO, 'model.safetensors'), 'model.safetensors is a file', `give the folder ${DEMO}`],
    [join(DEMO, 'config.json', 'x'), 'there is no such folder', 'give the folder of'],
  ])('%s gets a hint', (path, message, hint) => {
    const error = userError(() => openCheckpoint(path));
    expect([error.message, error.hint]).toEqual([expect.stringContaining(message), expect.stringContaining(hint)]);
    expect(`${error.message}${error.hint}`).not.toContain('\n');
  });

  it('is refused with made-up weights, but for a config.json', () => {
    const file = join(temporaryFolder(), 'weights');
    writeFileSync(file, '');
    expect(userError(() => describeRandomCheckpoint(file, 1)).message).toContain('is a file');
    expect(describeRandomCheckpoint(join(DEMO, 'config.json'), 1).config.layers).toBe(8);
  });
});

const LOCAL = 'models are local folders or .gguf files, and nothing is downloaded here';

describe("the hub's name of a model that is not on this disk", () => {
  it.each([
    ['Qwen/Qwen3-8B', 'hf download Qwen/Qwen3-8B --local-dir Qwen3-8B'],
    ['Qwen/Qwen3-8B/', 'hf download Qwen/Qwen3-8B --local-dir Qwen3-8B'],
    ['gpt2', 'hf download gpt2 --local-dir gpt2'],
    ['bert-base-uncased', 'hf download bert-base-uncased --local-dir bert-base-uncased'],
    ['unsloth/Qwen3-8B-GGUF:Q4_K_M', 'hf download unsloth/Qwen3-8B-GGUF --local-dir Qwen3-8B-GGUF'],
    ['google/gemma-2b@float16', 'hf download google/gemma-2b --revision float16 --local-dir gemma-2b'],
    ['https://huggingface.co/Qwen/Qwen3-8B', 'hf download Qwen/Qwen3-8B --local-dir Qwen3-8B'],
    ['https://huggingface.co/gpt2', 'hf download gpt2 --local-dir gpt2'],
    ['https://huggingface.co/Qwen/Qwen3-8B/', 'hf download Qwen/Qwen3-8B --local-dir Qwen3-8B'],
    ['http://hf.co/Qwen/Qwen3-8B?library=transformers', 'hf download Qwen/Qwen3-8B --local-dir Qwen3-8B'],
    ['huggingface.co/Qwen/Qwen3-8B#usage', 'hf download Qwen/Qwen3-8B --local-dir Qwen3-8B'],
    ['hf.co/Qwen/Qwen3-8B', 'hf download Qwen/Qwen3-8B --local-dir Qwen3-8B'],
    ['hf://Qwen/Qwen3-8B', 'hf download Qwen/Qwen3-8B --local-dir Qwen3-8B'],
    ['https://huggingface.co/Qwen/Qwen3-8B/tree/main', 'hf download Qwen/Qwen3-8B --local-dir Qwen3-8B'],
    ['https://huggingface.co/Qwen/Qwen3-8B/tree/v1', 'hf download Qwen/Qwen3-8B --revision v1 --local-dir Qwen3-8B'],
    ['https://huggingface.co/Qwen/Qwen3-8B/blob/main/config.json', 'hf download Qwen/Qwen3-8B --local-dir Qwen3-8B'],
    ['https://huggingface.co/a/b/resolve/main/q/b-Q4.gguf', 'hf download a/b q/b-Q4.gguf --local-dir b'],
    ['https://huggingface.co/Qwen/Qwen3-8B/discussions/3', 'hf download Qwen/Qwen3-8B --local-dir Qwen3-8B'],
  ])('%s is answered with the command that gets it', (path, command) => {
    for (const look of [refuseHubName, requireModelAt, openCheckpoint]) {
      const { message, hint } = userError(() => look(path));
      expect(message).toMatch(
        path.includes('//') || path.startsWith('h') ? /: is a web address$/ : /: there is no such/,
      );
      expect(hint).toContain(LOCAL);
      expect(hint?.endsWith(`: ${command}`), hint).toBe(true);
    }
  });

  it.each([
    ['https://huggingface.co/datasets/cais/mmlu', 'is a web address'],
    ['https://example.com/model.gguf', 'is a web address'],
    ['s3://bucket/model', 'is a web address'],
    ["https://huggingface.co/a/b';rm -rf ~", 'is a web address'],
    ['https://huggingface.co/../..', 'is a web address'],
    ['models/nowhere/deep', 'there is no such folder in'],
    ['./nowhere-8B', 'there is no such folder in'],
    ['nowhere-8B.gguf', 'no such file in'],
    ['owner/nowhere.gguf', 'no such file in'],
    ['llama3.1:8b', 'there is no such folder in'],
    ['-8B/x', 'there is no such folder in'],
  ])('%j is no such name', (path, message) => {
    const error = userError(() => requireModelAt(path));
    expect(error.message).toContain(message);
    expect(error.hint).toContain('give the folder of a Hugging Face checkpoint');
    expect(error.hint).not.toContain('hf download');
  });

  it('is looked for before other flags where it can be nothing else', () => {
    for (const path of ['nowhere', 'm', 'out/results.tw', 'a-1.json', 'x.gguf', DEMO, 'models/demo'])
      expect(() => refuseHubName(path), path).not.toThrow();
    for (const path of ['./a-1', '../a', '/nowhere/at/all', '~/a', 'my model', ''])
      expect(userError(() => refuseHubName(path)).message, path).toContain('there is no such folder');
  });

  it('is the folder that is here already, perhaps', () => {
    const { hint } = userError(() => requireModelAt('owner/models'));
    expect(hint).toContain('; if models is that model, give it;');
    const dir = join(temporaryFolder(), 'demo-1');
    mkdirSync(dir);
    expect(() => refuseHubName(dir)).not.toThrow();
  });
});
