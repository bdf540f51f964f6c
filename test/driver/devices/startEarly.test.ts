import { describe, expect, it } from 'vitest';
import { willLoad, willMeasure } from '../../../driver/devices/startProcess.js';

describe('a command line that will probably load a model onto a GPU', () => {
  it.each([
    'run model --task hellaswag',
    'generate model text',
    'generate model --target cuda',
    'run m --target auto --devices 2',
  ])('%s', (line) => {
    expect(willLoad(line.split(' '))).toBe(true);
  });

  it.each([
    '',
    '--help',
    '--version',
    'doctor',
    'compile model -o m.tw',
    'run --help',
    'generate -h',
    'run model --dry-run',
    'run model --dry_run',
    'run model --target cpu',
    'run model --target=cpu',
    'generate model --isa avx2',
    'generate model --isa=avx2',
    'run model --tasks mmlu --print-prompts',
  ])('none: %s', (line) => {
    expect(willLoad(line === '' ? [] : line.split(' '))).toBe(false);
  });
});

it('only what keeps keys and values in free memory asks how much is free', () => {
  expect(willMeasure(['generate', 'models/demo', 'text'])).toBe(true);
  expect(willMeasure(['run', 'models/demo'])).toBe(false);
});
