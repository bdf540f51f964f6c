/** Names of values and parameters in units. */
import { readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { plainName, plainNames, ValueNames } from '../../../codegen/cuda/text/names.js';

const LIB = new URL('../../../codegen/cuda/lib/', import.meta.url);
/** Headers whose functions the statements of programs call. */
const OF_PROGRAMS = ['arithmetic.cuh', 'approximate.cuh', 'pairs.cuh'];

it('keeps the names of the functions that programs call', () => {
  expect(readdirSync(LIB)).toEqual(expect.arrayContaining(OF_PROGRAMS));
  const functions = OF_PROGRAMS.flatMap((file) =>
    [
      ...readFileSync(new URL(file, LIB), 'utf8').matchAll(
        /TW_DEVICE (?:float|double|int|unsigned|uint2|int2)2? (\w+)\(/g,
      ),
    ].map(([, name]) => name!),
  );
  expect(functions).toEqual(expect.arrayContaining(['add', 'exp', 'sine', 'select']));
  for (const name of new Set(functions)) expect(plainName(name)).not.toBe(name);
});

it('gives types of headers names of their own: kernels of a whole step are one program where they are emulated', () => {
  const cuda = new URL('../../../codegen/cuda/', import.meta.url);
  const headers = readdirSync(cuda, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.cuh'));
  const types = headers.flatMap((file) =>
    [
      ...readFileSync(new URL(file, cuda), 'utf8').matchAll(
        /^(?:template <.*> )?(?:(?:struct|enum class) (?:alignas\(\d+\) )?(\w+)\b(?!<)[^;\n]*\{|using (\w+) =)/gm,
      ),
    ].map(([, type, alias]) => (type ?? alias)!),
  );
  expect(types).toEqual(expect.arrayContaining(['Scores', 'RowScores', 'Barrier', 'TensorMap', 'HopperMode']));
  expect(types.filter((type, i) => types.indexOf(type) !== i)).toEqual([]);
});

it('gives each value a name of its own, apart from parameters', () => {
  const names = new ValueNames(plainNames(['layers_3_h', 'gated']));
  expect(names.take('gated')).toBe('gated_value');
  expect(names.take('layers_7_silu')).toBe('silu');
  expect(names.take('silu_2')).toBe('silu_2');
  expect(names.take('exp')).toBe('exp_');
  // What loops of the text count by.
  expect(names.take('unit')).toBe('unit_value');
  expect([names.take(undefined), names.take(undefined)]).toEqual(['v', 'v_2']);
  expect(names.take('q', '_first')).toBe('q_first');
});
