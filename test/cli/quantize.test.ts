import { describe, expect, it } from 'vitest';
import type { QuantizeRequest, QuantizeResult } from '../../commands/quantize.js';
import { runCli } from './fakeIo.js';

const RESULT: QuantizeResult = {
  output: 'out',
  method: 'gptq',
  settings: { bits: 4, group: 32, isSymmetric: true, isOrdered: false },
  matrices: [0, 1].map((layer) => ({
    tensor: `model.layers.${layer}.mlp.up_proj.weight`,
    rows: 64,
    k: 32,
    error: 0.01 * (layer + 1),
    roundingError: 0.04,
  })),
  kept: {},
  samples: 4,
  tokens: 2048,
  seconds: 2,
};
const QUANTIZE = ['quantize', 'model', '-o', 'out'];

describe('quantize', () => {
  it('asks for what its flags say, and prints errors by kind of matrix', async () => {
    const asked: QuantizeRequest[] = [];
    const quantize = (request: QuantizeRequest): Promise<QuantizeResult> => {
      asked.push(request);
      return Promise.resolve(RESULT);
    };
    const flags = [
      '--group',
      '-1',
      '--asym',
      '--act-order',
      '--calibration',
      'a.txt',
      '--length',
      '64',
      '--threads',
      '1',
    ];
    const { status, stdout } = await runCli([...QUANTIZE, ...flags], { quantize });
    expect(status).toBe(0);
    expect(asked[0]).toMatchObject({
      ...{ model: 'model', output: 'out', method: 'gptq', bits: 4, group: -1, isSymmetric: false, byActivation: true },
      ...{ calibration: { file: 'a.txt', samples: 128, length: 64, seed: 1 }, threads: 1 },
    });
    expect(stdout).toMatch(/^model\.layers\.\{i\}\.mlp\.up_proj +2 +64 × 32 +1\.50 % +4\.00 %$/m);
    expect(stdout).toContain('out: 2 matrices in 4 bits, groups of 32, by GPTQ on 4 samples (2,048 tokens)');
  });

  it.each([
    [[], '--calibration FILE is missing'],
    [['--calibration', 'a', '--group', '48'], '--group 48: expected 128, 64, 32 or -1'],
    [['--calibration', 'a', '--bits', '3'], '--bits 3: expected 4 or 8'],
    [['--calibration', 'a', '--samples', '0'], '--samples 0: expected a whole number from 1 to 65536'],
    [['--calibration', 'a', '--sym', '--asym'], '--sym and --asym exclude each other'],
    [['--method', 'round', '--calibration', 'a'], '--calibration: rounding to the nearest reads no text'],
    [['--method', 'round', '--samples', '4'], '--samples: rounding to the nearest reads no text'],
    [['--method', 'round', '--act-order'], '--act-order: rounding to the nearest has no order'],
  ])('%j is wrong use', async (flags, message) => {
    const { status, stderr } = await runCli([...QUANTIZE, ...flags], {});
    expect(stderr).toContain(`error: ${message}`);
    expect(status).toBe(2);
  });
});
