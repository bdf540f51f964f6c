/**
 * Pieces of the kernels of attention on tensor cores. What kernels share is one text, printed as deep as its place is;
 * the rest are pieces that can be read by themselves.
 */
import { indent } from './text/statements.js';
import { render } from './text/templates.js';

/**
 * A kernel on tensor cores: over trees; of one query of a path, by teams or by one warp; of queries of paths, run by
 * run or tile by tile.
 */
export type MmaTemplate =
  | 'attentionMma'
  | 'attentionPathDecode'
  | 'attentionPathLone'
  | 'attentionPathMma'
  | 'attentionPathShared'
  | 'attentionPathWgmma';

/** The text of a kernel. `values` are what its template and those of its pieces read. */
export function renderMma(template: MmaTemplate, values: object): string {
  return render(template, { ...values, ...partsOf(template, values) });
}

/** The pieces of a kernel by the names that its template gives them. */
function partsOf(template: MmaTemplate, values: object): Readonly<Record<string, string>> {
  switch (template) {
    case 'attentionMma':
      return { root: part('attentionRoot', values), ...tileParts({ ...values, slot: 'slot' }, 4) };
    case 'attentionPathDecode':
      return {
        power2: part('attentionPower2', values),
        ...queryParts(values),
        merge: part('attentionDecodeMerge', values),
      };
    case 'attentionPathLone':
      return {
        ...pathParts({ ...values, isLone: true, slot: 'slot' }, 2, 2),
        ...queryParts(values),
        totals: totals(values),
      };
    case 'attentionPathMma':
      return pathParts(values, 4, 3);
    case 'attentionPathShared':
      return { ...pathParts(values, 3, 2), totals: totals(values) };
    case 'attentionPathWgmma':
      return {
        producer: part('attentionWgmmaProducer', { ...values, ...loadParts(values) }, 2),
        consumer: part('attentionWgmmaConsumer', { ...values, softmax: part('attentionWgmmaSoftmax', values, 1) }, 1),
      };
    default:
      return template satisfies never;
  }
}

/** What the warps do that load keys and values for products of warpgroups. */
const loadParts = (values: object): Readonly<Record<string, string>> => ({
  ahead: part('attentionWgmmaAhead', values, 2),
  gather: part('attentionWgmmaGather', values, 1),
  lead: part('attentionWgmmaLead', values, 2),
});

/** A step of the softmax over one tile of keys, and what ends a path. */
function pathParts(values: object, tileDepth: number, storeDepth: number): Readonly<Record<string, string>> {
  const tile = { ...values, ...tileParts({ slot: 'at_slot', ...values }) };
  return {
    power2: part('attentionPower2', values),
    tile: part('attentionPathTile', tile, tileDepth),
    store: part('attentionPathStore', values, storeDepth),
  };
}

/** How a block finds its only query, and holds it. */
const queryParts = (values: object): Readonly<Record<string, string>> => ({
  functions: render('attentionDecodeFunctions', values),
  path: part('attentionOneQuery', values, 1),
  operand: part('attentionQueryOperand', values, 1),
  copy: part('attentionCopyRows', values, 1),
});

const totals = (values: object): string => part('attentionPathTotals', values);

/** The products of one tile of keys and values, and the exponentials between them. `slot`: where the tile lies. */
const tileParts = (values: object & { slot: string }, depth = 0): Readonly<Record<string, string>> => ({
  scores: part('attentionScores', values, depth),
  weights: part('attentionWeights', values, depth),
  products: part('attentionProducts', values, depth),
});

/** A template as lines of a kernel, `depth` levels deep, without the last line's end. */
const part = (name: string, values: object, depth = 0): string =>
  indent(render(name, values).trimEnd().split('\n'), depth).trimEnd();
