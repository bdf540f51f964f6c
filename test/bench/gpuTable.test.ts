/** The table that `npm run bench:gpu` prints. */
import { describe, expect, it } from 'vitest';
import { compareRounds, compareLayer, renderGpuTable } from '../../bench/gpuResults.js';

describe('the table', () => {
  it('shows each ratio, and whether it reaches its goal', () => {
    const rival = { algorithm: 'algorithm 1', seconds: [0.96e-3, 0.94e-3, 0.97e-3] };
    const kernel = {
      kernel: 'ffn.down',
      tokens: 1024,
      origin: 'default',
      schedule: 'wgmma 1',
      isBest: true,
      ...compareRounds([1e-3, 1e-3, 1e-3], 6e11, rival),
    };
    const slow = { ...kernel, origin: 'tried', schedule: 'wgmma 2', isBest: false, ratio: 0.5 };
    const layer = compareLayer(
      1024,
      1.2e12,
      [2e-3, 2e-3],
      [1.8e-3, 1.8e-3],
      [
        [1e-3, 1e-3],
        [0.8e-3, 0.6e-3],
      ],
      [
        { kernel: 'ffn.down', seconds: 1.5e-3 },
        { kernel: 'attention.mix', seconds: 0.5e-3 },
      ],
    );
    const results = {
      device: 'Paper GPU',
      library: '13.0.2',
      compiler: 'NVRTC 13.0',
      model: 'm',
      rounds: 3,
      kernels: [kernel, slow],
      layers: [layer],
    };
    expect(layer.ratioToSum).toBeCloseTo(0.85, 12);
    expect(layer.ratioToSequence).toBeCloseTo(0.9, 12);
    const lines = renderGpuTable(results);
    expect(lines[1]).toMatch(
      /^ffn\.down +1024 +1\.000 ms +0\.9600 ms +0\.960 +0\.94…0\.97 +600 +625 +wgmma 1 \(default, fastest\)$/,
    );
    expect(lines[3]).toMatch(/^layer ÷ sum +1024 +2\.000 ms +1\.700 ms +0\.850 +600 +512k tokens\/s a layer$/);
    const shares = String.raw`ffn\.down 75\.0 %, attention\.mix 25\.0 % \(one by one 1\.000 of the layer\)`;
    expect(lines[4]).toMatch(new RegExp(String.raw`^layer ÷ sequence +1024 +1\.800 ms +0\.900 +${shares}$`));
    expect(lines.at(-2)).toBe('contractions: 0.960 at least (ffn.down, 1024 tokens), 0.95 wanted: reached');
    expect(lines.at(-1)).toBe('layer ÷ sum of products: 0.850 at least (1024 tokens), 0.92 wanted: 1 of 1 short');
    const rates = renderGpuTable({
      ...results,
      kernels: [{ ...kernel, bytes: 1.5e9 }, slow],
      layers: [{ ...layer, bytes: 5e9 }],
      readBytesPerSecond: 3e12,
    });
    expect(rates[0]).toMatch(/ GB\/s +of read +schedule$/);
    expect(rates[1]).toMatch(/ 600 +625 +1500 +0\.500 +wgmma 1 \(default, fastest\)$/);
    expect(rates[2]).toMatch(/ – +– +wgmma 2 \(tried\)$/);
    expect(rates[3]).toMatch(/ 600 +2500 +0\.833 +512k tokens\/s a layer$/);
    expect(rates).toContain('reading alone in this run: 3000 GB/s');
  });
});
