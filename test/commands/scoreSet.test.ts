import { describe, expect, it } from 'vitest';
import { nonFiniteAdvice } from '../../commands/scoreSet.js';

describe('advice where values are NaN', () => {
  it('never suggests what is already on', () => {
    expect(nonFiniteAdvice(true, 'f32')).not.toContain('--precision');
    expect(nonFiniteAdvice(true, 'bf16')).toMatch(/bf16 overflows: try --precision f32$/);
    expect(nonFiniteAdvice(false, 'f16')).toMatch(
      /f16 overflows: try --precision bf16, or --target cpu --precision f32$/,
    );
    expect(nonFiniteAdvice(false, 'bf16')).not.toContain('--precision bf16');
  });
});
