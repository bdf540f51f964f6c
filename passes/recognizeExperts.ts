import { type ExpertGroups, groupsProblem, MAX_CHOSEN, type RoutingRule } from '../ir/experts.js';
import { productName } from '../ir/extents.js';
import {
  definitions,
  type Graph,
  type Node,
  type NodeOf,
  rewrite,
  type Rewriter,
  type Value,
} from '../ir/graph/graph.js';
import { OPS } from '../ir/ops/index.js';
import { isSymbol } from '../ir/types.js';
import { at } from '../system/at.js';
import { defined } from '../system/defined.js';
import { eliminateDeadCode } from './eliminateDeadCode.js';
import { Matcher } from './match.js';
import { routingInTurn } from './routingInTurn.js';

/**
 * Σ_e w[:, e]·expert_e(x), where a row of w is 0 but for its k largest probabilities, multiplies each row by the
 * matrices of its own k experts only. Rows of x are gathered in order of experts, two products per expert follow, and
 * the results are added up in the order of their weights: nothing of a row depends on the other rows.
 * In primitive ops it is ((f(x·Gᵀ) ∘ x·Uᵀ) ∘ w)·Dᵀ, where G, U and D have the matrices of all experts one behind
 * another. Products may have biases, tables [experts, columns]: those of x·Gᵀ and x·Uᵀ are added as one vector, and
 * those of the last product as w·table.
 */
export function recognizeExperts(graph: Graph): Graph {
  const search = new MixtureSearch(graph);
  const products = new Set<string>();
  const biased = search.biased(graph);
  const within = new Set<Node>([...biased.values()].map(({ product }) => product));
  const next = rewrite(graph, (node, rewriter) => {
    const isAlone = node.op === 'linear' && !within.has(node);
    const parts = biased.get(node)?.mixture ?? (isAlone ? search.match(node) : undefined);
    if (parts?.routing === undefined) return undefined;
    const [rows] = parts.x.type.shape;
    if (rows === undefined || !isSymbol(rows)) return undefined;
    products.add(productName(rows, parts.routing.chosen));
    return build(parts, parts.routing, node, search, rewriter);
  });
  // Products whose biases are added elsewhere are left without a reader.
  const kept = biased.size === 0 ? next : eliminateDeadCode(next);
  const missing = [...products].filter((name) => graph.extents.every((extent) => extent.name !== name));
  return missing.length === 0
    ? kept
    : { ...kept, extents: [...graph.extents, ...missing.map((name) => ({ name, counts: 'pairs' }))] };
}

function build(
  { x: read, inner, weights: shares, scales, experts, down, downBias }: Mixture,
  routing: Routing,
  node: Node,
  search: MixtureSearch,
  rewriter: Rewriter,
): Value {
  const path = node.path.replace(/\.down$/, '');
  const { chosen: k, groups } = routing;
  const logits = rewriter.map(routing.logits);
  const bias = routing.bias && rewriter.map(routing.bias);
  const by = defined({ scores: routing.scores });
  const slots = Array.from({ length: k }, (_, slot) => slot);
  const scaled = k === 1 ? search.scaledInput(read, shares) : undefined;
  const x = scaled ?? read;
  const { chosen, weights } = rewriter.scope(`${path}.route`, () => {
    const among = groups && { groups: groups.count, kept: groups.kept, best: groups.best };
    const own = rewriter.add('top_experts', { logits, ...defined({ bias }) }, { k, ...by, ...among }, 'experts');
    const rule = {
      normalized: routing.normalized && scaled === undefined,
      ...by,
      ...defined({ factor: routing.factor, inTurn: routing.inTurn }),
    };
    const weightOf = (slot: number): Value =>
      rewriter.add('expert_weight', { logits, experts: own }, { slot, ...rule }, 'weight');
    return { chosen: own, weights: slots.map(weightOf) };
  });
  const { order, places } = rewriter.scope(`${path}.sortByExpert`, () => ({
    order: rewriter.add('expert_rows', { experts: chosen }, { experts }, 'expert_rows'),
    places: slots.map((slot) => rewriter.add('expert_place', { experts: chosen }, { slot }, 'place')),
  }));
  const isBiased = downBias !== undefined || search.hasBiases(inner);
  const owners = isBiased
    ? rewriter.add('expert_owners', { experts: chosen }, {}, 'expert_owners', `${path}.sortByExpert`)
    : undefined;
  const own = rewriter.map(x);
  const factor = weights[0];
  const input =
    scaled === undefined || factor === undefined ? own : rewriter.add('mul', { a: own, b: factor }, {}, 'scaled', path);
  const gathered = rewriter.scope(`${path}.gather`, () => {
    const by = scales && ofPairs(weights, places, order, rewriter);
    const rows = rewriter.add('gather_rows', { x: input, index: order }, {}, `${x.name}_by_expert`);
    return by === undefined ? rows : rewriter.add('mul', { a: rows, b: by }, {}, 'scaled_by_expert');
  });
  const grouped = copyOf(inner, { gathered, chosen, owners, experts }, search, rewriter);
  return rewriter.scope(path, () => {
    const matrices = rewriter.add('concat', { matrices: down.map(rewriter.map) }, { axis: 0 }, 'down_of_each');
    const product = { x: grouped, w: matrices, experts: chosen };
    const products = rewriter.add('expert_linear', product, { experts }, node.result.name, node.path);
    const results =
      downBias === undefined
        ? products
        : rewriter.add(
            'add',
            { a: products, b: biasByOwner(downBias, owners!, rewriter) },
            {},
            'down_biased',
            node.path,
          );
    const parts = places.map((place, slot) => {
      const part = rewriter.add('gather_rows', { x: results, index: place }, {}, 'part');
      if (scaled !== undefined || scales !== undefined) return part;
      return rewriter.add('mul', { a: part, b: at(weights, slot) }, {}, 'weighted_part');
    });
    return parts.reduce((sum, part) => rewriter.add('add', { a: sum, b: part }, {}, 'mixed'));
  });
}

/**
 * f32[pairs, 1]: the weight of each pair of `order`. A row's pair has the weight of the slot whose place it is in.
 */
function ofPairs(weights: readonly Value[], places: readonly Value[], order: Value, rewriter: Rewriter): Value {
  const { shape } = order.type;
  const zero = rewriter.add('const', {}, { value: 0 }, 'zero');
  const pair = rewriter.add('iota', {}, { size: shape }, 'pair');
  const column = (v: Value, hint: string): Value => rewriter.add('reshape', { x: v }, { shape: [...shape, 1] }, hint);
  const parts = weights.map((weight, slot) => {
    const place = rewriter.add('gather_rows', { x: at(places, slot), index: order }, {}, 'place_of_slot');
    const condition = rewriter.add('eq', { a: column(place, 'place'), b: column(pair, 'pair') }, {}, 'is_own');
    const own = rewriter.add('gather_rows', { x: weight, index: order }, {}, 'weight_of_slot');
    return rewriter.add('select', { condition, a: own, b: zero }, {}, 'weight_of_pair');
  });
  return parts.reduce((sum, part) => rewriter.add('add', { a: sum, b: part }, {}, 'weight_of_pair'));
}

/** Rows by pair, their experts, and how many experts there are. `owners`: the expert of each pair, where asked. */
interface Pairs {
  readonly gathered: Value;
  readonly chosen: Value;
  readonly owners: Value | undefined;
  readonly experts: number;
}

/** Biases of the owners of rows, f32[rows, columns]. Tables are read as they are stored, and widened then. */
export function biasByOwner(table: Value, owners: Value, rewriter: Rewriter): Value {
  const rows = rewriter.map(table);
  const cast = rewriter.definition(rows);
  const stored = cast?.op === 'cast' ? cast.operands.x : rows;
  const own = rewriter.add('gather_rows', { x: stored, index: owners }, {}, 'bias_of_pair');
  return own.type.dtype === 'f32' ? own : rewriter.add('cast', { x: own }, { dtype: 'f32' }, `${own.name}_f32`);
}

/** `inner` over rows in order of experts, each multiplied by the matrices of its own expert. */
function copyOf(
  inner: Value,
  { gathered, chosen, owners, experts }: Pairs,
  search: MixtureSearch,
  rewriter: Rewriter,
): Value {
  const known = new Map<Value, Value>();
  const copy = (v: Value): Value => {
    const done = known.get(v);
    if (done !== undefined) return done;
    const bias = search.biasTable(v, experts);
    if (bias !== undefined) {
      const own = biasByOwner(bias, owners!, rewriter);
      known.set(v, own);
      return own;
    }
    // Where experts read rows times their weights, these are what is gathered.
    const node = search.scaledProducts(v, experts)?.products ?? search.definition(v);
    const now = rewriter.map(node?.result ?? v);
    const made =
      node === undefined || v.type.shape.length === 0
        ? now
        : node.op === 'linear'
          ? rewriter.add(
              'expert_linear',
              { x: gathered, w: rewriter.map(node.operands.w), experts: chosen },
              { experts },
              `${now.name}_by_expert`,
              node.path,
            )
          : rewriter.copy(node, copy, `${now.name}_by_expert`, node.path);
    known.set(v, made);
    return made;
  };
  return copy(inner);
}

// Finds mixtures of experts as models write them: products with the matrices of all experts one behind another.

/** How a row's experts are chosen. */
export interface Routing extends RoutingRule {
  /** f32[rows, experts] */
  readonly logits: Value;
  readonly chosen: number;
  /** [experts], which is added to scores before they are compared. */
  readonly bias?: Value;
}

/** Σ_e w[:, e]·expert_e(x). */
export interface Mixture {
  /** [rows, columns] */
  readonly x: Value;
  /** Elementwise in products of x and the matrices of all experts. */
  readonly inner: Value;
  /** f32[rows, experts], as `inner` is multiplied by it. */
  readonly weights: Value;
  /** f32[rows, experts]: what experts read x times; `weights` say then who is chosen. Default: they read x. */
  readonly scales?: Value;
  /** Undefined if the weights are not known to be 0 but for a few experts. */
  readonly routing: Routing | undefined;
  readonly experts: number;
  /** The matrices of the second products, by expert. */
  readonly down: readonly Value[];
  /** [experts, columns]: biases of the second products. */
  readonly downBias?: Value;
}

/** What products with the matrices of all experts are made of: rows, and by what they are multiplied, if they are. */
interface Lefts {
  readonly rows: Set<Value>;
  readonly scales: Set<Value | undefined>;
}

export class MixtureSearch {
  private readonly m: Matcher;
  private readonly defs: ReadonlyMap<Value, Node>;

  constructor(graph: Graph) {
    this.m = new Matcher(graph);
    this.defs = definitions(graph);
  }

  /** The node that computes `v`. */
  readonly definition = (v: Value): Node | undefined => this.defs.get(v);

  /** The mixture whose sum is the product `node`. */
  match({ operands: { x: flat, w: matrix } }: NodeOf<'linear'>): Mixture | undefined {
    const { m } = this;
    const down = this.concat(matrix, 1);
    const weighted = m.through(flat, 'reshape');
    if (down === undefined || weighted === undefined) return undefined;
    const experts = down.length;
    for (const [left, right] of m.pairs(weighted, 'mul')) {
      const [inner, weights] = [m.through(left, 'reshape'), m.through(right, 'reshape')];
      if (inner === undefined || weights === undefined || !this.isPerExpert(left, right, experts)) continue;
      const found: Lefts = { rows: new Set(), scales: new Set() };
      if (weights.type.shape.length !== 2 || !this.isOfProducts(inner, experts, found)) continue;
      const [[x], [scales]] = [found.rows, found.scales];
      if (found.rows.size !== 1 || found.scales.size !== 1 || x?.type.shape.length !== 2) continue;
      const routing = scales === undefined ? this.routing(weights, experts) : this.ofScales(scales, weights, experts);
      const known = routing !== undefined && routing.chosen <= MAX_CHOSEN ? routing : undefined;
      return { x, inner, weights, ...defined({ scales }), routing: known, experts, down };
    }
    return undefined;
  }

  /** Mixtures whose second products have biases, by the node that adds them, and those products. */
  biased(graph: Graph): ReadonlyMap<Node, { readonly mixture: Mixture; readonly product: Node }> {
    const found = new Map<Node, { readonly mixture: Mixture; readonly product: Node }>();
    for (const node of graph.nodes) {
      if (node.op !== 'add') continue;
      for (const [sum, rest] of this.m.pairs(node.result, 'add')) {
        const product = this.m.node(sum, 'linear');
        const { x: weights, w } = this.m.node(rest, 'linear')?.operands ?? {};
        const table = this.m.transposed(w, [1, 0]);
        const mixture = product === undefined || table === undefined ? undefined : this.match(product);
        const isTable = table?.type.shape.length === 2 && table.type.shape[0] === mixture?.experts;
        if (product !== undefined && mixture !== undefined && weights === mixture.weights && isTable)
          found.set(node, { mixture: { ...mixture, downBias: table }, product });
      }
    }
    return found;
  }

  /** The table [experts, columns] whose rows are one behind another in the vector `v`. */
  biasTable(v: Value, experts: number): Value | undefined {
    const table = v.type.shape.length === 1 ? this.m.through(v, 'reshape') : undefined;
    return table?.type.shape.length === 2 && table.type.shape[0] === experts ? table : undefined;
  }

  /** Whether biases are added to the products in `v`. */
  hasBiases(v: Value): boolean {
    const node = this.defs.get(v);
    if (v.type.shape.length === 1 && this.m.through(v, 'reshape') !== undefined) return true;
    return node !== undefined && node.op !== 'linear' && node.inputs.some((operand) => this.hasBiases(operand));
  }

  /**
   * The products of x and the matrices of all experts in `v`, if that is those [rows, E·width] times a number for each
   * row and expert, and the numbers [rows, E].
   */
  scaledProducts(v: Value, experts: number): { readonly products: NodeOf<'linear'>; readonly by: Value } | undefined {
    const { m } = this;
    for (const [left, right] of m.pairs(m.through(v, 'reshape'), 'mul')) {
      const [products, by] = [m.node(m.through(left, 'reshape'), 'linear'), m.through(right, 'reshape')];
      if (products === undefined || by?.type.shape.length !== 2 || !this.isPerExpert(left, right, experts)) continue;
      return { products, by };
    }
    return undefined;
  }

  /** The x where `v` is x times the weight of a row's only expert, by which `shares` are divided. */
  scaledInput(v: Value, shares: Value): Value | undefined {
    const sum = this.m.node(shares, 'div')?.operands.b;
    return this.m.pairs(v, 'mul').find(([, by]) => sum !== undefined && by === sum)?.[0];
  }

  /** The matrices of one shape that `v` has one behind another along `axis`. */
  private concat(v: Value | undefined, axis: 0 | 1): readonly Value[] | undefined {
    const node = this.m.node(v, 'concat');
    if (node?.attributes.axis !== axis) return undefined;
    const { matrices } = node.operands;
    return new Set(matrices.map(({ type }) => type.shape.join())).size === 1 ? matrices : undefined;
  }

  /** Whether elements [rows, experts, width] are multiplied by one number for each row and expert. */
  private isPerExpert(elements: Value, weights: Value, experts: number): boolean {
    const [rows, count, width] = elements.type.shape;
    const [same, each, one] = weights.type.shape;
    return rows === same && count === experts && each === experts && one === 1 && typeof width === 'number';
  }

  /** Whether `v` is elementwise in x·Wᵀ, where W has a matrix of each expert. Adds what is multiplied to `lefts`. */
  private isOfProducts(v: Value, experts: number, lefts: Lefts): boolean {
    const node = this.defs.get(v);
    if (v.type.shape.length === 0 && this.m.literal(v) !== undefined) return true;
    if (this.biasTable(v, experts) !== undefined) return true;
    const scaled = this.scaledProducts(v, experts);
    const products = scaled?.products ?? (node?.op === 'linear' ? node : undefined);
    if (products !== undefined) {
      lefts.rows.add(products.operands.x);
      lefts.scales.add(scaled?.by);
      return this.concat(products.operands.w, 0)?.length === experts;
    }
    return (
      node !== undefined &&
      OPS[node.op].fuse === 'elementwise' &&
      node.inputs.every((operand) => this.isOfProducts(operand, experts, lefts))
    );
  }

  /** The choice where `scales` are scores of the experts that `mask` marks. */
  private ofScales(scales: Value, mask: Value, experts: number): Routing | undefined {
    if (!this.m.pairs(scales, 'mul').some(([, by]) => by === mask)) return undefined;
    const found = this.kept(scales, experts);
    return found === undefined ? undefined : { ...found, normalized: false };
  }

  /** The scores of chosen experts, or their parts of the sum, and that times a literal. */
  private routing(weights: Value, experts: number): Routing | undefined {
    const { m } = this;
    for (const [shares, by] of m.pairs(weights, 'mul')) {
      const factor = m.literal(by);
      const found = factor !== undefined && factor > 0 && factor < Infinity ? this.shares(shares, experts) : undefined;
      if (found !== undefined) return { ...found, ...defined({ factor }) };
    }
    return this.shares(weights, experts) ?? this.inTurn(weights, experts);
  }

  private inTurn(weights: Value, experts: number): Routing | undefined {
    const found = routingInTurn(this.m, weights);
    return found?.logits.type.shape[1] === experts ? { ...found, normalized: false } : undefined;
  }

  private shares(v: Value, experts: number): Routing | undefined {
    const { m } = this;
    const division = m.node(v, 'div')?.operands;
    if (division !== undefined && m.through(division.b, 'sum') === division.a) {
      const found = this.kept(division.a, experts);
      return found === undefined ? undefined : { ...found, normalized: true };
    }
    const found = this.kept(v, experts);
    return found === undefined ? undefined : { ...found, normalized: false };
  }

  /** Scores times a mask of the largest of what is compared. */
  private kept(v: Value, experts: number): Omit<Routing, 'normalized'> | undefined {
    const { m } = this;
    for (const [scores, mask] of m.pairs(v, 'mul')) {
      const top = m.node(mask, 'top_mask');
      const found = this.scores(scores, experts);
      if (top === undefined || found === undefined) continue;
      const grouped = this.inGroups(top.operands.x, experts);
      const compared = grouped?.compared ?? top.operands.x;
      const bias = compared === scores ? undefined : this.bias(compared, scores, experts);
      if (compared !== scores && bias === undefined) continue;
      const chosen = top.attributes.k;
      const groups = grouped?.groups;
      if (groups === undefined || groupsProblem(groups, experts, chosen) === undefined)
        return { ...found, chosen, ...defined({ bias, groups }) };
    }
    return undefined;
  }

  /** Softmax or sigmoids of logits [rows, experts]. */
  private scores(v: Value, experts: number): Pick<Routing, 'logits' | 'scores'> | undefined {
    const { m } = this;
    const [softmax, sigmoid] = [m.softmax(v), m.sigmoid(v)];
    const logits = softmax ?? sigmoid;
    const { shape } = (logits ?? v).type;
    if (logits === undefined || shape.length !== 2 || shape[1] !== experts) return undefined;
    return softmax === undefined ? { logits, scores: 'sigmoid' } : { logits };
  }

  /** The stored vector that `v` adds to `scores`. */
  private bias(v: Value, scores: Value, experts: number): Value | undefined {
    for (const [same, added] of this.m.pairs(v, 'add')) {
      const stored = this.m.through(added, 'cast') ?? added;
      const isVector = stored.type.shape.length === 1 && stored.type.shape[0] === experts;
      if (same === scores && stored.kind === 'weight' && isVector) return stored;
    }
    return undefined;
  }

  /** What is compared where it lies in one of the groups with the largest sums of their largest, and −∞ elsewhere. */
  private inGroups(v: Value, experts: number): { readonly compared: Value; readonly groups: ExpertGroups } | undefined {
    const { m } = this;
    const choice = m.node(m.through(v, 'reshape'), 'select')?.operands;
    if (choice === undefined || m.literal(choice.b) !== -Infinity) return undefined;
    const compared = m.through(choice.a, 'reshape');
    const [, count, size] = choice.a.type.shape;
    if (compared?.type.shape.length !== 2 || typeof count !== 'number' || Number(size) * count !== experts)
      return undefined;
    for (const [isKept, one] of m.pairs(choice.condition, 'eq')) {
      const kept = m.literal(one) === 1 ? m.node(m.through(isKept, 'reshape'), 'top_mask') : undefined;
      const worth = m.through(m.through(kept?.operands.x, 'reshape'), 'sum');
      if (kept === undefined || worth === undefined || isKept.type.shape[1] !== count) continue;
      for (const [own, mask] of m.pairs(worth, 'mul')) {
        const best = m.node(mask, 'top_mask');
        if (own === choice.a && best?.operands.x === own)
          return { compared, groups: { count, kept: kept.attributes.k, best: best.attributes.k } };
      }
    }
    return undefined;
  }
}
