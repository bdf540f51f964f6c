/** Folders and weights of something else than a language model: what they are is said before anything is missing. */
import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { modelName } from '../../driver/names.js';
import { openCheckpoint } from '../../models/checkpoint.js';
import { describeModel } from '../../models/config.js';
import { describeRandomCheckpoint } from '../../models/randomCheckpoint.js';
import { DEMO, layOut, safetensors, SMALL_CONFIG, temporaryFolder, userError, writeJson } from './support.js';

/** A checkpoint of the small model with `changes` to its configuration, and its tensors called by `rename`. */
function folder(changes: object = {}, more: readonly string[] = [], rename = (name: string): string => name): string {
  const dir = temporaryFolder();
  writeJson(dir, 'config.json', { ...SMALL_CONFIG, ...changes });
  const tensors = describeModel(SMALL_CONFIG, 'x').tensors.map(({ name, shape }) => [rename(name), shape] as const);
  const { header, size } = layOut([...tensors, ...more.map((name) => [name, [2]] as const)]);
  writeFileSync(join(dir, 'model.safetensors'), safetensors(header, size));
  return dir;
}
const STEPS = [{ idx: 0, name: '0', path: '', type: 'sentence_transformers.models.Transformer' }];

describe('a folder without config.json', () => {
  it.each([
    ['model_index.json', 'a diffusion pipeline, which makes pictures or sounds', 'docs/families.md'],
    ['adapter_config.json', 'an adapter, which changes another model', 'merge it into its model first'],
  ])('with %s is named', (name, is, hint) => {
    const dir = temporaryFolder();
    writeJson(dir, name, {});
    const error = userError(() => openCheckpoint(dir));
    expect(error.message).toBe(`${dir}: it is ${is}: it has ${name}, and no config.json`);
    expect(error.hint).toContain(hint);
    expect(userError(() => describeRandomCheckpoint(dir, 1)).message).toBe(error.message);
  });

  it("is one of the hub's cache, where the model is below it", () => {
    const dir = temporaryFolder();
    const snapshot = join(dir, 'snapshots', '0123abcd');
    mkdirSync(snapshot, { recursive: true });
    mkdirSync(join(dir, 'refs'));
    cpSync(DEMO, snapshot, { recursive: true });
    const error = userError(() => openCheckpoint(dir));
    expect(error.message).toBe(`${dir}: it is what the hub's cache keeps of a model, and the model is below it`);
    expect(error.hint).toBe(`give the folder that this lists: ls -d ${join(dir, 'snapshots')}/*`);
    expect(openCheckpoint(snapshot).config.layers).toBe(8);
  });

  it('is a checkpoint all the same if config.json is there', () => {
    const dir = folder();
    writeJson(dir, 'adapter_config.json', {});
    expect(openCheckpoint(dir).config.layers).toBe(3);
  });
});

describe('a folder of sentence-transformers', () => {
  it('is refused where its class has no head', () => {
    const dir = folder({ architectures: ['LlamaModel'] }, [], (name) => name.replace(/^model\./, ''));
    expect(openCheckpoint(dir).config.layers).toBe(3);
    writeJson(dir, 'modules.json', STEPS);
    const { message, hint } = userError(() => openCheckpoint(dir));
    expect(message).toBe(
      `${dir}: it is an embedding model of sentence-transformers (modules.json): LlamaModel has no head`,
    );
    expect(hint).toContain('docs/families.md');
  });

  it('is read with a note where its class is a whole language model', () => {
    const dir = folder();
    writeJson(dir, 'modules.json', STEPS);
    expect(openCheckpoint(dir).warnings).toEqual([
      `${dir}: modules.json makes embeddings of this model; it is read as the language model that it also is`,
    ]);
  });
});

describe('weights of something else', () => {
  it.each([
    ['fc.weight', 'a draft model'],
    ['model.fc.weight', 'a draft model'],
    ['d2t', 'a draft model'],
    ['midlayer.self_attn.q_proj.weight', 'a draft model'],
    ['0.0.linear.weight', 'a draft model'],
    ['score.weight', 'a classifier or a reward model'],
    ['v_head.summary.weight', 'a classifier or a reward model'],
  ])('%s tells, though config.json does not', (name, is) => {
    const { message } = userError(() => openCheckpoint(folder({}, [name])));
    expect(message.split('\n')[1]).toContain(`${name} is of ${is}`);
  });

  it('are no draft model for other tensors that are too many', () => {
    for (const name of ['model.layers.0.fc.weight', 'scores', 'model.fcx.weight'])
      expect(userError(() => openCheckpoint(folder({}, [name]))).message).not.toContain(' is of ');
  });
});

describe('a folder with the name of a file', () => {
  it.each(['model.json', 'model.gguf', 'model.safetensors'])('%s is a folder', (name) => {
    const dir = join(temporaryFolder(), name);
    mkdirSync(dir);
    cpSync(DEMO, dir, { recursive: true });
    expect(openCheckpoint(dir).config).toEqual(openCheckpoint(DEMO).config);
    expect(describeRandomCheckpoint(dir, 1).config.layers).toBe(8);
    expect(modelName(dir)).toBe(name);
    rmSync(join(dir, 'config.json'));
    expect(userError(() => describeRandomCheckpoint(dir, 1)).message).toBe(`${join(dir, 'config.json')}: no such file`);
  });

  it('a file of that name is a file', () => {
    const path = join(folder(), 'config.json');
    expect(describeRandomCheckpoint(path, 1).config.layers).toBe(3);
    expect(modelName('/models/tiny/config.json')).toBe('tiny');
  });
});
