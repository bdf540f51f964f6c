/** Register tiles of dot products of bytes for many rows: they share columns that are widened once. */
import { QUADS, type QuadName } from '../../ir/quads.js';
import type { CpuIsa } from '../../ir/plan.js';
import type { Helper } from './micro.js';
import { QUAD_ISAS, vectorsOf, type QuadIsa } from './quadIsas.js';
import {
  addTotal,
  codesOf,
  correction,
  minimumOf,
  partsOf,
  range,
  scaleOf,
  unitValues,
  versions,
  type QuadTile,
} from './quadTile.js';
import type { QuadVectors } from './quadVectors.js';
import { render } from './templates.js';

/** Columns of the tiles of many rows. */
export const manyColumns = (isa: QuadIsa | CpuIsa): 16 | 32 => (isa === 'avx2' || isa === 'avxvnni' ? 16 : 32);

/** Makes `manyColumns` columns of a panel ready for tiles of many rows: codes, scales and minima of some units. */
export function widenQuads(isa: QuadIsa, format: QuadName): Helper {
  const panel = QUADS[format];
  const own = vectorsOf(isa, format);
  const nr = manyColumns(isa);
  const body: string[] = [];
  for (const j of range(nr / own.lanes)) {
    const column = j * own.lanes;
    for (const first of [0, 4]) {
      body.push('{', ...codesOf(panel, own, first, 4 * column));
      for (const quad of range(4).map((i) => first + i)) body.push(...own.widen(`w${quad}`, quad, j, panel.zero));
      body.push('}');
    }
  }
  const parts = partsOf(panel).length;
  if (panel.scaleQuads !== 0) {
    for (const part of range(parts))
      for (const j of range(nr / own.lanes))
        body.push(
          `${own.storeFloat}(scales + ${part * nr + j * own.lanes}, ${scaleOf(panel, own, part, j * own.lanes)});`,
        );
    body.push(`scales += ${parts * nr};`);
  }
  if (panel.hasMinimum) {
    for (const j of range(nr / own.lanes))
      body.push(`${own.storeFloat}(minima + ${j * own.lanes}, ${minimumOf(own, j * own.lanes)});`);
    body.push(`minima += ${nr};`);
  }
  const name = `tw_widen_${isa}_${format}`;
  const target = own.needs === undefined ? '' : `, target("${own.needs}")`;
  const text = render('quadWiden', { name, target, nr, format, ...unitValues(panel), body, wide: 8 * own.quadBytes });
  return { name, source: `${own.helpers()}#ifndef TW_HAS_${name}\n#define TW_HAS_${name}\n${text}#endif\n` };
}

/** Whether tiles of whole rows take bounded codes. */
export const isBounded = (isa: QuadIsa): boolean => isa === 'avx2';

/**
 * Statements that multiply what was taken off the bounded codes of `mr` rows, side by side: behind its end a list has
 * zeros, so that all rows go as far as the longest one, and only one end is mispredicted.
 */
const restOf = (own: QuadVectors, mr: number, pitch: number): readonly string[] => [
  'int32_t most = 0;',
  ...range(mr).map((r) => `if (${quadAt(r * pitch)} > most) most = ${quadAt(r * pitch)};`),
  'for (; most > 0; most--, lists += 8) {',
  ...range(mr).flatMap((r) => [
    `  { const uint8_t *const from = codes + 64 * ${quadAt(r * pitch + 8)};`,
    `  TW_Q256_BYTES(c${r}_0, c${r}_1, ${own.load}(from), ${own.load}(from + 32), ${quadAt(r * pitch + 12)});`,
    '  }',
  ]),
  '}',
];

const quadAt = (offset: number): string => `*(const tw_quad *)(lists + ${offset})`;

/** c[mr][manyColumns] (+)= rows·columns, from codes that widenQuads left. */
export function manyQuads({ isa, format, rows, ldc }: QuadTile, mr: number): Helper {
  const panel = QUADS[format];
  const own = vectorsOf(isa, format);
  const nr = manyColumns(isa);
  const isWhole = panel.scaleQuads === 0;
  const cells = range(mr).flatMap((r) =>
    range(nr / own.lanes).map((j) => ({ r, j, sum: `c${r}_${j}`, at: `c + ${r * ldc + j * own.lanes}` })),
  );
  const groups = isWhole ? [] : range(mr).map((r) => `const tw_group *g${r} = groups + ${r * rows.groups} + n;`);
  const zero = (r: number, part: number): string => (own.widenedZero ? correction(panel, own, r, part) : own.zero);
  const parts = partsOf(panel);
  const narrow = panel.bits === 4 ? own.narrow : undefined;
  const products = (firsts: readonly number[]): readonly string[] =>
    firsts.flatMap((first) => range(4).flatMap((i) => (narrow ?? own).many(first + i, mr, nr / own.lanes, rows)));
  const body = parts.flatMap((firsts, part) => [
    '{',
    ...(isWhole
      ? products(firsts)
      : [
          ...range(mr).map((r) => `const ${own.int} z${r} = ${zero(r, part)};`),
          ...cells.map(({ r, sum }) => `${own.int} ${sum} = ${narrow === undefined ? `z${r}` : own.zero};`),
          ...products(firsts),
          ...(narrow === undefined ? [] : cells.map(({ r, sum }) => `${sum} = ${narrow.widened(sum, `z${r}`)};`)),
        ]),
    ...(isWhole
      ? []
      : range(nr / own.lanes).flatMap((j) => [
          '{',
          `const ${own.float} scale = ${own.loadFloat}(scales + ${part * nr + j * own.lanes});`,
          ...(panel.hasMinimum ? [`const ${own.float} minimum = ${own.loadFloat}(minima + ${j * own.lanes});`] : []),
          ...cells.filter((cell) => cell.j === j).map(({ r, sum, at }) => addTotal(panel, own, r, sum, at)),
          '}',
        ])),
    '}',
  ]);
  const hasLists = isWhole && isBounded(isa);
  return versions(own, `tw_many_${isa}_${format}_${mr}_p${rows.pitch}_${rows.groups}_c${ldc}`, (name, target) =>
    render('quadMany', {
      name,
      target,
      mr,
      nr,
      format,
      hasLists,
      rest: hasLists ? restOf(own, mr, rows.pitch) : [],
      start: isWhole
        ? cells.map(({ sum, at }) => `${own.int} ${sum} = first ? ${own.zero} : ${own.loadInt(at)};`)
        : [`if (first) for (int r = 0; r < ${mr}; r++) memset(c + r * ${ldc}, 0, ${4 * nr});`],
      body: [...groups, ...body],
      wide: 8 * own.quadBytes,
      advance: { scales: isWhole ? 0 : parts.length * nr, minima: panel.hasMinimum ? nr : 0 },
      end: isWhole ? cells.map(({ sum, at }) => own.storeInt(at, sum)) : [],
    }),
  );
}

/**
 * Statements that make a vector of results at `at` of sums of integers there: without what products of unsigned codes
 * have too much, `excess`, times the row's scale.
 */
export const wholeResult = (isa: QuadIsa, at: string): string => {
  const { storeFloat, multiply, toFloat, subtract, loadInt } = QUAD_ISAS[isa];
  return `${storeFloat}(${at}, ${multiply}(${toFloat(`${subtract}(${loadInt(at)}, excess)`)}, scale));`;
};

/** Bytes that widened columns of `depth` along k take: codes, scales and minima. */
export function widenedBytes(
  isa: QuadIsa,
  format: QuadName,
  depth: number,
): { codes: number; scales: number; minima: number } {
  const groups = depth / 32;
  return {
    codes: groups * 8 * vectorsOf(isa, format).quadBytes,
    scales: groups * 2 * manyColumns(isa) * 4,
    minima: groups * manyColumns(isa) * 4,
  };
}
