/** Where a fragment's programs are evaluated: the columns of its groups, alone or in pairs. */
import { defined } from '../../../system/defined.js';
import type { Segment } from '../../../ir/kernel.js';
import type { Access } from '../../../ir/scalar.js';
import type { Fragment } from './fragment.js';
import { modulo, type Site } from './scalarPrinter.js';
import type { Constants } from './statements.js';

export interface Sites {
  /** One site, or the two halves of a rotated pair. */
  readonly list: readonly Site[];
  /** C truth value: whether the columns exist. */
  readonly guard: () => string;
}

/**
 * The sites at which a fragment's programs are evaluated, in terms of `unit_`; adds the constants that they may use.
 */
export function fragmentSites({ pairing, columns }: Segment, fragment: Fragment, constants: Constants): Sites {
  const { acc, column: base, quad, loaded, shared } = fragment;
  const at = (
    id: string,
    column: () => string,
    group: () => string,
    second: () => string,
    rotate?: Site['rotate'],
  ): Site => ({
    id,
    get column() {
      return column();
    },
    lanes: 2,
    acc: (i, lane) => acc(i === 0 ? group() : second(), lane),
    ...(loaded === undefined
      ? {}
      : { loaded: (buffer: string, access: Access, lane: number) => loaded(buffer, access, logical(group), lane) }),
    ...defined({ rotate }),
    ...(shared === undefined ? {} : { given: shared(pairing.kind === 'none' ? 'unit_' : '2 * unit_') }),
  });
  const logical = (group: () => string): (() => string) => (pairing.kind === 'interleave' ? () => 'unit_' : group);
  switch (pairing.kind) {
    case 'none': {
      const group = constants.add('group_', () => 'unit_');
      const column = constants.add('column', () => `${base} + 8 * ${group()} + 2 * ${quad}`);
      return { list: [at('x', column, group, group)], guard: () => `${column()} < ${columns}` };
    }
    case 'interleave': {
      const across = pairing.width / 8;
      const group = constants.add('group_', () => firstGroup(across));
      const column = constants.add('column', () => `(${base}) / 2 + 8 * unit_ + 2 * ${quad}`);
      const site = at('x', column, group, () => `${group()} + ${across}`);
      return { list: [site], guard: () => `${column()} < ${columns}` };
    }
    case 'rotate': {
      const { headDim, width } = pairing;
      const across = width / 8;
      const group = constants.add('group_', () => firstGroup(across));
      const lying = constants.add('lying_', () => `${base} + ${2 * width} * (unit_ / ${across})`);
      const column = constants.add(
        'column',
        () => `${firstHalf(lying(), headDim, fragment.holdsWholeHeads === true)} + unit_ % ${across} * 8 + 2 * ${quad}`,
      );
      const partner = constants.add('partner', () => `${column()} + ${headDim / 2}`);
      const partnerGroup = (): string => `${group()} + ${across}`;
      const first: Site = at('a', column, group, group, { partner: () => second, isNegated: true });
      const second: Site = at('b', partner, partnerGroup, partnerGroup, { partner: () => first, isNegated: false });
      return { list: [first, second], guard: () => `${lying()} < ${columns}` };
    }
    default:
      return pairing satisfies never;
  }
}

/** C expression: group of physical columns of the first element of a pair, for pairs of `across` groups each. */
const firstGroup = (across: number): string => `unit_ / ${across} * ${2 * across} + unit_ % ${across}`;

/**
 * Logical column, without the lane, of the first element of the pair at physical column `lying`, a multiple of 16, in
 * heads of `headDim`. In tiles of whole heads, a mask tells the compiler the value before the tile is known. In other
 * tiles a mask would only prolong the lifetime of intermediate values.
 */
export const firstHalf = (lying: string, headDim: number, holdsWholeHeads: boolean): string =>
  `${lying} - ${holdsWholeHeads ? modulo(lying, headDim) : `${lying} % ${headDim}`} / 2`;
